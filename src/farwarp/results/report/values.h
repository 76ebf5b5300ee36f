// Reading of JSON that may have been written by anybody, and writing of HTML.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace farwarp::results {

/// Null if `object` has no such member.
const nlohmann::json& member(const nlohmann::json& object, const char* key);
/// nullopt if it is no number.
std::optional<double> number(const nlohmann::json& object, const char* key);
/// Empty if it is no text.
std::string text(const nlohmann::json& object, const char* key);
/// Empty if it is no list.
const nlohmann::json& list(const nlohmann::json& object, const char* key);
bool flag(const nlohmann::json& object, const char* key);

/// "1.23", "12.3", "1234": three digits or more.
std::string shown(double value);
/// Of a member; "-" without a number.
std::string shown(const nlohmann::json& object, const char* key);

/// For the text of an element and for an attribute in quotes.
std::string escaped(std::string_view text);

/// "all-reduce suite on 2 ranks, dtype=bf16".
std::string title_of(const nlohmann::json& suite);
/// " data-figure=..": where in the report's JSON the number is that the element shows. Empty without a number.
std::string figure(const nlohmann::json& object, const std::string& pointer, const char* key);

}  // namespace farwarp::results
