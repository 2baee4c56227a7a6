#include "data/tokenizer/vocabulary.h"

#include <limits>

#include "base/error.h"
#include "data/tokenizer/hash.h"

namespace heddle {

Vocabulary::Vocabulary(const JsonEntry& map) {
  constexpr std::int32_t most = 1 << 24;
  map.require_object();
  grow(2 * map.value().size());
  for (const auto& [token, id] : map.value().items()) {
    const JsonEntry entry = map.child(id, fmt::format("[{}]", Json(token).dump()));
    if (!id.is_number_integer() || entry.count() >= most) entry.refuse(fmt::format("an id from 0 to {}", most - 1));
    const std::int32_t value = entry.count();
    if (contains(value)) {
      fail("{} is {}, which is the id of {} too; expected distinct ids", entry.where(), value,
           Json(std::string(this->token(value))).dump());
    }
    add(token, value);
  }
}

void Vocabulary::grow(std::size_t slots) {
  std::size_t size = 64;
  while (size < slots) size *= 2;
  slots_.assign(size, Slot{});
  for (std::int32_t id = 0; id < end(); ++id) {
    if (contains(id)) insert(hash_text(token(id)), id);
  }
}

void Vocabulary::insert(std::uint64_t hash, std::int32_t id) {
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  std::size_t slot = hash & mask;
  while (slots_[slot].id != none && !(slots_[slot].hash == tag && token(slots_[slot].id) == token(id))) {
    slot = (slot + 1) & mask;
  }
  slots_[slot] = {tag, id};
}

void Vocabulary::add(std::string_view token, std::int32_t id) {
  HEDDLE_CHECK(id >= 0 && !contains(id));
  HEDDLE_CHECK(text_.size() + token.size() < absent);
  if (index(id) >= spans_.size()) spans_.resize(index(id) + 1);
  spans_[index(id)] = {static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(token.size())};
  text_ += token;
  if (2 * index(++size_) > slots_.size()) {
    grow(4 * index(size_));
  } else {
    insert(hash_text(token), id);
  }
}

std::int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return none;
  const std::uint64_t hash = hash_text(token);
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t slot = hash & mask; slots_[slot].id != none; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == tag && this->token(slots_[slot].id) == token) return slots_[slot].id;
  }
  return none;
}

}  // namespace heddle
