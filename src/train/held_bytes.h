#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "program/passes/passes.h"
#include "program/program.h"

namespace heddle {

/// Bytes held by tier and class, counted from what the instructions that really run are given. The plan says the same
/// from the program alone; that they agree is a promise to users.
class HeldBytes {
 public:
  /// `taken`: bytes of each tier's memory that were taken from the system; `staging_bytes` of the communicator besides.
  HeldBytes(const std::vector<const StepProgram*>& programs, const std::array<std::uint64_t, 3>& taken,
            std::uint64_t scratch_bytes, std::uint64_t staging_bytes);

  void begin() { live_ = persistent_; }
  /// Bytes held now, by tier and class.
  const std::array<std::array<std::uint64_t, kBufferClasses>, 3>& now() const { return live_; }
  void before(std::size_t program, std::size_t instruction);
  void after(std::size_t program, std::size_t instruction);
  TierBills bills() const;

 private:
  using ByClass = std::array<std::uint64_t, kBufferClasses>;
  struct Change {
    Tier tier;
    BufferClass buffer_class;
    std::uint64_t bytes;
  };
  struct Changes {
    std::vector<std::vector<Change>> taken, given_back;  // by instruction
  };
  std::uint64_t& of(std::array<ByClass, 3>& bytes, const Change& change) {
    return bytes[static_cast<std::size_t>(change.tier)][static_cast<std::size_t>(change.buffer_class)];
  }
  void count_persistent(const std::vector<const StepProgram*>& programs);

  std::array<std::uint64_t, 3> taken_;
  std::uint64_t staging_bytes_;
  std::vector<Changes> changes_;  // by program
  std::array<ByClass, 3> persistent_{}, live_{}, greatest_{}, at_peak_{};
  std::array<std::uint64_t, 3> most_{};
};

}  // namespace heddle
