// Ceilings as JSON and as text.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "planner/ceilings.h"

namespace heddle {
namespace {

// Name in the document and member, in one list for writing and reading.
constexpr std::array<std::pair<const char*, double ThreadCeilings::*>, 8> kThreadRates = {
    {{"multiply_add_flops_per_second", &ThreadCeilings::flops},
     {"bf16_multiply_add_flops_per_second", &ThreadCeilings::bf16_flops},
     {"read_bytes_per_second", &ThreadCeilings::read},
     {"write_bytes_per_second", &ThreadCeilings::write},
     {"copy_bytes_per_second", &ThreadCeilings::copy},
     {"triad_bytes_per_second", &ThreadCeilings::triad},
     {"update_bytes_per_second", &ThreadCeilings::update},
     {"adamw_bytes_per_second", &ThreadCeilings::adamw}}};

/// Reads members of an object, and names the object's place where one is wrong.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("{}: expected an object", where_);
  }
  double rate(const char* key) const {
    const Json& value = member(key);
    if (!value.is_number() || !(value.get<double>() > 0)) fail("{}: {} is no positive number", where_, key);
    return value.get<double>();
  }
  std::int64_t count(const char* key) const {
    const Json& value = member(key);
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1) fail("{}: {} is no positive integer", where_, key);
    return value.get<std::int64_t>();
  }
  std::string text(const char* key) const {
    const Json& value = member(key);
    if (!value.is_string()) fail("{}: {} is no text", where_, key);
    return value.get<std::string>();
  }
  bool truth(const char* key) const {
    const Json& value = member(key);
    if (!value.is_boolean()) fail("{}: {} is neither true nor false", where_, key);
    return value.get<bool>();
  }
  const Json& list(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) fail("{}: {} is no list", where_, key);
    return value;
  }
  const Json& member(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail("{}: {} is missing", where_, key);
    return *found;
  }

 private:
  const Json& object_;
  std::string where_;
};

std::string giga(double rate) { return fmt::format("{:.1f}", rate * 1e-9); }

}  // namespace

Json ceilings_document(const Ceilings& ceilings) {
  Json document = {{"cpu", ceilings.cpu}, {"cores", ceilings.cores}, {"measured_at", ceilings.measured_at}};
  Json& by_threads = document["by_threads"] = Json::array();
  for (const auto& entry : ceilings.by_threads) {
    Json rates = {{"threads", entry.threads}};
    for (const auto& [name, member] : kThreadRates) rates[name] = entry.*member;
    by_threads.push_back(std::move(rates));
  }
  Json& products = document["products"] = Json::array();
  for (const auto& product : ceilings.products) {
    products.push_back({{"dtype", torch_name(product.dtype)},
                        {"rows", product.rows},
                        {"inputs", product.inputs},
                        {"outputs", product.outputs},
                        {"forward_flops_per_second", product.forward},
                        {"dinput_flops_per_second", product.dinput},
                        {"dweight_flops_per_second", product.dweight}});
  }
  if (const auto& disk = ceilings.disk) {
    Json by_depth = Json::array();
    for (const auto& entry : disk->by_depth) {
      by_depth.push_back({{"request_bytes", entry.request_bytes},
                          {"depth", entry.depth},
                          {"write_bytes_per_second", entry.write},
                          {"read_bytes_per_second", entry.read}});
    }
    document["disk"] = {{"folder", disk->folder},
                        {"file_bytes", disk->file_bytes},
                        {"direct", disk->is_direct},
                        {"by_depth", std::move(by_depth)}};
  }
  Json& collectives = document["collectives"] = Json::array();
  for (const auto& entry : ceilings.collectives) {
    collectives.push_back({{"name", entry.name},
                           {"ranks", entry.ranks},
                           {"bytes", entry.bytes},
                           {"bytes_per_second", entry.bytes_per_second},
                           {"latency_seconds", entry.latency}});
  }
  return document;
}

Ceilings read_ceilings(const Json& document, const std::string& path) {
  const Reader root(document, path);
  Ceilings ceilings;
  ceilings.cpu = root.text("cpu");
  ceilings.cores = static_cast<int>(root.count("cores"));
  ceilings.measured_at = root.text("measured_at");
  for (const auto& item : root.list("by_threads")) {
    const Reader reader(item, path + ": by_threads");
    auto& entry = ceilings.by_threads.emplace_back();
    entry.threads = static_cast<int>(reader.count("threads"));
    for (const auto& [name, member] : kThreadRates) entry.*member = reader.rate(name);
  }
  for (const auto& item : root.list("products")) {
    const Reader reader(item, path + ": products");
    const bool is_bf16 = reader.text("dtype") == torch_name(DType::bf16);
    ceilings.products.push_back({is_bf16 ? DType::bf16 : DType::f32, reader.count("rows"), reader.count("inputs"),
                                 reader.count("outputs"), reader.rate("forward_flops_per_second"),
                                 reader.rate("dinput_flops_per_second"), reader.rate("dweight_flops_per_second")});
  }
  if (document.contains("disk")) {
    const Reader reader(root.member("disk"), path + ": disk");
    auto& disk = ceilings.disk.emplace();
    disk.folder = reader.text("folder");
    disk.file_bytes = reader.count("file_bytes");
    disk.is_direct = reader.truth("direct");
    for (const auto& item : reader.list("by_depth")) {
      const Reader entry(item, path + ": disk: by_depth");
      disk.by_depth.push_back({entry.count("request_bytes"), static_cast<int>(entry.count("depth")),
                               entry.rate("write_bytes_per_second"), entry.rate("read_bytes_per_second")});
    }
  }
  for (const auto& item : root.list("collectives")) {
    const Reader reader(item, path + ": collectives");
    ceilings.collectives.push_back({reader.text("name"), static_cast<int>(reader.count("ranks")), reader.count("bytes"),
                                    reader.rate("bytes_per_second"), reader.rate("latency_seconds")});
  }
  return ceilings;
}

std::string ceilings_text(const Ceilings& ceilings) {
  std::string text = fmt::format("{}, {} core{}\n\n", ceilings.cpu, ceilings.cores, ceilings.cores == 1 ? "" : "s");
  text += fmt::format("{:34}{:>12}{:>10}{:>60}\n", "", "GFLOP/s", "", "memory, GB/s");
  text += fmt::format("{:34}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "threads", "multiply-add", "of bf16",
                      "read", "write", "copy", "triad", "update", "adamw");
  for (const auto& c : ceilings.by_threads) {
    text += fmt::format("{:<34}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", c.threads, giga(c.flops),
                        giga(c.bf16_flops), giga(c.read), giga(c.write), giga(c.copy), giga(c.triad), giga(c.update),
                        giga(c.adamw));
  }
  text += fmt::format("\n{:34}{:>12}{:>10}{:>10}   GFLOP/s\n", "products", "x·Wᵀ", "dx", "dW");
  for (const auto& p : ceilings.products) {
    text += fmt::format("{:34}{:>12}{:>10}{:>10}\n",
                        fmt::format("{} [{}, {}] x [{}, {}]", p.dtype == DType::bf16 ? "bf16" : "fp32", p.rows,
                                    p.inputs, p.outputs, p.inputs),
                        giga(p.forward), giga(p.dinput), giga(p.dweight));
  }
  if (const auto& disk = ceilings.disk) {
    text += fmt::format("\n{:34}{:>12}{:>10}   GB/s\n", "disk", "write+sync", "read");
    for (const auto& entry : disk->by_depth) {
      text += fmt::format(
          "{:34}{:>12.2f}{:>10.2f}\n",
          fmt::format("{} at a time of {}", entry.depth, format_bytes(static_cast<std::uint64_t>(entry.request_bytes))),
          entry.write * 1e-9, entry.read * 1e-9);
    }
    text += fmt::format("a file of {} in {}, {}\n", format_bytes(static_cast<std::uint64_t>(disk->file_bytes)),
                        disk->folder,
                        disk->is_direct ? "past the page cache (O_DIRECT)"
                                        : "through the page cache: no O_DIRECT there, reads are those of memory");
  }
  text += fmt::format("\n{:34}{:>12}{:>10}\n", "collectives over threads", "GB/s", "latency");
  for (const auto& entry : ceilings.collectives) {
    text += fmt::format(
        "{:34}{:>12}{:>7.1f} us\n",
        fmt::format("{}, {} ranks, {}", entry.name, entry.ranks, format_bytes(static_cast<std::uint64_t>(entry.bytes))),
        giga(entry.bytes_per_second), entry.latency * 1e6);
  }
  return text;
}

}  // namespace heddle
