#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// An argument of an optimizer in optim_args.
struct OptimizerArgument {
  enum class Kind { number, whole, flag, word };
  std::string_view name;
  Kind kind = Kind::number;
  double least = 0, below = 0x1p63;              // of numbers: in [least, below)
  std::span<const std::string_view> words = {};  // of Kind::word
  std::string_view only = {};  // the one value that is accepted, where the argument is known but its effect is not here
};

struct OptimizerType {
  std::string_view name;
  std::span<const std::string_view> other_names = {};  // Hugging Face's
  std::span<const OptimizerArgument> arguments = {};
};

std::span<const OptimizerType> optimizer_types();
/// Null for an unknown name.
const OptimizerType* find_optimizer_type(std::string_view name);
/// All names that `optim` takes.
inline constexpr std::array<std::string_view, 10> kOptimizerNames = {
    "adamw",      "adamw_torch", "adamw_torch_fused", "adamw_8bit", "adamw_bnb_8bit", "lion",
    "lion_32bit", "sgd",         "adafactor",         "muon"};

/// The values of "NAME=VALUE,NAME=VALUE" that are given: a flag as 0 or 1, a word as its index among its words. Throws
/// Error, which starts with `where`, for an argument that the optimizer has not, or a value out of range.
std::map<std::string, double> read_optimizer_arguments(const OptimizerType& type, std::string_view text,
                                                       const std::string& where);

}  // namespace heddle
