#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/tensor_source.h"
#include "cli/tensor_statistics.h"
#include "formats/json.h"
#include "formats/tensor_values.h"

namespace heddle::cli {
namespace {

/// The document on standard output. Texts of a file need not be UTF-8; JSON must.
void print_document(const Json& document) {
  std::printf("%s\n", document.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

Json description(const ListedTensor& tensor) {
  return {{"name", tensor.name}, {"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}};
}

std::string type_and_shape(const ListedTensor& tensor) {
  return fmt::format("{:<8} {:<18}", safetensors_name(tensor.dtype),
                     fmt::format("[{}]", fmt::join(tensor.shape, ", ")));
}

std::optional<Statistics> statistics_of(const TensorSource& source, std::size_t tensor) {
  const DType dtype = source.tensors()[tensor].dtype;
  if (!has_numbers(dtype)) return std::nullopt;
  Statistics statistics;
  std::vector<double> numbers;
  source.for_each_piece(tensor, [&](std::span<const std::byte> bytes, std::int64_t, std::int64_t count) {
    decode_numbers(dtype, bytes, count, numbers);
    statistics.add(numbers);
  });
  return statistics;
}

Json document_of(const std::optional<Statistics>& of) {
  if (!of) return nullptr;
  Json document = {{"nan", of->nan()}, {"infinite", of->infinite()}};
  if (of->count() > 0) {
    document.update({{"min", of->min()}, {"max", of->max()}, {"mean", of->mean()}, {"std", of->deviation()}});
  }
  return document;
}

std::string text_of(const std::optional<Statistics>& of) {
  if (!of) return " (no values shown of this type)";
  std::string text;
  if (of->count() > 0) {
    text = fmt::format(" min {:<11.5g} max {:<11.5g} mean {:<11.4g} std {:<10.4g}", of->min(), of->max(), of->mean(),
                       of->deviation());
  }
  if (of->nan() > 0) text += fmt::format(" {} NaN", of->nan());
  if (of->infinite() > 0) text += fmt::format(" {} infinite", of->infinite());
  return text;
}

Json metadata_of(const GgufMetadata& metadata) {
  Json document = Json::object();
  for (const auto& [key, value] : metadata.entries()) {
    // emplace_back: a look-up for each key would take time in the square of their number.
    document.get_ref<Json::object_t&>().emplace_back(key,
                                                     std::visit([](const auto& held) { return Json(held); }, value));
  }
  return document;
}

/// The indices to list: all, or the one that was named.
std::vector<std::size_t> chosen(const TensorSource& source, const std::string& name) {
  std::vector<std::size_t> indices;
  if (name.empty()) {
    for (std::size_t i = 0; i < source.tensors().size(); ++i) indices.push_back(i);
    return indices;
  }
  indices.push_back(source.find(name));
  if (indices.front() == source.tensors().size()) fail("{}: has no tensor {}", source.path(), text_excerpt(name));
  return indices;
}

void list_as_json(const TensorSource& source, const std::string& name, bool with_statistics) {
  Json document = {{"format", source.format()}};
  if (source.metadata() != nullptr) document["metadata"] = metadata_of(*source.metadata());
  Json tensors = Json::array();
  for (const std::size_t i : chosen(source, name)) {
    tensors.push_back(description(source.tensors()[i]));
    if (with_statistics) tensors.back()["statistics"] = document_of(statistics_of(source, i));
  }
  document["tensors"] = std::move(tensors);
  print_document(document);
}

void list_as_text(const TensorSource& source, const std::string& name, bool with_statistics) {
  if (source.metadata() != nullptr && name.empty()) {
    for (const auto& [key, value] : source.metadata()->entries()) {
      std::printf("%-44s %s\n", text_excerpt(key).c_str(), gguf_excerpt(value, 70).c_str());
    }
    std::puts("");
  }
  std::uint64_t elements = 0, bytes = 0;
  for (const std::size_t i : chosen(source, name)) {
    const ListedTensor& tensor = source.tensors()[i];
    const std::string statistics = with_statistics ? text_of(statistics_of(source, i)) : "";
    std::printf("%-60s %s%s\n", text_excerpt(tensor.name).c_str(), type_and_shape(tensor).c_str(), statistics.c_str());
    elements += static_cast<std::uint64_t>(tensor.elements());
    bytes += static_cast<std::uint64_t>(storage_bytes(tensor.dtype, tensor.elements()));
  }
  if (name.empty()) {
    std::printf("%s: %zu tensors, %s elements, %s\n", source.format().c_str(), source.tensors().size(),
                format_count(elements).c_str(), format_bytes(bytes).c_str());
  }
}

void print_values(const TensorSource& source, const std::string& name) {
  if (name.empty()) throw UsageError("--values takes --tensor NAME");
  const std::size_t tensor = chosen(source, name).front();
  const ListedTensor& listed = source.tensors()[tensor];
  if (!is_decodable(listed.dtype)) {
    fail("{}: tensor {} has type {}, which is listed but not decoded", source.path(), text_excerpt(name),
         safetensors_name(listed.dtype));
  }
  Json values = Json::array();
  std::vector<double> numbers;
  source.for_each_piece(tensor, [&](std::span<const std::byte> bytes, std::int64_t, std::int64_t count) {
    if (!is_quantized(listed.dtype)) return append_values(listed.dtype, bytes, values);
    decode_numbers(listed.dtype, bytes, count, numbers);
    for (const double number : numbers) values.push_back(number);
  });
  Json document = description(listed);
  document["values"] = std::move(values);
  print_document(document);
}

/// How the bytes of two tensors of one type and shape differ; "" where they do not.
std::string difference_of(const TensorSource& a, std::size_t i, const TensorSource& b, std::size_t j) {
  const DType dtype = a.tensors()[i].dtype;
  std::int64_t differing = 0;
  double greatest = 0;
  bool is_equal = true;
  std::vector<std::byte> other;
  std::vector<double> x, y;
  a.for_each_piece(i, [&](std::span<const std::byte> bytes, std::int64_t begin, std::int64_t count) {
    other.resize(bytes.size());
    b.read(j, begin, count, other);
    if (std::equal(bytes.begin(), bytes.end(), other.begin())) return;
    is_equal = false;
    if (!has_numbers(dtype)) return;
    decode_numbers(dtype, bytes, count, x);
    decode_numbers(dtype, other, count, y);
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (x[k] == y[k] || (std::isnan(x[k]) && std::isnan(y[k]))) continue;
      ++differing;
      greatest = std::max(greatest, std::fabs(x[k] - y[k]));
    }
  });
  if (is_equal) return "";
  if (differing == 0) return "values: other bytes";
  return fmt::format("values: {} of {} differ, at most by {:.4g}", differing, a.tensors()[i].elements(), greatest);
}

Json differences_of(const TensorSource& a, const TensorSource& b) {
  Json differences = Json::array();
  const auto differ = [&](const std::string& name, const std::string& what) {
    differences.push_back({{"name", name}, {"what", what}});
  };
  std::map<std::string_view, std::size_t> in_a, in_b;
  for (std::size_t i = 0; i < a.tensors().size(); ++i) {
    if (!in_a.emplace(a.tensors()[i].name, i).second) a.find(a.tensors()[i].name);  // names the two files
  }
  for (std::size_t j = 0; j < b.tensors().size(); ++j) {
    if (!in_b.emplace(b.tensors()[j].name, j).second) b.find(b.tensors()[j].name);
  }
  for (const ListedTensor& tensor : a.tensors()) {
    const auto other = in_b.find(tensor.name);
    if (other == in_b.end()) {
      differ(tensor.name, "only in " + a.path());
    } else if (const auto& with = b.tensors()[other->second];
               tensor.dtype != with.dtype || tensor.shape != with.shape) {
      differ(tensor.name,
             fmt::format("{} [{}] and {} [{}]", safetensors_name(tensor.dtype), fmt::join(tensor.shape, ", "),
                         safetensors_name(with.dtype), fmt::join(with.shape, ", ")));
    } else if (const auto what = difference_of(a, in_a.at(tensor.name), b, other->second); !what.empty()) {
      differ(tensor.name, what);
    }
  }
  for (const ListedTensor& tensor : b.tensors()) {
    if (!in_a.contains(tensor.name)) differ(tensor.name, "only in " + b.path());
  }
  return differences;
}

void print_differences(const TensorSource& a, const TensorSource& b, bool as_json) {
  const Json differences = differences_of(a, b);
  if (as_json) return print_document({{"equal", differences.empty()}, {"differences", differences}});
  if (differences.empty()) std::puts("equal");
  for (const auto& difference : differences) {
    std::printf("%-60s %s\n", text_excerpt(difference["name"].get<std::string>()).c_str(),
                difference["what"].get<std::string>().c_str());
  }
}

}  // namespace

void add_inspect(CLI::App& program, Outcome&) {
  struct Options {
    std::string path, other, tensor;
    bool values = false, statistics = false, json = false;
  };
  auto* command = program.add_subcommand("inspect", "what a weight file or folder holds; of two, the differences");
  auto options = std::make_shared<Options>();
  command->add_option("PATH", options->path, "safetensors, GGUF or PyTorch file, model folder or checkpoint")
      ->required();
  command->add_option("OTHER", options->other, "the one to compare with");
  command->add_option("--tensor", options->tensor, "this one tensor");
  command->add_flag("--values", options->values, "its values, decoded, as JSON");
  command->add_flag("--stats", options->statistics, "least, greatest and mean value of each tensor, NaN counted");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options] {
    const auto source = open_tensor_source(options->path);
    if (!options->other.empty()) return print_differences(*source, *open_tensor_source(options->other), options->json);
    if (options->values) return print_values(*source, options->tensor);
    options->json ? list_as_json(*source, options->tensor, options->statistics)
                  : list_as_text(*source, options->tensor, options->statistics);
  });
}

}  // namespace heddle::cli
