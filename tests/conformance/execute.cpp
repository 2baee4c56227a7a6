#include "execute.h"

#include "kernels/cpu/targets.h"
// After targets.h, which says what kernels are compiled for.
#include <hwy/highway.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/table.h"

namespace heddle::conformance {
namespace {

constexpr std::array kBackends = {Backend{"cpu", cpu::find_kernel}};
constexpr std::byte kGuardByte{0x5a};
constexpr std::byte kPoison{0xff};  // NaN in every floating type

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// Scratch memory as the engine plans it, for up to `threads`.
class ScratchMemory {
 public:
  explicit ScratchMemory(int threads)
      : bytes_(kSharedScratchBytes + static_cast<std::size_t>(threads) * kScratchBytesPerThread + kAlignment) {
    auto* start = bytes_.data();
    start += (kAlignment - reinterpret_cast<std::uintptr_t>(start) % kAlignment) % kAlignment;
    scratch_ = {.shared = start,
                .per_thread = start + kSharedScratchBytes,
                .shared_bytes = kSharedScratchBytes,
                .bytes_per_thread = kScratchBytesPerThread,
                .threads = threads};
  }
  const Scratch& scratch() const { return scratch_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::vector<std::byte> bytes_;
  Scratch scratch_;
};

const Scratch& scratch_for(int threads) {
  static const std::array<ScratchMemory, 4> memory = {ScratchMemory(1), ScratchMemory(2), ScratchMemory(3),
                                                      ScratchMemory(4)};
  return memory.at(static_cast<std::size_t>(threads - 1)).scratch();
}

void write_element(DType dtype, std::byte* to, double value) {
  if (dtype == DType::i32) {
    const auto number = static_cast<std::int32_t>(value);
    std::memcpy(to, &number, sizeof(number));
  } else if (dtype == DType::u8) {
    *to = static_cast<std::byte>(value);
  } else {
    convert(&value, DType::f64, to, dtype, 1);
  }
}

}  // namespace

std::span<const Backend> backends() { return kBackends; }

std::vector<std::int64_t> instruction_sets() {
  constexpr std::int64_t kCompiled = HWY_TARGETS & ~(HWY_DISABLED_TARGETS);
  std::vector<std::int64_t> sets;
  const std::int64_t available = hwy::SupportedTargets() & kCompiled;
  for (std::int64_t bit = 1; bit > 0 && bit <= HWY_SCALAR; bit <<= 1) {
    if ((available & bit) != 0) sets.push_back(bit);
  }
  return sets;
}

std::string instruction_set_name(std::int64_t set) { return hwy::TargetName(set); }

bool fuses_multiply_adds(std::int64_t set) { return set != HWY_EMU128 && set != HWY_SCALAR; }

InstructionSetLimit::InstructionSetLimit(std::int64_t set) {
  std::int64_t allowed = 0;  // a larger bit is a lesser set
  for (const std::int64_t other : instruction_sets()) {
    if (other >= set) allowed |= other;
  }
  hwy::GetChosenTarget().Update(allowed);
}

InstructionSetLimit::~InstructionSetLimit() { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }

Memory::Memory(const Operand& operand, bool is_input)
    : dtype_(operand.dtype),
      size_(operand.present ? static_cast<std::size_t>(storage_bytes(operand.dtype, operand.shape.elements())) : 0),
      offset_(kGuard),
      bytes_(size_ + 3 * kGuard, kGuardByte) {
  offset_ += (64 - reinterpret_cast<std::uintptr_t>(bytes_.data() + offset_) % 64) % 64;
  if (!operand.stored.empty()) {
    std::copy(operand.stored.begin(), operand.stored.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset_));
  } else if (operand.values.empty()) {
    HEDDLE_CHECK(!is_input || size_ == 0);
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset_), size_, kPoison);
  } else {
    for (std::size_t i = 0; i < operand.values.size(); ++i) {
      write_element(dtype_, bytes_.data() + offset_ + i * dtype_bytes(dtype_), operand.values[i]);
    }
  }
}

bool Memory::guards_intact() const {
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if ((i < offset_ || i >= offset_ + size_) && bytes_[i] != kGuardByte) return false;
  }
  return true;
}

void Memory::set_guards_readable(bool readable) const {
  const std::byte* behind = bytes_.data() + offset_ + size_;
  const std::size_t bytes_behind = bytes_.size() - offset_ - size_;
  if (readable) {
    ASAN_UNPOISON_MEMORY_REGION(bytes_.data(), offset_);
    ASAN_UNPOISON_MEMORY_REGION(behind, bytes_behind);
  } else {
    ASAN_POISON_MEMORY_REGION(bytes_.data(), offset_);
    ASAN_POISON_MEMORY_REGION(behind, bytes_behind);
  }
}

double Memory::element(std::int64_t i) const {
  const std::byte* from = bytes_.data() + offset_ + static_cast<std::size_t>(i) * dtype_bytes(dtype_);
  if (dtype_ == DType::i32) {
    std::int32_t number = 0;
    std::memcpy(&number, from, sizeof(number));
    return number;
  }
  if (dtype_ == DType::u8) return static_cast<double>(std::to_integer<int>(*from));
  double value = 0.0;
  convert(from, dtype_, &value, DType::f64, 1);
  return value;
}

namespace {

/// Memory of a case and views on it. An aliased output's memory is that of both.
struct Operands {
  Execution memory;
  std::vector<TensorView> in, out;

  Operands(const Case& c, std::span<const Alias> aliases) {
    memory.in.reserve(c.in.size());
    memory.out.reserve(c.out.size());
    const auto view = [](const Operand& operand, Memory& bytes) {
      return TensorView{operand.present ? bytes.data() : nullptr, operand.dtype, operand.shape};
    };
    for (const Operand& operand : c.in) {
      memory.in.emplace_back(operand, true);
      in.push_back(view(operand, memory.in.back()));
    }
    for (std::size_t j = 0; j < c.out.size(); ++j) {
      const Operand* contents = &c.out[j];
      for (const Alias& alias : aliases) {
        if (alias.output == j) contents = &c.in[alias.input];
      }
      memory.out.emplace_back(*contents, false);
      out.push_back(view(c.out[j], memory.out.back()));
    }
    for (const Alias& alias : aliases) in[alias.input].data = out[alias.output].data;
  }

  void run(Kernel kernel, const Case& c, int threads) const {
    set_guards_readable(false);
    kernel({.in = in, .out = out, .attributes = c.attributes, .scalars = c.scalars, .scratch = scratch_for(threads)});
    set_guards_readable(true);
  }

 private:
  void set_guards_readable(bool readable) const {
    for (const Memory& operand : memory.in) operand.set_guards_readable(readable);
    for (const Memory& operand : memory.out) operand.set_guards_readable(readable);
  }
};

}  // namespace

Execution execute(Kernel kernel, const Case& c, int threads, std::span<const Alias> aliases) {
  Operands operands(c, aliases);
  const int before = heddle::threads();
  set_threads(threads);
  operands.run(kernel, c, threads);
  set_threads(before);

  Execution execution = std::move(operands.memory);
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (!same_bytes(execution.in[i].contents(), Memory(c.in[i], true).contents())) {
      execution.fault = fmt::format("input {} was changed", i);
    }
    if (!execution.in[i].guards_intact()) execution.fault = fmt::format("memory around input {} was changed", i);
  }
  for (std::size_t j = 0; j < c.out.size(); ++j) {
    if (!execution.out[j].guards_intact()) execution.fault = fmt::format("memory around output {} was changed", j);
  }
  return execution;
}

double fastest_seconds(Kernel kernel, const Case& c, int threads) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 5;
  constexpr double kSeconds = 0.5;
  const Operands operands(c, {});
  double fastest = std::numeric_limits<double>::infinity(), total = 0.0;
  for (int run = 0; run < kRuns || total < kSeconds; ++run) {
    const auto start = Clock::now();
    operands.run(kernel, c, threads);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    fastest = std::min(fastest, seconds);
    total += seconds;
  }
  return fastest;
}

std::string compare(const Case& c, const Execution& execution, const Outputs& reference) {
  // The kernel may associate the same terms in another way than the reference, whose bound then is its own only.
  constexpr double kAssociation = 2.0;
  if (!execution.fault.empty()) return execution.fault;
  HEDDLE_CHECK(reference.size() == c.out.size());
  for (std::size_t j = 0; j < c.out.size(); ++j) {
    if (!c.out[j].present || !c.out[j].compared) continue;
    HEDDLE_CHECK(static_cast<std::int64_t>(reference[j].size()) == c.out[j].shape.elements());
    for (std::int64_t i = 0; i < c.out[j].shape.elements(); ++i) {
      const Real expected = reference[j][static_cast<std::size_t>(i)];
      const double found = execution.out[j].element(i);
      const double error = kAssociation * expected.error;
      const double bound = error + unit_roundoff(c.out[j].dtype) * (std::abs(expected.value) + error) +
                           smallest_subnormal(c.out[j].dtype);
      if (!(std::abs(found - expected.value) <= bound)) {
        return fmt::format("output {} {}, element {}: found {}, expected {} +- {}", j, c.out[j].shape.text(), i, found,
                           expected.value, bound);
      }
    }
  }
  return "";
}

bool has_one_result(const Operation& operation, const Case& c) {
  return operation.name != "attention" || c.attributes.integer("cached") == 0 || c.in[0].shape[0] > 1;
}

std::string compare_bits(const Case& c, const Execution& a, const Execution& b) {
  if (!a.fault.empty() || !b.fault.empty()) return a.fault + b.fault;
  for (std::size_t j = 0; j < c.out.size(); ++j) {
    if (c.out[j].compared && !same_bytes(a.out[j].contents(), b.out[j].contents())) {
      return fmt::format("output {} {} has other bits", j, c.out[j].shape.text());
    }
  }
  return "";
}

}  // namespace heddle::conformance
