#include "train/held_bytes.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace heddle {
namespace {

template <std::size_t N>
std::uint64_t sum(const std::array<std::uint64_t, N>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

constexpr auto kWorkspace = static_cast<std::size_t>(BufferClass::workspace);
constexpr auto kCommunication = static_cast<std::size_t>(BufferClass::communication);

}  // namespace

HeldBytes::HeldBytes(const std::vector<const StepProgram*>& programs, const std::array<std::uint64_t, 3>& taken,
                     std::uint64_t scratch_bytes, std::uint64_t staging_bytes)
    : taken_(taken), staging_bytes_(staging_bytes) {
  persistent_[0][kWorkspace] = scratch_bytes;
  persistent_[0][kCommunication] = staging_bytes;
  count_persistent(programs);
  for (const auto* program : programs) {
    Changes changes;
    changes.taken.resize(program->instructions.size());
    changes.given_back.resize(program->instructions.size());
    for (std::size_t id = 0; id < program->buffers.size(); ++id) {
      const Buffer& buffer = program->buffers[id];
      if (!buffer.is_timed() || buffer.view_of >= 0 || buffer.storage != static_cast<int>(id) || buffer.first_use < 0)
        continue;
      const Change change{buffer.tier, buffer.buffer_class, static_cast<std::uint64_t>(buffer.bytes())};
      changes.taken[static_cast<std::size_t>(buffer.first_use)].push_back(change);
      changes.given_back[static_cast<std::size_t>(buffer.last_use)].push_back(change);
    }
    changes_.push_back(std::move(changes));
  }
  live_ = greatest_ = at_peak_ = persistent_;
  for (std::size_t tier = 0; tier < 3; ++tier) most_[tier] = sum(persistent_[tier]);
}

void HeldBytes::count_persistent(const std::vector<const StepProgram*>& programs) {
  // The same label may have a greater capacity in another program: the greatest is what is held.
  std::unordered_map<std::string_view, Change> largest;
  for (const auto* program : programs) {
    for (const auto& buffer : program->buffers) {
      if (buffer.is_timed() || buffer.view_of >= 0) continue;
      auto& change = largest.try_emplace(buffer.label, Change{buffer.tier, buffer.buffer_class, 0}).first->second;
      change.bytes = std::max(change.bytes, static_cast<std::uint64_t>(buffer.bytes()));
    }
  }
  for (const auto& [label, change] : largest) of(persistent_, change) += change.bytes;
}

void HeldBytes::before(std::size_t program, std::size_t instruction) {
  for (const auto& change : changes_[program].taken[instruction]) of(live_, change) += change.bytes;
  for (std::size_t tier = 0; tier < 3; ++tier) {
    for (std::size_t c = 0; c < kBufferClasses; ++c) greatest_[tier][c] = std::max(greatest_[tier][c], live_[tier][c]);
    if (const auto total = sum(live_[tier]); total > most_[tier]) {
      most_[tier] = total;
      at_peak_[tier] = live_[tier];
    }
  }
}

void HeldBytes::after(std::size_t program, std::size_t instruction) {
  for (const auto& change : changes_[program].given_back[instruction]) of(live_, change) -= change.bytes;
}

TierBills HeldBytes::bills() const {
  TierBills bills;
  for (std::size_t tier = 0; tier < 3; ++tier) {
    Bill& bill = bills[tier];
    bill.peak = taken_[tier] + (tier == 0 ? staging_bytes_ : 0);
    bill.at_peak = at_peak_[tier];
    bill.greatest = greatest_[tier];
    auto& workspace = bill.at_peak[kWorkspace];
    workspace += bill.peak - sum(bill.at_peak);
    bill.greatest[kWorkspace] = std::max(bill.greatest[kWorkspace], workspace);
  }
  return bills;
}

}  // namespace heddle
