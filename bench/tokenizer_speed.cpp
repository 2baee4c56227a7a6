// The other side of bench/tokenizer_speed.py: encodes a text when told to, and says how long it took.
//     bench_tokenizer_speed TOKENIZER FILE     reads numbers of threads from standard input, one a line; for each it
//     loads the
// tokenizer anew, so that no words are remembered, encodes the text and prints "SECONDS CPU_SECONDS IDS XXH3"; first of
// all "ready".
#include <xxhash.h>

#include <chrono>
#include <ctime>
#include <iostream>

#include "base/error.h"
#include "base/threads.h"
#include "data/text_encoder.h"
#include "data/tokenizer.h"
#include "formats/files.h"

namespace {

/// Of all threads of this process.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) heddle::fail("usage: bench_tokenizer_speed TOKENIZER FILE");
  const std::string text = heddle::read_text_file(argv[2]);
  std::cout << "ready" << std::endl;
  for (int threads = 0; std::cin >> threads;) {
    const auto tokenizer = heddle::Tokenizer::load(argv[1]);
    heddle::set_threads(threads);
    tokenizer->encode("a", false);
    const double cpu_start = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    const auto ids = heddle::encode_text(*tokenizer, text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << fmt::format("{:.6f} {:.6f} {} {:016x}", seconds.count(), cpu_seconds() - cpu_start, ids.size(),
                             XXH3_64bits(ids.data(), ids.size() * sizeof(ids[0])))
              << std::endl;
  }
} catch (const std::exception& error) {
  std::cerr << "bench_tokenizer_speed: " << error.what() << "\n";
  return 1;
}
