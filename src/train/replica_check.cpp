#include "train/replica_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/checked_file.h"
#include "train/local_state.h"

namespace heddle {
namespace {

struct Replica {
  std::string name;
  TensorView values;
};

/// What this rank holds of that kind, in an order that is the same on all ranks.
std::vector<Replica> replicas_of(const Executor& executor, const Parameters& parameters, const Sharding& sharding) {
  std::vector<Replica> replicas;
  const bool has_optimizer = !sharding.shards_optimizer();
  for (const auto& parameter : parameters.list) {
    const auto loaded = loaded_tensors(executor, parameter, sharding);
    if (!sharding.shards_weight(parameter.held_elements()))
      replicas.push_back({"weight " + parameter.name, loaded.front().values});
    if (!has_optimizer) continue;
    for (std::size_t i = 1; i < loaded.size(); ++i)
      replicas.push_back({"master weight of " + parameter.name, loaded[i].values});
    if (!parameter.is_trainable) continue;
    for (const auto& state : optimizer_states(parameters.optimizer, parameter)) {
      const std::string label = state_label(parameter.name, state.name);
      replicas.push_back({std::string(state.name) + " of " + parameter.name, executor.persistent(label)});
    }
  }
  return replicas;
}

/// The ranks' checksums of one tensor.
class Votes {
 public:
  Votes(std::span<const std::uint64_t> all, std::size_t tensor, std::size_t tensors) {
    for (std::size_t at = tensor; at < all.size(); at += tensors) sums_.push_back(all[at]);
  }
  bool agree() const { return std::equal(sums_.begin() + 1, sums_.end(), sums_.begin()); }
  /// "rank 2 has other bits than the 3 others"; or, without a majority, who agrees with whom.
  std::string text() const {
    std::map<std::uint64_t, std::vector<std::size_t>> ranks;
    for (std::size_t rank = 0; rank < sums_.size(); ++rank) ranks[sums_[rank]].push_back(rank);
    std::vector<std::vector<std::size_t>> parties;
    parties.reserve(ranks.size());
    for (const auto& [sum, members] : ranks) parties.push_back(members);
    std::sort(parties.begin(), parties.end(),
              [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
    const std::size_t most = parties.front().size();
    if (2 * most <= sums_.size()) {
      std::string text = "no majority tells which is right: alike are ";
      for (std::size_t i = 0; i < parties.size(); ++i)
        text += fmt::format("{}{}", i == 0 ? "" : "; ", rank_list(parties[i]));
      return text;
    }
    std::vector<std::size_t> minority;
    for (std::size_t i = 1; i < parties.size(); ++i)
      minority.insert(minority.end(), parties[i].begin(), parties[i].end());
    std::sort(minority.begin(), minority.end());
    return fmt::format("{} {} other bits than the {} that agree", rank_list(minority),
                       minority.size() == 1 ? "has" : "have", most);
  }

 private:
  static std::string rank_list(const std::vector<std::size_t>& ranks) {
    return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }
  std::vector<std::uint64_t> sums_;  // by rank
};

}  // namespace

bool has_replicas(const Parameters& parameters, const Sharding& sharding) {
  if (sharding.ranks == 1) return false;
  return !sharding.shards_optimizer() ||
         std::any_of(parameters.list.begin(), parameters.list.end(),
                     [&](const Parameter& parameter) { return !sharding.shards_weight(parameter.held_elements()); });
}

void check_replicas(std::int64_t step, Executor& executor, const Parameters& parameters, const Sharding& sharding,
                    Communicator& communicator) {
  if (!has_replicas(parameters, sharding)) return;
  const auto replicas = replicas_of(executor, parameters, sharding);
  std::vector<std::uint64_t> sums(replicas.size()),
      all(replicas.size() * static_cast<std::size_t>(communicator.size()));
  parallel_for(static_cast<std::int64_t>(replicas.size()), [&](std::int64_t i, int) {
    const auto at = static_cast<std::size_t>(i);
    sums[at] = checksum_of(bytes_of(replicas[at].values));
  });
  executor.release_nvme();
  communicator.all_gather(std::as_bytes(std::span(sums)), std::as_writable_bytes(std::span(all)),
                          "replicas' checksums");
  std::size_t first = replicas.size(), count = 0;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    if (Votes(all, i, replicas.size()).agree()) continue;
    first = std::min(first, i);
    ++count;
  }
  if (count == 0) return;
  const std::string others = count > 1 ? fmt::format(" (and {} more)", count - 1) : "";
  fail("step {}: ranks do not hold the same bits (check_replicas_steps): of {}{} {}", step, replicas[first].name,
       others, Votes(all, first, replicas.size()).text());
}

}  // namespace heddle
