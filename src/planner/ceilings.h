#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "formats/json.h"
#include "tiers/arena.h"

namespace heddle {

/// Bytes that an operation moves, by what they cost.
struct MemoryTraffic {
  double read = 0;     ///< and not written
  double written = 0;  ///< and not read: the line is fetched all the same
  double updated = 0;  ///< read, and written where they lay; both ways counted
  double total() const { return read + written + updated; }
};

/// What some threads together reach. Rates are per second; bytes are those that a program asks for, so a line that is
/// fetched only to be overwritten counts once.
struct ThreadCeilings {
  int threads = 1;
  double flops = 0;       ///< fp32 multiply-adds on registers, 2 FLOPs each
  double bf16_flops = 0;  ///< the same of bf16 factors, by the processor's instruction for them if it has one
  // Memory by streams, bytes: sum of x; y = s; y = x; z = x + s y; x = s x; and AdamW's p, g, m, v -> p, m, v.
  double read = 0, write = 0, copy = 0, triad = 0, update = 0, adamw = 0;

  double compute_seconds(double operations, bool in_bf16 = false) const {
    return operations / (in_bf16 ? bf16_flops : flops);
  }
  double memory_seconds(const MemoryTraffic& traffic) const {
    return traffic.read / read + traffic.written / write + traffic.updated / update;
  }
};

/// Products of [rows, inputs] with a weight [outputs, inputs], FLOP/s of all threads.
struct ProductCeiling {
  DType dtype = DType::f32;  ///< of both; dW is fp32
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  double forward = 0;  ///< x·Wᵀ
  double dinput = 0;   ///< dy·W
  double dweight = 0;  ///< dyᵀ·x
};

/// Large files in one folder, bytes per second of requests of one size, `depth` of them under way at once.
struct DiskCeiling {
  std::int64_t request_bytes = 0;
  int depth = 1;
  double write = 0;  ///< sync included
  double read = 0;
};
struct DiskCeilings {
  std::string folder;
  std::int64_t file_bytes = 0;
  bool is_direct = false;  ///< O_DIRECT; else the page cache serves, and reads are those of memory
  std::vector<DiskCeiling> by_depth;
};

/// A collective over threads as ranks: bytes of the whole tensor per second, and seconds for eight bytes.
struct CollectiveCeiling {
  std::string name;
  int ranks = 0;
  std::int64_t bytes = 0;
  double bytes_per_second = 0;
  double latency = 0;
};

/// What this machine can do at most, as measured.
struct Ceilings {
  std::string cpu;                         ///< model, as the system names it
  int cores = 0;                           ///< that the process may use
  std::string measured_at;                 ///< UTC, ISO 8601
  std::vector<ThreadCeilings> by_threads;  ///< of one thread and of as many as cores
  std::vector<ProductCeiling> products;
  std::optional<DiskCeilings> disk;
  std::vector<CollectiveCeiling> collectives;

  /// Those of that number of threads; null where they were not measured.
  const ThreadCeilings* of_threads(int threads) const;
};

/// Says what is measured next.
using CeilingProgress = std::function<void(std::string_view)>;

ThreadCeilings measure_threads(int threads, double seconds_each);

/// The stream of ThreadCeilings::read, for who times it in turns with something else. Memory is taken, and touched,
/// when it is made.
class StreamingRead {
 public:
  StreamingRead();
  void pass() const;  ///< by threads() threads
  std::size_t bytes() const { return arena_.bytes(); }

 private:
  Arena arena_;
};
std::vector<ProductCeiling> measure_products();
DiskCeilings measure_disk(const std::filesystem::path& folder);
std::vector<CollectiveCeiling> measure_collectives(int ranks);
/// All of them, in less than 20 s on a quiet machine; files are made in `folder` and removed.
Ceilings measure_ceilings(const std::filesystem::path& folder, const CeilingProgress& progress);

Json ceilings_document(const Ceilings& ceilings);
/// Throws Error naming `path` and the key.
Ceilings read_ceilings(const Json& document, const std::string& path);
std::string ceilings_text(const Ceilings& ceilings);

/// Where the ceilings of this processor and number of cores are kept for other commands: a file beside the token
/// caches; empty where there is no such folder.
std::filesystem::path ceilings_cache_path();
/// What an earlier `heddle bench` measured here; nothing where it did not, or where the file cannot be read.
std::optional<Ceilings> cached_ceilings();
/// Failing to write is a warning.
void cache_ceilings(const Ceilings& ceilings);

/// The processor's name, from /proc/cpuinfo; "unknown" where it has none.
std::string cpu_model();

}  // namespace heddle
