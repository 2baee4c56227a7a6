#include "ops/kernel.h"

#include <utility>

namespace heddle {

const Attributes::Value* Attributes::find(std::string_view name) const {
  for (const auto& entry : entries_) {
    if (entry.name == name) return &entry.value;
  }
  return nullptr;
}

void Attributes::set(std::string_view name, Value value) {
  for (auto& entry : entries_) {
    if (entry.name == name) {
      entry.value = std::move(value);
      return;
    }
  }
  entries_.push_back({name, std::move(value)});
}

std::int64_t Attributes::integer(std::string_view name, std::int64_t fallback) const {
  const auto* value = find(name);
  return value == nullptr ? fallback : std::get<std::int64_t>(*value);
}

double Attributes::real(std::string_view name, double fallback) const {
  const auto* value = find(name);
  if (value == nullptr) return fallback;
  const auto* whole = std::get_if<std::int64_t>(value);
  return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(*value);
}

std::span<const double> Attributes::list(std::string_view name) const {
  const auto* value = find(name);
  if (value == nullptr) return {};
  return std::get<std::vector<double>>(*value);
}

}  // namespace heddle
