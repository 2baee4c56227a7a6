#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/kernel.h"

namespace heddle::cpu {

/// Which ids have a row of their own beside a table: attributes row_ids, ascending, and row_places.
class ReplacedRows {
 public:
  explicit ReplacedRows(const Attributes& attributes)
      : ids_(attributes.list("row_ids")), places_(attributes.list("row_places")) {}

  std::int64_t count() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t id(std::int64_t i) const { return static_cast<std::int64_t>(ids_[static_cast<std::size_t>(i)]); }
  /// The row of the i-th of the ids.
  std::int64_t place(std::int64_t i) const { return static_cast<std::int64_t>(places_[static_cast<std::size_t>(i)]); }
  /// The row of an id; -1: it has none.
  std::int64_t place_of_id(std::int64_t id) const {
    const auto found = std::lower_bound(ids_.begin(), ids_.end(), static_cast<double>(id));
    if (found == ids_.end() || *found != static_cast<double>(id)) return -1;
    return place(found - ids_.begin());
  }

 private:
  std::span<const double> ids_, places_;
};

/// The logits of such rows take the place of the table's.
void replace_columns(const KernelCall& call);

}  // namespace heddle::cpu
