#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operation.h"

namespace heddle::conformance {

/// Where kernels come from. Another backend is one more line in backends().
struct Backend {
  std::string_view name;
  Kernel (*find)(std::string_view operation);
};
std::span<const Backend> backends();

/// Instruction sets that this processor has and that kernels are compiled for, as Highway's bits; the best first, the
/// baseline last.
std::vector<std::int64_t> instruction_sets();
std::string instruction_set_name(std::int64_t set);
/// Whether a multiply-add is rounded once. Highway's portable code, for processors older than AVX2, rounds it twice.
bool fuses_multiply_adds(std::int64_t set);
/// Kernels use no better instruction set than this while the object lives.
class InstructionSetLimit {
 public:
  explicit InstructionSetLimit(std::int64_t set);
  ~InstructionSetLimit();
  InstructionSetLimit(const InstructionSetLimit&) = delete;
  InstructionSetLimit& operator=(const InstructionSetLimit&) = delete;
};

/// Memory of one operand, with a guard before and behind it.
class Memory {
 public:
  Memory(const Operand& operand, bool is_input);
  void* data() { return bytes_.data() + offset_; }
  std::span<const std::byte> contents() const { return {bytes_.data() + offset_, size_}; }
  bool guards_intact() const;
  /// Under the address sanitizer, reading a guard is an error from here on, or is allowed again. Else nothing.
  void set_guards_readable(bool readable) const;
  /// Element i as a double.
  double element(std::int64_t i) const;

 private:
  static constexpr std::size_t kGuard = 128;
  DType dtype_;
  std::size_t size_, offset_;
  std::vector<std::byte> bytes_;
};

/// Everything a call has left behind.
struct Execution {
  std::vector<Memory> in, out;  ///< an aliased output's contents lie in `out`
  std::string fault;            ///< "" or what was written that should not have been
};

/// Runs a case with memory of its own for each operand, but for `aliases`.
Execution execute(Kernel kernel, const Case& c, int threads, std::span<const Alias> aliases = {});

/// Seconds of the fastest of several runs with warm memory.
double fastest_seconds(Kernel kernel, const Case& c, int threads);

/// "" if the outputs agree with the reference within its error bounds, else the first that does not.
std::string compare(const Case& c, const Execution& execution, const Outputs& reference);
/// Whether all instruction sets that fuse multiply-adds give a case the same bits. The attention of one query over a
/// cache, for generation, adds up as many parts as a vector has.
bool has_one_result(const Operation& operation, const Case& c);
/// "" if compared outputs have the same bits.
std::string compare_bits(const Case& c, const Execution& a, const Execution& b);

}  // namespace heddle::conformance
