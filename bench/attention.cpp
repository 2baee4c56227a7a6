// Attention forward, backward and one step of generation against the machine's multiply-add peak. Counted are the
// visible pairs of query and key alone: 4 D FLOPs each forward, 10 D backward; what masks, softmax, packing or a second
// pass cost shows as a smaller share.
//   bench_attention [threads] [seconds per figure]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_peak.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

struct Setting {
  std::int64_t document, documents, heads, kv_heads, head_dim;
  DType dtype;
  double dropout;

  std::int64_t tokens() const { return document * documents; }
  double visible_pairs() const {
    return static_cast<double>(heads * documents * document) * static_cast<double>(document + 1) / 2.0;
  }
};

class Tensor {
 public:
  Tensor(Shape shape, DType dtype)
      : bytes_(static_cast<std::size_t>(shape.elements()) * dtype_bytes(dtype)), view_{bytes_.data(), dtype, shape} {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    Random random(1, static_cast<std::uint64_t>(shape.elements()));
    for (float& value : values) value = static_cast<float>(random.uniform()) - 0.5f;
    convert(values.data(), DType::f32, bytes_.data(), dtype, shape.elements());
  }
  TensorView view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  TensorView view_;
};

/// Shortest time of one call within the budget; at least two calls.
template <typename Function>
double seconds_of(double budget, const Function& f) {
  double best = 1e9;
  const auto begin = Clock::now();
  for (int run = 0; run < 2 || std::chrono::duration<double>(Clock::now() - begin).count() < budget; ++run) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void measure(const Setting& setting, const Scratch& scratch, double peak, double budget) {
  const std::int64_t t = setting.tokens();
  const Shape query_shape{t, setting.heads, setting.head_dim}, key_shape{t, setting.kv_heads, setting.head_dim};
  const Tensor q(query_shape, setting.dtype), k(key_shape, setting.dtype), v(key_shape, setting.dtype);
  const Tensor o(query_shape, setting.dtype), d_output(query_shape, setting.dtype), dq(query_shape, setting.dtype);
  const Tensor dk(key_shape, setting.dtype), dv(key_shape, setting.dtype), dq_sum(query_shape, DType::f32);
  const Tensor lse({setting.heads, t}, DType::f32), workspace({setting.heads, t}, DType::f32);
  std::vector<std::int32_t> starts;
  for (std::int64_t i = 0; i <= setting.documents; ++i)
    starts.push_back(static_cast<std::int32_t>(i * setting.document));
  const TensorView documents{starts.data(), DType::i32, {setting.documents + 1}};

  const Attributes attributes{{"scale", 1.0 / std::sqrt(static_cast<double>(setting.head_dim))},
                              {"dropout", setting.dropout}};
  Scalars scalars;
  scalars.tokens = t;
  scalars.documents = setting.documents;
  const std::array in{q.view(), k.view(), v.view(), documents};
  const std::array out{o.view(), lse.view()};
  const double forward = seconds_of(budget, [&] { cpu::attention({in, out, attributes, scalars, scratch}); });
  const std::array backward_in{d_output.view(), q.view(), k.view(), v.view(), o.view(), lse.view(), documents};
  const std::array backward_out{dq.view(), dk.view(), dv.view(), workspace.view(), dq_sum.view()};
  const double backward = seconds_of(budget, [&] {
    cpu::attention_backward({backward_in, backward_out, attributes, scalars, scratch});
  });

  const Attributes cached{{"scale", 1.0}, {"cached", std::int64_t{1}}};
  scalars.tokens = 1;
  scalars.documents = 1;
  scalars.past = t - 1;
  TensorView one_query = q.view(), one_output = o.view();
  one_query.shape[0] = one_output.shape[0] = 1;
  const std::array decode_in{one_query, k.view(), v.view(), documents};
  const std::array decode_out{one_output, lse.view()};
  const double decode = seconds_of(budget / 4, [&] {
    cpu::attention({decode_in, decode_out, cached, scalars, scratch});
  });
  const double cache_bytes =
      2.0 * static_cast<double>(k.view().elements()) * static_cast<double>(dtype_bytes(setting.dtype));

  const double forward_rate = 4.0 * static_cast<double>(setting.head_dim) * setting.visible_pairs() / forward;
  const double backward_rate = 10.0 * static_cast<double>(setting.head_dim) * setting.visible_pairs() / backward;
  fmt::print("{:>5} x {:<3} {:>3} {:>3} {:>4} {:<8} {:>4.1f} {:>9.1f} {:>5.0f}% {:>9.1f} {:>5.0f}% {:>8.1f}\n",
             setting.document, setting.documents, setting.heads, setting.kv_heads, setting.head_dim,
             torch_name(setting.dtype), setting.dropout, forward_rate * 1e-9, 100.0 * forward_rate / peak,
             backward_rate * 1e-9, 100.0 * backward_rate / peak, cache_bytes / decode * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : available_cores());
  const double budget = argc > 2 ? std::atof(argv[2]) : 0.2;
  const auto threads_bytes = static_cast<std::size_t>(threads()) * kScratchBytesPerThread;
  std::vector<std::byte> memory(kSharedScratchBytes + threads_bytes + 64);
  const std::size_t skip = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  const Scratch scratch = {memory.data() + skip, memory.data() + skip + kSharedScratchBytes, kSharedScratchBytes,
                           kScratchBytesPerThread, threads()};
  const double peak = cpu::measure_multiply_add_peak(0.3);
  fmt::print("{} threads, multiply-add peak {:.1f} GFLOP/s\n", threads(), peak * 1e-9);
  fmt::print("{:<11} {:>3} {:>3} {:>4} {:<8} {:>4} {:>9} {:>6} {:>9} {:>6} {:>8}\n", "documents", "N", "K", "D", "type",
             "drop", "forward", "", "backward", "", "1: GB/s");
  for (const Setting& setting :
       {Setting{1024, 1, 4, 2, 64, DType::f32, 0.0}, Setting{1024, 1, 4, 2, 128, DType::f32, 0.0},
        Setting{4096, 1, 2, 2, 64, DType::f32, 0.0}, Setting{4096, 1, 2, 2, 128, DType::f32, 0.0},
        Setting{1024, 1, 4, 2, 64, DType::bf16, 0.0}, Setting{1024, 1, 4, 1, 64, DType::f32, 0.0},
        Setting{1024, 1, 4, 2, 64, DType::f32, 0.1}, Setting{128, 8, 4, 2, 64, DType::f32, 0.0},
        Setting{16, 64, 4, 2, 64, DType::f32, 0.0}, Setting{1024, 1, 4, 2, 48, DType::f32, 0.0}}) {
    measure(setting, scratch, peak, budget);
  }
}
