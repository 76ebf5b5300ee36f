#include "farwarp/results/database.h"

#include <utility>

namespace farwarp::results {
namespace {

Status failure(sqlite3* connection) {
  const int code = sqlite3_errcode(connection) & 0xff;
  const std::string message = sqlite3_errmsg(connection);
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_NOMEM: return unavailable(message);
    default: return invalid_argument(message);
  }
}

/// `path` as an URI that says that the file does not change.
std::string unchanging(const std::string& path) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string uri = "file:";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '%' || c == '?' || c == '#') {
      uri += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

Statement& Statement::bind(std::string_view text) {
  const char* const begin = text.data() != nullptr ? text.data() : "";
  const int result = sqlite3_bind_text64(statement_.get(), ++bound_, begin, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (failed_ == SQLITE_OK) failed_ = result;
  return *this;
}

Statement& Statement::bind(std::int64_t value) {
  const int result = sqlite3_bind_int64(statement_.get(), ++bound_, value);
  if (failed_ == SQLITE_OK) failed_ = result;
  return *this;
}

Statement& Statement::bind(double value) {
  const int result = sqlite3_bind_double(statement_.get(), ++bound_, value);
  if (failed_ == SQLITE_OK) failed_ = result;
  return *this;
}

Statement& Statement::bind_known(double value) { return bind(value != 0 ? std::optional(value) : std::nullopt); }

Statement& Statement::bind(std::optional<double> value) {
  if (value) return bind(*value);
  const int result = sqlite3_bind_null(statement_.get(), ++bound_);
  if (failed_ == SQLITE_OK) failed_ = result;
  return *this;
}

Result<bool> Statement::step() {
  if (failed_ != SQLITE_OK) return internal_error(sqlite3_errstr(failed_));
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  Status status = result == SQLITE_DONE ? Status() : failure(sqlite3_db_handle(statement_.get()));
  sqlite3_reset(statement_.get());
  bound_ = 0;
  if (!status.ok()) return status;
  return false;
}

std::optional<double> Statement::optional_number(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return std::nullopt;
  return number(column);
}

std::string Statement::text(int column) const {
  const unsigned char* const text = sqlite3_column_text(statement_.get(), column);
  if (text == nullptr) return {};
  return {reinterpret_cast<const char*>(text),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<Database> Database::open(const std::string& path, Access access) {
  const auto connect = [](const std::string& name, int flags) -> Result<Database> {
    sqlite3* connection = nullptr;
    const int result = sqlite3_open_v2(name.c_str(), &connection, flags, nullptr);
    Database database(connection);  // also of a failed open: it has the message
    if (connection == nullptr) return Status{StatusCode::kOutOfMemory, "no memory for a database"};
    if (result != SQLITE_OK) return failure(connection);
    sqlite3_busy_timeout(connection, kBusyMs);
    return database;
  };
  if (access != Access::kRead)
    return connect(path, SQLITE_OPEN_READWRITE | (access == Access::kCreate ? SQLITE_OPEN_CREATE : 0));
  auto database = connect(path, SQLITE_OPEN_READONLY);
  if (database.ok() && database->integer("PRAGMA schema_version").ok()) return database;
  auto unchanged = connect(unchanging(path), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
  return unchanged.ok() && unchanged->integer("PRAGMA schema_version").ok() ? std::move(unchanged)
                                                                            : std::move(database);
}

Status Database::run(const char* sql) {
  return sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK ? Status()
                                                                                      : failure(connection_.get());
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v2(connection_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (result != SQLITE_OK) return failure(connection_.get());
  return Statement(statement);
}

Result<std::int64_t> Database::integer(std::string_view sql) {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  const auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return internal_error("no row");
  return statement->integer(0);
}

Result<Transaction> Transaction::begin(Database& database) {
  if (Status status = database.run("BEGIN IMMEDIATE"); !status.ok()) return status;
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr) (void)database_->run("ROLLBACK");
}

Status Transaction::commit() {
  Status status = database_->run("COMMIT");
  if (status.ok()) database_ = nullptr;
  return status;
}

}  // namespace farwarp::results
