#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/emitter.h"
#include "ops/operation.h"

namespace heddle {

/// What a buffer holds; the words of plan.json.
enum class BufferClass : std::uint8_t {
  parameters,
  master_weights,
  gradients,
  optimizer_states,
  activations,
  workspace,
  communication,
  data,
};
inline constexpr std::size_t kBufferClasses = 8;
std::string_view class_name(BufferClass buffer_class);

enum class Tier : std::uint8_t { device, host, nvme };
/// Transfers with the nvme tier move whole pages, past the page cache.
inline constexpr std::int64_t kPageBytes = 4096;
std::string_view tier_name(Tier tier);

enum class Queue : std::uint8_t { compute, communication, transfer };

enum class Phase : std::uint8_t { forward, recompute, backward, update };
std::string_view phase_name(Phase phase);

/// A typed piece of memory. A view is a buffer with another shape on the memory of its root.
struct Buffer {
  std::string label;
  ValueType type;
  BufferClass buffer_class = BufferClass::activations;
  Tier tier = Tier::device;
  bool is_persistent = false;    ///< lives from one execution to the next, and in all programs that name its label
  bool is_carried = false;       ///< persistent, but only from its first use in the first of these programs to the last
  int view_of = -1;              ///< root buffer; -1 for a root
  std::int64_t view_offset = 0;  ///< bytes from the root's start
  std::int64_t first_token = 0;  ///< of a tile (tile_mlp()): the token that its first row belongs to
  bool needs_gradient = false;   ///< something trainable lies behind it

  // Set by the allocate pass, for roots, as is is_carried.
  int first_use = -1, last_use = -1;  ///< indices of instructions
  int storage = -1;                   ///< the root in whose memory it lies (itself, unless computed in place)
  std::int64_t alignment = 64;        ///< bytes, of its place and of the room that it has there
  std::int64_t offset = -1;           ///< bytes from the start of the tier's arena

  std::int64_t bytes() const { return type.bytes(); }
  /// Its type where the stream has so many tokens: those of them that are in it.
  ValueType type_of(std::int64_t tokens) const;
  /// Whether its memory serves others outside first_use to last_use.
  bool is_timed() const { return !is_persistent || is_carried; }
};

/// One fused kernel, collective or transfer. Operands are indices of buffers, -1 where absent.
struct Instruction {
  const Operation* operation = nullptr;
  std::vector<int> inputs = {}, outputs = {};
  Attributes attributes = {};
  Queue queue = Queue::compute;
  Phase phase = Phase::forward;
  int unit = 0;         ///< index into StepProgram::units
  bool in_mlp = false;  ///< of a block's MLP or its backward, where rows depend on rows of the same token alone
};

/// A straight-line list of instructions on buffers whose shapes, types, places and lifetimes are known.
struct StepProgram {
  std::string name;
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<std::string> units;

  int root(int buffer) const {
    const int parent = buffers[static_cast<std::size_t>(buffer)].view_of;
    return parent < 0 ? buffer : parent;
  }
  Buffer& at(int buffer) { return buffers[static_cast<std::size_t>(buffer)]; }
  const Buffer& at(int buffer) const { return buffers[static_cast<std::size_t>(buffer)]; }
  int add(Buffer buffer);
  /// A view of `buffer` with another shape; `buffer` itself if it has that shape already.
  int view(int buffer, const Shape& shape);
  /// The persistent buffer of that label, or -1.
  int find_persistent(std::string_view label) const;
};

/// The part of the model that uses a weight first.
enum class ParameterPlace : std::uint8_t { embedding, block, head };

/// A weight as the model names it. Tied weights are one.
struct Parameter {
  std::string name;
  Shape shape;
  Initialization initialization;
  int unit = 0;
  bool is_trainable = true;
  /// The type that it lies in, where that is not the run's: of weights that stay quantized. These are held and moved as
  /// bytes.
  std::optional<DType> storage = {};
  ParameterPlace place = ParameterPlace::block;
  double learning_rate_scale = 1.0;         ///< its learning rate, as a multiple of the run's
  std::optional<double> weight_decay = {};  ///< in place of the run's

  bool is_quantized() const { return storage && heddle::is_quantized(*storage); }
  /// Elements of its buffer: its own, or the bytes of a quantized one.
  std::int64_t held_elements() const {
    return is_quantized() ? storage_bytes(*storage, shape.elements()) : shape.elements();
  }
};

/// Labels of the persistent buffers that belong to a parameter.
std::string gradient_label(const std::string& parameter);
std::string master_label(const std::string& parameter);

/// Labels of the buffers through which the trainer feeds a program and reads its results.
namespace labels {
inline constexpr std::string_view input_ids = "input_ids";
inline constexpr std::string_view labels = "labels";
inline constexpr std::string_view positions = "positions";
inline constexpr std::string_view document_starts = "document_starts";
inline constexpr std::string_view loss = "loss";
inline constexpr std::string_view log_probs = "log_probs";                      // of documents
inline constexpr std::string_view reference_log_probs = "reference_log_probs";  // the reference model's
inline constexpr std::string_view preference_sums = "preference_sums";          // by PreferenceSum
inline constexpr std::string_view logits = "logits";
inline constexpr std::string_view sums_of_squares = "sums_of_squares";
inline constexpr std::string_view gradient_norm = "gradient_norm";
inline constexpr std::string_view gradient_factor = "gradient_factor";
}  // namespace labels

}  // namespace heddle
