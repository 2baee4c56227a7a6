#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/kernel.h"

namespace heddle {

/// A tensor of a program under construction; an index into its buffers. Absent for an optional operand that is not
/// there.
struct Value {
  int id = -1;
  bool present() const { return id >= 0; }
  bool operator==(const Value&) const = default;
};

/// Shape and type of a value. Where `token_axis` is an axis, its extent is the capacity in tokens, and an execution
/// uses the first `scalars.tokens` of it.
struct ValueType {
  DType dtype = DType::f32;
  Shape shape;
  int token_axis = -1;
  bool is_workspace = false;
  std::int64_t bytes() const { return storage_bytes(dtype, shape.elements()); }
  bool present() const { return shape.rank() > 0; }
};

class BackwardContext;

/// Degrees of recomputation. `always`: one pass over operands that the backward needs anyway (norms, activation
/// functions): it costs a few parts in a thousand of a step and saves as much memory as its results take.
enum class Recomputed : std::uint8_t { always, selective, full };

/// What the passes need to know of an operation: result types, cost, gradient. Operands are listed in operations.md.
struct Operation {
  std::string_view name;
  /// Operands that a call always has, absent ones included.
  std::size_t inputs = 0, outputs = 0;
  /// Types of all outputs; absent ones have rank 0. Absent inputs have rank 0.
  std::vector<ValueType> (*infer)(std::span<const ValueType> in, const Attributes& attributes);
  /// Floating-point operations of one execution on full capacity.
  double (*flops)(std::span<const ValueType> in, std::span<const ValueType> out, const Attributes& attributes);
  /// Emits what computes the gradients of the inputs; null where there is none (ids, updates).
  void (*backward)(BackwardContext& context) = nullptr;
  /// For a loss: `backward` emits one instruction that computes loss and gradients together, and the forward one goes.
  bool backward_replaces_forward = false;
  /// {output, input}: the output may lie where the input lay, if nothing else needs the input.
  std::vector<std::pair<int, int>> in_place = {};
  /// Done by the communicator or the tiers, not by a kernel; takes any number of operands.
  bool moves_data = false;
  /// From which degree of recomputation on the backward computes the results again instead of keeping them.
  Recomputed recomputed = Recomputed::full;
};

/// The operation of that name; throws Error if there is none.
const Operation& find_operation(std::string_view name);
std::span<const Operation* const> all_operations();

/// What a backward rule sees of the instruction it differentiates, and how it adds to the program.
class BackwardContext {
 public:
  virtual ~BackwardContext() = default;
  virtual Value input(int index) const = 0;
  virtual Value output(int index) const = 0;
  virtual const Attributes& attributes() const = 0;
  /// Gradient of an output, complete; absent if nothing depends on it.
  virtual Value output_gradient(int index) const = 0;
  /// Whether anything trainable lies behind the input.
  virtual bool needs_gradient(int index) const = 0;
  /// Gradient of the input gathered so far from its other uses; may be absent.
  virtual Value gradient(int index) const = 0;
  /// Replaces the gathered gradient by one that includes it.
  virtual void set_gradient(int index, Value gradient) = 0;
  /// The buffer that gathers the gradient of a weight; absent where the input is absent or frozen.
  virtual Value weight_gradient(int index) = 0;
  /// Appends an instruction and returns its outputs. Where `given` holds a present value at an output's place, the
  /// instruction writes there; other outputs that the operation has are made.
  virtual std::vector<Value> emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes,
                                  std::vector<Value> given = {}) = 0;

  /// Adds to the gathered gradient with an `add` where there is one already.
  void add_gradient(int index, Value gradient);
};

namespace detail {
/// No type: an optional operand that is absent.
inline const ValueType kAbsent{};
inline ValueType workspace(Shape shape, DType type = DType::f32) { return {type, shape, -1, true}; }
double no_flops(std::span<const ValueType>, std::span<const ValueType>, const Attributes&);
/// One to a few operations per element of the first input.
template <int PerElement>
double flops_per_element(std::span<const ValueType> in, std::span<const ValueType>, const Attributes&) {
  return static_cast<double>(PerElement) * static_cast<double>(in[0].shape.elements());
}
}  // namespace detail

}  // namespace heddle
