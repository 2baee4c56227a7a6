#include "data/parquet/row_json.h"

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/result.h>
#include <arrow/scalar.h>
#include <arrow/util/float16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

namespace heddle {
namespace {

template <typename Values>
const Values& as(const arrow::Array& values) {
  return static_cast<const Values&>(values);
}

/// The bytes of a text, if the values are texts. Old writers leave texts unmarked: bytes are taken for one.
std::optional<std::string_view> text_at(const arrow::Array& values, std::int64_t index) {
  switch (values.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY: return as<arrow::BinaryArray>(values).GetView(index);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY: return as<arrow::LargeBinaryArray>(values).GetView(index);
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW: return as<arrow::BinaryViewArray>(values).GetView(index);
    case arrow::Type::FIXED_SIZE_BINARY: return as<arrow::FixedSizeBinaryArray>(values).GetView(index);
    default: return std::nullopt;
  }
}

template <typename Values>
bool append_integer(const arrow::Array& values, std::int64_t index, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{}", as<Values>(values).Value(index));
  return true;
}

/// With a point or an exponent, so that it reads back as no integer.
bool append_double(double value, std::string& out) {
  if (!std::isfinite(value)) return false;
  const std::size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", value);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
  return true;
}

bool append_text(std::string_view text, std::string& out) {
  append_json_string(text, out);
  return true;
}

/// A column that holds JSON documents. What is none stays a text, for whoever reads the row to refuse.
bool append_document(std::string_view text, std::string& out) {
  if (!nlohmann::json::accept(text)) return append_text(text, out);
  const std::size_t begin = out.size();
  out += text;
  std::replace(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), '\n', '\r');  // one row stays one line
  return true;
}

/// Takes the place of a comma behind the last part, if there is one.
void close(char bracket, std::string& out) {
  if (out.back() == ',') out.pop_back();
  out += bracket;
}

template <typename Values>
bool append_list(const arrow::Array& lists, std::int64_t index, std::string& out) {
  const auto& list = as<Values>(lists);
  const arrow::Array& values = *list.values();
  const std::int64_t begin = list.value_offset(index), end = begin + list.value_length(index);
  out += '[';
  for (std::int64_t i = begin; i < end; ++i) {
    if (!append_json(values, i, out)) out += "null";
    out += ',';
  }
  close(']', out);
  return true;
}

bool append_struct(const arrow::Array& structs, std::int64_t index, std::string& out) {
  out += '{';
  append_members(as<arrow::StructArray>(structs), index, out);
  close('}', out);
  return true;
}

/// The keys of an object are texts, whatever they are here.
bool append_map(const arrow::Array& maps, std::int64_t index, std::string& out) {
  const auto& map = as<arrow::MapArray>(maps);
  out += '{';
  for (std::int64_t i = map.value_offset(index); i < map.value_offset(index + 1); ++i) {
    const std::size_t begin = out.size();
    append_json(*map.keys(), i, out);
    if (out[begin] != '"') {
      const std::string key = out.substr(begin);
      out.resize(begin);
      append_json_string(key, out);
    }
    out += ':';
    if (append_json(*map.items(), i, out)) {
      out += ',';
    } else {
      out.resize(begin);
    }
  }
  close('}', out);
  return true;
}

bool append_of_dictionary(const arrow::Array& indices, std::int64_t index, std::string& out) {
  const auto& encoded = as<arrow::DictionaryArray>(indices);
  const std::int64_t at = encoded.GetValueIndex(index);
  if (at < 0 || at >= encoded.dictionary()->length()) throw std::runtime_error("an index lies outside its dictionary");
  return append_json(*encoded.dictionary(), at, out);
}

bool append_extension(const arrow::Array& values, std::int64_t index, std::string& out) {
  const arrow::Array& storage = *as<arrow::ExtensionArray>(values).storage();
  const auto& type = static_cast<const arrow::ExtensionType&>(*values.type());
  const auto text = text_at(storage, index);
  if (text && !storage.IsNull(index) && type.extension_name() == "arrow.json") return append_document(*text, out);
  return append_json(storage, index, out);
}

bool append_as_text(const arrow::Array& values, std::int64_t index, std::string& out) {
  const auto scalar = values.GetScalar(index);
  if (!scalar.ok()) throw std::runtime_error(scalar.status().message());
  return append_text((*scalar)->ToString(), out);
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out += text.substr(copied, i - copied);
    copied = i + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    }
  }
  out += text.substr(copied);
  out += '"';
}

bool append_json(const arrow::Array& values, std::int64_t index, std::string& out) {
  if (values.IsNull(index)) return false;
  if (const auto text = text_at(values, index)) return append_text(*text, out);
  switch (values.type_id()) {
    case arrow::Type::NA: return false;
    case arrow::Type::BOOL: out += as<arrow::BooleanArray>(values).Value(index) ? "true" : "false"; return true;
    case arrow::Type::INT8: return append_integer<arrow::Int8Array>(values, index, out);
    case arrow::Type::INT16: return append_integer<arrow::Int16Array>(values, index, out);
    case arrow::Type::INT32: return append_integer<arrow::Int32Array>(values, index, out);
    case arrow::Type::INT64: return append_integer<arrow::Int64Array>(values, index, out);
    case arrow::Type::UINT8: return append_integer<arrow::UInt8Array>(values, index, out);
    case arrow::Type::UINT16: return append_integer<arrow::UInt16Array>(values, index, out);
    case arrow::Type::UINT32: return append_integer<arrow::UInt32Array>(values, index, out);
    case arrow::Type::UINT64: return append_integer<arrow::UInt64Array>(values, index, out);
    case arrow::Type::HALF_FLOAT:
      return append_double(arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(values).Value(index)).ToDouble(),
                           out);
    case arrow::Type::FLOAT: return append_double(as<arrow::FloatArray>(values).Value(index), out);
    case arrow::Type::DOUBLE: return append_double(as<arrow::DoubleArray>(values).Value(index), out);
    case arrow::Type::LIST: return append_list<arrow::ListArray>(values, index, out);
    case arrow::Type::LARGE_LIST: return append_list<arrow::LargeListArray>(values, index, out);
    case arrow::Type::FIXED_SIZE_LIST: return append_list<arrow::FixedSizeListArray>(values, index, out);
    case arrow::Type::LIST_VIEW: return append_list<arrow::ListViewArray>(values, index, out);
    case arrow::Type::LARGE_LIST_VIEW: return append_list<arrow::LargeListViewArray>(values, index, out);
    case arrow::Type::STRUCT: return append_struct(values, index, out);
    case arrow::Type::MAP: return append_map(values, index, out);
    case arrow::Type::DICTIONARY: return append_of_dictionary(values, index, out);
    case arrow::Type::EXTENSION: return append_extension(values, index, out);
    default: return append_as_text(values, index, out);
  }
}

void append_members(const arrow::StructArray& structs, std::int64_t index, std::string& out) {
  for (int i = 0; i < structs.num_fields(); ++i) {
    const std::size_t begin = out.size();
    append_json_string(structs.struct_type()->field(i)->name(), out);
    out += ':';
    if (append_json(*structs.field(i), index, out)) {
      out += ',';
    } else {
      out.resize(begin);
    }
  }
}

}  // namespace heddle
