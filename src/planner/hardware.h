#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "planner/ceilings.h"

namespace heddle {

/// What one device can hold and do at most: vendors' figures, dense, without sparsity. Rates are per second.
struct Device {
  std::string name;
  std::uint64_t memory = 0;     ///< bytes that a process can use
  double half_flops = 0;        ///< products in bf16 (fp16 where has_bf16 is false) summed in fp32
  double float_flops = 0;       ///< in fp32
  double memory_bandwidth = 0;  ///< bytes
  double host_link = 0;         ///< bytes between device and host, one way
  double peer_link = 0;         ///< bytes between two devices of one machine, one way
  double host_bandwidth = 0;    ///< bytes of host memory that a rank has for itself
  double nvme_bandwidth = 0;    ///< bytes, its share of the disks
  bool has_bf16 = true;
  bool is_host = false;  ///< what is offloaded to host memory lies in `memory` too
};

/// What `--hardware` names: "4xA100-40GB", or "H100" without a number.
struct Hardware {
  Device device;
  int devices = 0;  ///< 0: no number is named
};

/// Names in any case, with or without spaces, dashes and underscores. Throws Error with the nearest name, or with all
/// of them.
Hardware parse_hardware(std::string_view text);

/// This machine's processor as a device of `ranks`, each with its share: memory that is free now, and rates as `heddle
/// bench` kept them, or measured in some tenths of a second.
Device cpu_device(int ranks);
/// The same of rates of all cores. `kept`, where it is there, also tells what ranks in one process pass to each other,
/// and what the disk does past the page cache; else that is memory's rate, and an assumption.
Device cpu_device(int ranks, const ThreadCeilings& measured, const Ceilings* kept);

/// A processor whose figures are those of no machine in particular: what is decided by it is the same everywhere.
Device nominal_cpu();

}  // namespace heddle
