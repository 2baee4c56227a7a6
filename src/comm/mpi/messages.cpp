#include "comm/mpi/messages.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/error.h"

namespace heddle {

Cut::Cut(std::span<const std::size_t> tensor_bytes, std::size_t limit, std::size_t grain) {
  Message message{0, 0, 0};
  const auto close = [&] {
    if (message.bytes > 0) messages.push_back(message);
    message = {parts.size(), 0, 0};
  };
  for (std::size_t tensor = 0; tensor < tensor_bytes.size(); ++tensor) {
    std::size_t offset = 0;
    while (offset < tensor_bytes[tensor]) {
      const std::size_t left = tensor_bytes[tensor] - offset, room = limit - message.bytes;
      const std::size_t bytes = left <= room ? left : room / grain * grain;
      if (bytes == 0) {
        close();
        continue;
      }
      parts.push_back({tensor, offset, bytes});
      ++message.parts;
      message.bytes += bytes;
      offset += bytes;
      if (message.bytes == limit) close();
    }
  }
  close();
}

MPI_Request* Requests::add(int peer, int bytes) {
  handles.push_back(MPI_REQUEST_NULL);
  peers.push_back(peer);
  expected_bytes.push_back(bytes);
  return &handles.back();
}

void Runs::add(const std::byte* address, std::size_t count) {
  addresses.push_back(const_cast<std::byte*>(address));
  bytes.push_back(static_cast<int>(count));
}

/// Calls start(address, count, type) with one run as it lies, several as a type of their own.
template <typename Start>
void Messenger::start(const Runs& runs, Start&& start) {
  if (runs.bytes.size() == 1) return start(runs.addresses[0], runs.bytes[0], MPI_BYTE);
  std::vector<MPI_Aint> addresses(runs.addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) MPI_Get_address(runs.addresses[i], &addresses[i]);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  session_.call("MPI_Type_create_hindexed", [&] {
    return MPI_Type_create_hindexed(static_cast<int>(runs.bytes.size()), runs.bytes.data(), addresses.data(), MPI_BYTE,
                                    &type);
  });
  session_.call("MPI_Type_commit", [&] { return MPI_Type_commit(&type); });
  start(MPI_BOTTOM, 1, type);
  session_.call("MPI_Type_free", [&] { return MPI_Type_free(&type); });  // lives until its messages have gone
}

void Messenger::send(Requests& requests, const Runs& runs, int peer, int tag) {
  MPI_Request* request = requests.add(peer, -1);
  start(runs, [&](const void* address, int count, MPI_Datatype type) {
    session_.call("MPI_Isend", [&] { return MPI_Isend(address, count, type, peer, tag, comm_, request); });
  });
}

void Messenger::receive(Requests& requests, const Runs& runs, int peer, int tag) {
  MPI_Request* request = requests.add(peer, std::accumulate(runs.bytes.begin(), runs.bytes.end(), 0));
  start(runs, [&](void* address, int count, MPI_Datatype type) {
    session_.call("MPI_Irecv", [&] { return MPI_Irecv(address, count, type, peer, tag, comm_, request); });
  });
}

void Messenger::finish(Requests& requests, const std::string& call, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::microseconds;
  if (requests.empty()) return;
  statuses_.resize(requests.handles.size());
  const auto begin = Clock::now();
  for (int tries = 0;; ++tries) {
    int is_done = 0;
    const int code = session_.locked([&] {
      return MPI_Testall(static_cast<int>(requests.handles.size()), requests.handles.data(), &is_done,
                         statuses_.data());
    });
    if (code != MPI_SUCCESS) fail_in(requests, code, call);
    if (is_done != 0) {
      check_sizes(requests, call);
      break;
    }
    // First in haste; then between others; then asleep, so that the cores are theirs who compute.
    if (!yields_ && tries < 64) continue;
    const auto waited = Clock::now() - begin;
    if (waited > limit) fail_late(requests, call, limit);
    if (waited < microseconds(500)) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(microseconds(50));
    }
  }
  requests = {};
}

void Messenger::check_sizes(const Requests& requests, const std::string& call) {
  for (std::size_t i = 0; i < requests.handles.size(); ++i) {
    const int expected = requests.expected_bytes[i];
    if (expected < 0) continue;
    int received = 0;
    MPI_Get_elements(&statuses_[i], MPI_BYTE, &received);
    if (received != expected) {
      fail("{}: {} bytes came from {}, {} were expected: ranks do not make the same call", call, received,
           job_ranks({requests.peers[i]}), expected);
    }
  }
}

void Messenger::fail_in(const Requests& requests, int code, const std::string& call) {
  if (code == MPI_ERR_IN_STATUS) {
    for (std::size_t i = 0; i < requests.handles.size(); ++i) {
      int kind = MPI_SUCCESS;
      MPI_Error_class(statuses_[i].MPI_ERROR, &kind);
      if (kind == MPI_ERR_TRUNCATE) {
        fail("{}: more than {} bytes came from {}: ranks do not make the same call", call, requests.expected_bytes[i],
             job_ranks({requests.peers[i]}));
      }
      if (kind != MPI_SUCCESS && kind != MPI_ERR_PENDING) {
        fail("{}, {}: {}", call, job_ranks({requests.peers[i]}), mpi_error_text(statuses_[i].MPI_ERROR));
      }
    }
  }
  fail("{}: {}", call, mpi_error_text(code));
}

void Messenger::fail_late(Requests& requests, const std::string& call, std::chrono::milliseconds limit) {
  std::vector<int> missing;
  for (std::size_t i = 0; i < requests.handles.size(); ++i) {
    int is_done = 0;
    session_.call("MPI_Test", [&] { return MPI_Test(&requests.handles[i], &is_done, MPI_STATUS_IGNORE); });
    if (is_done == 0) missing.push_back(requests.peers[i]);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  fail("{} waited {} s for {}", call, std::chrono::duration<double>(limit).count(), job_ranks(std::move(missing)));
}

/// "rank 3" or "ranks 3, 5", by their numbers in the whole job.
std::string Messenger::job_ranks(std::vector<int> ranks) {
  MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  MPI_Comm_group(comm_, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  std::vector<int> translated(ranks.size());
  MPI_Group_translate_ranks(group, static_cast<int>(ranks.size()), ranks.data(), world, translated.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return fmt::format("{} {}", translated.size() == 1 ? "rank" : "ranks", fmt::join(translated, ", "));
}

}  // namespace heddle
