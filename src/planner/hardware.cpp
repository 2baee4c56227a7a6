#include "planner/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "planner/ceilings.h"
#include "tiers/available_memory.h"

namespace heddle {
namespace {

/// A row of the table: GiB, TFLOP/s, TFLOP/s, GB/s, GB/s, GB/s.
struct Row {
  std::string_view name;
  double total, half, single, memory, host_link, peer_link;
  bool has_bf16 = true;
};

// Memory: the "total capacity" that PyTorch's out-of-memory message prints (the total of cudaMemGetInfo or
// hipMemGetInfo), as users of these devices report it; drivers differ by up to 0.2 GiB. Rates: the vendors' data sheets
// and white papers, dense, products with sums in fp32: NVIDIA T4, V100 (SXM2), A100 (SXM4), H100 (SXM5), H200 (SXM),
// Blackwell (HGX B200: 180 GB, 7.7 TB/s; other boards reach 8), GA102, AD102 and Blackwell RTX architecture; AMD
// Instinct MI300X. Host link: PCIe 3, 4 or 5 at 16 lanes. Peer link, one way: NVLink 2 to 5 (6, 12, 18 and 18 links of
// 25, 25, 25 and 50 GB/s) or Infinity Fabric (7 links of 64 GB/s), else PCIe; an RTX 3090 without its NVLink bridge.
constexpr double kPcie3 = 15.75, kPcie4 = 31.5, kPcie5 = 63.0;
constexpr std::array kTable = {
    Row{"T4", 14.75, 65, 8.1, 320, kPcie3, kPcie3, false},
    Row{"V100-16GB", 15.77, 125, 15.7, 900, kPcie3, 150, false},
    Row{"V100-32GB", 31.73, 125, 15.7, 900, kPcie3, 150, false},
    Row{"RTX 3090", 23.69, 71, 35.6, 936, kPcie4, kPcie4},
    Row{"RTX 4090", 23.64, 165.2, 82.6, 1008, kPcie4, kPcie4},
    Row{"RTX 5090", 31.37, 209.5, 104.8, 1792, kPcie5, kPcie5},
    Row{"A100-40GB", 39.38, 312, 19.5, 1555, kPcie4, 300},
    Row{"A100-80GB", 79.14, 312, 19.5, 2039, kPcie4, 300},
    Row{"H100", 79.11, 989, 67, 3350, kPcie5, 450},
    Row{"H200", 139.72, 989, 67, 4800, kPcie5, 450},
    Row{"B200", 178.35, 2250, 75, 7700, kPcie5, 900},
    Row{"MI300X", 191.69, 1307, 163.4, 5300, kPcie5, 448},
};
constexpr std::string_view kCpu = "cpu";

/// The driver's context and the kernels' code, which a process pays before its first byte of data.
constexpr double kContextBytes = 0x1p29;
// Assumed for every machine: a server's 400 GB/s of memory and two drives of 6 GB/s, shared by eight devices.
constexpr double kHostBandwidth = 50e9, kNvmeBandwidth = 1.5e9;

Device device_of(const Row& row) {
  return {.name = std::string(row.name),
          .memory = static_cast<std::uint64_t>(row.total * 0x1p30 - kContextBytes),
          .half_flops = row.half * 1e12,
          .float_flops = row.single * 1e12,
          .memory_bandwidth = row.memory * 1e9,
          .host_link = row.host_link * 1e9,
          .peer_link = row.peer_link * 1e9,
          .host_bandwidth = kHostBandwidth,
          .nvme_bandwidth = kNvmeBandwidth,
          .has_bf16 = row.has_bf16};
}

std::string normalized(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> list;
  list.reserve(kTable.size() + 1);
  for (const Row& row : kTable) list.push_back(row.name);
  list.push_back(kCpu);
  return list;
}

std::string joined(const std::vector<std::string_view>& list) {
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == list.size() ? " or " : ", ", list[i]);
  }
  return text;
}

/// The number before the x of "4xA100-40GB", which is cut off `text`; nothing where there is none.
std::optional<int> take_count(std::string_view& text) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits == text.size() || (text[digits] != 'x' && text[digits] != 'X')) return std::nullopt;
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, count);
  if (error != std::errc() || count == 0) {
    fail("--hardware {}: {} is no number of devices; expected 1 or more", text, text.substr(0, digits));
  }
  text.remove_prefix(digits + 1);
  return count;
}

/// Whether `key` is one or several whole words of a name, side by side: "a100" of "A100-40GB", but not "a10".
bool has_words(std::string_view known, const std::string& key) {
  std::vector<std::string> words(1);
  for (const char c : known) {
    if (c == ' ' || c == '-') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  for (std::size_t first = 0; first < words.size(); ++first) {
    std::string run;
    for (std::size_t last = first; last < words.size(); ++last) {
      run += normalized(words[last]);
      if (run == key) return true;
    }
  }
  return false;
}

[[noreturn]] void refuse(std::string_view name) {
  const std::string key = normalized(name);
  std::vector<std::string_view> longer;
  std::vector<std::string> keys;
  for (const auto known : names()) {
    keys.push_back(normalized(known));
    if (has_words(known, key)) longer.push_back(known);
  }
  if (longer.size() > 1) fail("--hardware {} may be several; expected {}", name, joined(longer));
  if (longer.size() == 1) fail("--hardware {} is not known; did you mean {}?", name, longer.front());
  const std::vector<std::string_view> candidates(keys.begin(), keys.end());
  const std::string nearest = nearest_name(key, candidates);
  const auto at = static_cast<std::size_t>(std::ranges::find(keys, nearest) - keys.begin());
  if (at < keys.size())
    fail("--hardware {} is not known; did you mean {}? expected {}", name, names()[at], joined(names()));
  fail("--hardware {} is not known; expected {}", name, joined(names()));
}

}  // namespace

Hardware parse_hardware(std::string_view text) {
  Hardware hardware;
  hardware.devices = take_count(text).value_or(0);
  const std::string key = normalized(text);
  if (key == kCpu) {
    hardware.device = cpu_device(std::max(1, hardware.devices));
    return hardware;
  }
  const auto row = std::ranges::find_if(kTable, [&](const Row& known) { return normalized(known.name) == key; });
  if (row == kTable.end()) refuse(text);
  hardware.device = device_of(*row);
  return hardware;
}

Device cpu_device(int ranks, const ThreadCeilings& measured, const Ceilings* kept) {
  // A plain roofline has one rate of memory: that of a copy, which reads as much as it writes.
  Device device = {.name = std::string(kCpu),
                   .memory = available_memory() / static_cast<std::uint64_t>(ranks),
                   .half_flops = measured.bf16_flops / ranks,
                   .float_flops = measured.flops / ranks,
                   .memory_bandwidth = measured.copy / ranks,
                   .host_link = measured.copy / ranks,
                   .peer_link = measured.copy / ranks,
                   .host_bandwidth = measured.copy / ranks,
                   .nvme_bandwidth = kNvmeBandwidth,
                   .is_host = true};
  if (kept == nullptr) return device;
  for (const CollectiveCeiling& collective : kept->collectives) {
    // Of a whole tensor each rank receives all but its own part, of which a roofline knows the bytes and asks the rate.
    if (collective.name != "all_gather") continue;
    device.peer_link = collective.bytes_per_second * (collective.ranks - 1) / collective.ranks;
  }
  if (kept->disk && kept->disk->is_direct && !kept->disk->by_depth.empty()) {
    const DiskCeiling& deepest = kept->disk->by_depth.back();
    device.nvme_bandwidth = std::min(deepest.read, deepest.write) / ranks;
  }
  return device;
}

Device nominal_cpu() {
  // Of a core of a server: 16 fp32 multiply-adds at 2.5 GHz, of which kernels reach some three quarters; its share of
  // the memory, copied at some 8 GB/s. What is decided depends on their ratios alone.
  constexpr double kFlops = 60e9, kCopied = 8e9;
  return {.name = std::string(kCpu),
          .half_flops = kFlops,
          .float_flops = kFlops,
          .memory_bandwidth = kCopied,
          .host_link = kCopied,
          .peer_link = kCopied,
          .host_bandwidth = kCopied,
          .nvme_bandwidth = kNvmeBandwidth,
          .is_host = true};
}

Device cpu_device(int ranks) {
  const auto cached = cached_ceilings();
  const ThreadCeilings* kept = cached ? cached->of_threads(available_cores()) : nullptr;
  return cpu_device(ranks, kept != nullptr ? *kept : measure_threads(available_cores(), 0.05),
                    cached ? &*cached : nullptr);
}

}  // namespace heddle
