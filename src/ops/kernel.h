#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "ops/tensor.h"

namespace heddle {

/// Constants of an instruction by name: whole numbers, real numbers, lists of real numbers. Reading does not allocate;
/// a name that is absent gives the fallback.
class Attributes {
 public:
  using Value = std::variant<std::int64_t, double, std::vector<double>>;
  struct Entry {
    std::string_view name;  // a literal
    Value value;
  };
  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) : entries_(entries) {}

  void set(std::string_view name, Value value);
  std::int64_t integer(std::string_view name, std::int64_t fallback = 0) const;
  double real(std::string_view name, double fallback = 0.0) const;
  std::span<const double> list(std::string_view name) const;
  std::span<const Entry> entries() const { return entries_; }

 private:
  const Value* find(std::string_view name) const;
  std::vector<Entry> entries_;
};

/// What changes from one execution of a program to the next.
struct Scalars {
  std::int64_t tokens = 0;          ///< T of this micro-batch; buffers are planned for a greater or equal capacity
  std::int64_t documents = 0;       ///< documents in the stream; document_starts has one more entry
  std::int64_t past = 0;            ///< generation: positions already in the key-value cache
  std::uint64_t seed = 0;           ///< of the run; key of all random streams
  std::uint64_t micro_batch = 0;    ///< index of the micro-batch since the start of training, for dropout
  int active_ranks = 1;             ///< ranks with rows in this round of micro-batches; the others only take part
  bool first_micro_batch = true;    ///< of its optimizer step: gradients are overwritten, later ones are added
  float gradient_scale = 1.0f;      ///< loss scale / supervised tokens of the whole optimizer step
  float inverse_loss_scale = 1.0f;  ///< 1 / loss scale (1 unless fp16)
  float max_grad_norm = 0.0f;       ///< 0: no clipping
  double learning_rate = 0.0;
  double bias_correction1 = 1.0;  ///< 1 - beta1^k for optimizer step k (from 1; skipped steps do not count)
  double bias_correction2 = 1.0;  ///< 1 - beta2^k
  std::int64_t update = 1;        ///< k
};

/// Memory for packing and partial results, planned and allocated before the run; its content does not outlive a call.
struct Scratch {
  std::byte* shared = nullptr;      ///< shared_bytes, for all threads together; 64-byte aligned
  std::byte* per_thread = nullptr;  ///< threads * bytes_per_thread; thread i's part starts at i * bytes_per_thread
  std::size_t shared_bytes = 0;
  std::size_t bytes_per_thread = 0;
  int threads = 1;
};
inline constexpr std::size_t kSharedScratchBytes = std::size_t{8} << 20;
inline constexpr std::size_t kScratchBytesPerThread = std::size_t{2} << 20;

/// One execution of one instruction. Operands are in the order of the operation's declaration (ops/operations.md).
struct KernelCall {
  std::span<const TensorView> in;
  std::span<const TensorView> out;
  const Attributes& attributes;
  const Scalars& scalars;
  const Scratch& scratch;
  std::span<const TensorView> coming = {};  ///< weights of the next product, which a kernel may bring near at its end
};

/// A kernel neither throws on good operands nor allocates; it may call parallel_for. Its result does not depend on the
/// number of threads.
using Kernel = void (*)(const KernelCall&);

/// How an instruction writes a gradient that several of them make (attribute "accumulate").
enum class Accumulate : std::int64_t {
  overwrite = 0,
  add = 1,
  add_after_first = 2,  ///< overwrite in the first micro-batch of an optimizer step, add in the others
};
inline bool adds(const KernelCall& call) {
  const auto mode = static_cast<Accumulate>(call.attributes.integer("accumulate"));
  return mode == Accumulate::add || (mode == Accumulate::add_after_first && !call.scalars.first_micro_batch);
}

/// Attribute "loss_type" of preference_loss; TRL's names.
enum class PreferenceLossType : std::int64_t { sigmoid = 0, hinge = 1, ipo = 2, robust = 3, sigmoid_norm = 4 };

/// What preference_loss adds up beside the loss, over the pairs of a micro-batch: output `sums`, in this order. A
/// reward is beta * (log-probability - reference); a pair counts as accurate where the chosen reward is the greater.
enum class PreferenceSum : std::size_t {
  chosen_reward,
  rejected_reward,
  accuracy,
  chosen_log_prob,
  rejected_log_prob,
};
inline constexpr std::size_t kPreferenceSums = 5;

/// Attribute "activation".
enum class Activation : std::int64_t { silu = 0, gelu = 1, gelu_tanh = 2, relu = 3 };

}  // namespace heddle
