// SQLite, without exceptions: a connection and its prepared statements.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "farwarp/base/status.h"

namespace farwarp::results {

inline constexpr int kBusyMs = 10'000;  ///< the longest wait for another process

/// A prepared statement. Values are bound in order; an error of any bind is reported by step().
class Statement {
 public:
  Statement& bind(std::string_view text);
  Statement& bind(std::int64_t value);
  Statement& bind(double value);
  /// NULL if `value` is 0: the figure is not known.
  Statement& bind_known(double value);
  /// NULL if there is none.
  Statement& bind(std::optional<double> value);
  /// Whether there is a row. After the last one, or without rows, the statement can be bound and stepped again.
  Result<bool> step();

  std::string text(int column) const;
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  /// 0 where NULL is.
  double number(int column) const { return sqlite3_column_double(statement_.get(), column); }
  /// nullopt where NULL is.
  std::optional<double> optional_number(int column) const;

 private:
  friend class Database;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement, &sqlite3_finalize) {}

  std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> statement_;
  int bound_ = 0;
  int failed_ = SQLITE_OK;
};

class Database {
 public:
  enum class Access : std::uint8_t { kRead, kWrite, kCreate };
  /// Each statement waits up to kBusyMs for other processes. kInvalidArgument has SQLite's message.
  /// kRead: a database on which nothing can be written, not even by SQLite itself, is read as it is.
  static Result<Database> open(const std::string& path, Access access);

  /// One or more statements without results.
  Status run(const char* sql);
  Result<Statement> prepare(std::string_view sql);
  /// The first column of the first row; kInternal if there is no row.
  Result<std::int64_t> integer(std::string_view sql);
  /// Of the latest row that was inserted.
  std::int64_t last_id() const { return sqlite3_last_insert_rowid(connection_.get()); }

 private:
  explicit Database(sqlite3* connection) : connection_(connection, &sqlite3_close_v2) {}
  std::unique_ptr<sqlite3, decltype(&sqlite3_close_v2)> connection_;
};

/// Rolled back at the end of its life unless it was committed.
class Transaction {
 public:
  /// Takes the right to write, for which it waits.
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

}  // namespace farwarp::results
