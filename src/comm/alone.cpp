#include "base/cores.h"
#include "base/error.h"
#include "comm/job.h"

namespace heddle {
namespace {

/// The group of one. Communicator itself does what one rank asks for; nothing is left to transport.
class Alone final : public Communicator {
 public:
  Alone() : Communicator(0, 1) { set_host(1, 0, available_cores(), {}); }
  std::string_view transport() const override { return "alone"; }
  std::size_t staging_bytes() const override { return 0; }

 private:
  void gather(const Call&, std::span<const GatherPiece>) override {}
  void scatter(const Call&, std::span<const ScatterPiece>, const ScatterOptions&) override {}
  void reduce(const Call&, std::span<const ReducePiece>, Reduction, Order) override {}
  void spread(const Call&, std::span<const std::span<std::byte>>, int) override {}
  void transpose(const Call&, std::span<const std::span<const std::byte>>,
                 std::span<const std::span<std::byte>>) override {}
  void pass(const Call& call, std::span<const std::byte>, int, std::span<std::byte>, int, int) override {
    fail("{}: there is one rank", describe(call));
  }
  void meet(const Call&) override {}
  std::unique_ptr<Communicator> divide(const Call&, int color, int) override {
    return color < 0 ? nullptr : std::make_unique<Alone>();
  }
};

}  // namespace

std::unique_ptr<Communicator> alone() { return std::make_unique<Alone>(); }

}  // namespace heddle
