// The tables of a database of results, and how older ones become present ones.
#pragma once

#include <span>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/results/database.h"

namespace farwarp::results {

/// The SQL that leads from each version to the next; the first one begins with an empty database. `PRAGMA user_version`
/// is the number of those that were run. What was released is never edited: a change of the tables is one more.
std::span<const char* const> schema_steps();

/// Opens a database of results, and brings an older one up to date, also for kRead. kInvalidArgument says what else is
/// there: "is a pipe; allowed: a regular file", "is of a newer farwarp: ...", "is another program's database", or
/// SQLite's message.
Result<Database> open_results(const std::string& path, Database::Access access);

}  // namespace farwarp::results
