#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/session.h"

namespace heddle {

/// A list of tensors, seen as one run of bytes and cut into messages: a large tensor takes many, small ones share one.
/// Both ends of a message derive the same cut from the same sizes.
struct Cut {
  struct Part {
    std::size_t tensor, offset, bytes;
  };
  struct Message {
    std::size_t first_part, parts, bytes;
  };
  std::vector<Part> parts;
  std::vector<Message> messages;

  /// Messages of up to `limit` bytes. Tensors are cut at multiples of `grain` bytes, which divides `limit`; so with 8,
  /// no element is cut in two.
  Cut(std::span<const std::size_t> tensor_bytes, std::size_t limit, std::size_t grain);
  std::span<const Part> parts_of(const Message& message) const {
    return std::span(parts).subspan(message.first_part, message.parts);
  }
};

/// Requests on their way, with what is known of them for errors.
struct Requests {
  std::vector<MPI_Request> handles;
  std::vector<int> peers;
  std::vector<int> expected_bytes;  ///< of a receive; -1 for a send

  MPI_Request* add(int peer, int bytes);
  bool empty() const { return handles.empty(); }
};

/// Bytes in memory, in several runs; what one message carries. Only a receive writes them.
struct Runs {
  std::vector<std::byte*> addresses;
  std::vector<int> bytes;
  void add(const std::byte* address, std::size_t count);
};

/// Starts messages of one communicator and waits for them, within a time limit.
class Messenger {
 public:
  Messenger(MpiSession& session, MPI_Comm comm, bool yields) : session_(session), comm_(comm), yields_(yields) {}

  void send(Requests& requests, const Runs& runs, int peer, int tag);
  void receive(Requests& requests, const Runs& runs, int peer, int tag);
  /// Waits for all of them, and empties the list. `call` and the limit are for the error when time is over.
  void finish(Requests& requests, const std::string& call, std::chrono::milliseconds limit);

 private:
  template <typename Start>
  void start(const Runs& runs, Start&& start);
  void check_sizes(const Requests& requests, const std::string& call);
  [[noreturn]] void fail_in(const Requests& requests, int code, const std::string& call);
  [[noreturn]] void fail_late(Requests& requests, const std::string& call, std::chrono::milliseconds limit);
  std::string job_ranks(std::vector<int> ranks);

  MpiSession& session_;
  MPI_Comm comm_;
  bool yields_;  ///< more ranks than cores: whoever waits stands in the way of whom it waits for
  std::vector<MPI_Status> statuses_;
};

}  // namespace heddle
