// Collective calls: bytes of the tensor over seconds, beside the MPI library's own all-reduce, whole and in pieces.
//   bench_collectives [ranks as threads] [MiB of the tensor] [seconds per figure]
//   mpirun -n RANKS bench_collectives 0 [MiB] [seconds]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/job.h"

#if __has_include(<mpi.h>)
#include <mpi.h>
#endif

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

/// Seconds of one call: the best of some, each from a barrier to the last rank's end.
double seconds_per_call(Communicator& communicator, double seconds, const std::function<void()>& call) {
  call();
  double best = 1e30, total = 0;
  for (int tries = 0; total < seconds || tries < 3; ++tries) {
    communicator.barrier();
    const auto start = Clock::now();
    call();
    double took = std::chrono::duration<double>(Clock::now() - start).count();
    communicator.all_reduce(std::span(&took, 1), Reduction::max);
    best = std::min(best, took);
    total += took;
  }
  return best;
}

void print(const Communicator& communicator, const std::string& name, std::size_t bytes, double seconds) {
  if (communicator.rank() == 0) {
    fmt::print("{:<34} {:>10} bytes {:>10.1f} us {:>8.2f} GB/s\n", name, bytes, seconds * 1e6,
               static_cast<double>(bytes) / seconds * 1e-9);
    std::fflush(stdout);
  }
}

#if defined(MPI_VERSION)
void measure_library(Communicator& communicator, std::span<float> values, double seconds) {
  for (const std::size_t piece_bytes :
       {std::size_t{0}, std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{4} << 20}) {
    const std::size_t piece = piece_bytes == 0 ? values.size() : piece_bytes / sizeof(float);
    if (piece_bytes > 0 && piece >= values.size()) continue;
    const double took = seconds_per_call(communicator, seconds, [&] {
      for (std::size_t start = 0; start < values.size(); start += piece) {
        MPI_Allreduce(MPI_IN_PLACE, values.data() + start, static_cast<int>(std::min(piece, values.size() - start)),
                      MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      }
    });
    print(communicator, piece_bytes == 0 ? "MPI_Allreduce" : fmt::format("MPI_Allreduce by {} KiB", piece_bytes >> 10),
          values.size_bytes(), took);
  }
}
#endif

int measure(Communicator& communicator, std::size_t bytes, double seconds) {
  const auto ranks = static_cast<std::size_t>(communicator.size()),
             place = static_cast<std::size_t>(communicator.rank());
  for (const std::size_t size : {std::size_t{64}, std::size_t{64} << 10, bytes}) {
    const std::size_t piece = std::max<std::size_t>(size / sizeof(float) / ranks, 1);
    std::vector<float> values(piece * ranks), sums(piece);
    const auto all = std::as_writable_bytes(std::span(values));
    const auto own = all.subspan(place * piece * sizeof(float), piece * sizeof(float));
    const auto report = [&](const std::string& name, const std::function<void()>& call) {
      print(communicator, name, all.size(), seconds_per_call(communicator, seconds, call));
    };
    report("all_gather", [&] { communicator.all_gather(own, all); });
    report("reduce_scatter",
           [&] { communicator.reduce_scatter(all, std::as_writable_bytes(std::span(sums)), DType::f32); });
    report("all_reduce", [&] { communicator.all_reduce(std::span(values)); });
#if defined(MPI_VERSION)
    if (communicator.transport() == "mpi") measure_library(communicator, values, seconds);
#endif
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const std::size_t bytes = static_cast<std::size_t>(count > 2 ? std::atoi(arguments[2]) : 64) << 20;
  const double seconds = count > 3 ? std::atof(arguments[3]) : 1.0;
  return run_job(ranks, [&](Communicator& communicator) { return measure(communicator, bytes, seconds); });
}
