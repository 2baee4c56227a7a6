#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "program/builder.h"
#include "program/partition.h"
#include "train/executor.h"

/// Data-parallel ranks hold the same bits of whatever ZeRO does not divide among them: weights below stage 3, and
/// master weights and optimizer states at stage 0. Where they do not, memory or a core has lied to one of them.
namespace heddle {

/// Whether there is anything that several ranks hold alike.
bool has_replicas(const Parameters& parameters, const Sharding& sharding);

/// On all ranks between two steps: compares XXH3 of each such tensor, of which 8 bytes are exchanged. Throws Error on
/// all of them naming the first tensor that differs, and the ranks that most others contradict, if most agree.
void check_replicas(std::int64_t step, Executor& executor, const Parameters& parameters, const Sharding& sharding,
                    Communicator& communicator);

}  // namespace heddle
