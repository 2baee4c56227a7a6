// Attention forward, backward and one step of generation against the machine's multiply-add peak. Counted are the
// visible pairs of query and key alone: 4 D FLOPs each forward, 10 D backward; what masks, softmax, packing or a second
// pass cost shows as a smaller share.
//   bench_attention [threads] [seconds per figure]
//   bench_attention --json threads tokens heads kv_heads head_dim calls fp32|bf16 [portable]
// The last measures one work, for bench/attention.py; "portable": without the processor's instructions for bf16.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_peak.h"
#include "measure.h"

namespace {

using namespace heddle;
using namespace heddle::bench;

struct Setting {
  std::int64_t document, documents, heads, kv_heads, head_dim;
  DType dtype = DType::f32;
  double dropout = 0.0;

  std::int64_t tokens() const { return document * documents; }
  double visible_pairs() const {
    return static_cast<double>(heads * documents * document) * static_cast<double>(document + 1) / 2.0;
  }
};

/// All operands of one setting, and its calls.
class Attention {
 public:
  Attention(const Setting& setting, const Scratch& scratch)
      : tokens_(setting.tokens()),
        query_shape_{tokens_, setting.heads, setting.head_dim},
        key_shape_{tokens_, setting.kv_heads, setting.head_dim},
        q_(query_shape_, setting.dtype),
        k_(key_shape_, setting.dtype),
        v_(key_shape_, setting.dtype),
        o_(query_shape_, setting.dtype),
        d_output_(query_shape_, setting.dtype),
        dq_(query_shape_, setting.dtype),
        dk_(key_shape_, setting.dtype),
        dv_(key_shape_, setting.dtype),
        dq_sum_(setting.dtype == DType::f32 ? Shape{0} : query_shape_),
        lse_({setting.heads, tokens_}),
        workspace_({setting.heads, tokens_}),
        attributes_{{"scale", 1.0 / std::sqrt(static_cast<double>(setting.head_dim))}, {"dropout", setting.dropout}},
        scratch_(scratch) {
    for (std::int64_t i = 0; i <= setting.documents; ++i) {
      starts_.push_back(static_cast<std::int32_t>(i * setting.document));
    }
    scalars_.tokens = tokens_;
    scalars_.documents = setting.documents;
  }

  void forward() const {
    const std::array in{q_.view(), k_.view(), v_.view(), documents()};
    const std::array out{o_.view(), lse_.view()};
    cpu::attention({in, out, attributes_, scalars_, scratch_});
  }
  void backward() const {
    const std::array in{d_output_.view(), q_.view(), k_.view(), v_.view(), o_.view(), lse_.view(), documents()};
    const std::array out{dq_.view(), dk_.view(), dv_.view(), workspace_.view(), dq_sum_.view()};
    cpu::attention_backward({in, out, attributes_, scalars_, scratch_});
  }
  /// The last query alone, as generation calls it.
  void decode() const {
    const Attributes attributes{{"scale", 1.0}, {"cached", std::int64_t{1}}};
    Scalars scalars = scalars_;
    scalars.tokens = 1;
    scalars.documents = 1;
    scalars.past = tokens_ - 1;
    TensorView one_query = q_.view(), one_output = o_.view();
    one_query.shape[0] = one_output.shape[0] = 1;
    const std::array in{one_query, k_.view(), v_.view(), documents()};
    const std::array out{one_output, lse_.view()};
    cpu::attention({in, out, attributes, scalars, scratch_});
  }
  double cache_bytes() const {
    return 2.0 * static_cast<double>(k_.view().elements()) * static_cast<double>(dtype_bytes(k_.view().dtype));
  }

 private:
  TensorView documents() const {
    return {const_cast<std::int32_t*>(starts_.data()), DType::i32, {static_cast<std::int64_t>(starts_.size())}};
  }

  std::int64_t tokens_;
  Shape query_shape_, key_shape_;
  Tensor q_, k_, v_, o_, d_output_, dq_, dk_, dv_, dq_sum_, lse_, workspace_;
  Attributes attributes_;
  Scalars scalars_;
  const Scratch& scratch_;
  std::vector<std::int32_t> starts_;
};

void print_row(const Setting& setting, const Scratch& scratch, double peak, double budget) {
  const Attention attention(setting, scratch);
  const double forward = least_seconds(budget, [&] { attention.forward(); }).wall;
  const double backward = least_seconds(budget, [&] { attention.backward(); }).wall;
  const double decode = least_seconds(budget / 4, [&] { attention.decode(); }).wall;
  const double forward_rate = 4.0 * static_cast<double>(setting.head_dim) * setting.visible_pairs() / forward;
  const double backward_rate = 10.0 * static_cast<double>(setting.head_dim) * setting.visible_pairs() / backward;
  fmt::print("{:>5} x {:<3} {:>3} {:>3} {:>4} {:<8} {:>4.1f} {:>9.1f} {:>5.0f}% {:>9.1f} {:>5.0f}% {:>8.1f}\n",
             setting.document, setting.documents, setting.heads, setting.kv_heads, setting.head_dim,
             torch_name(setting.dtype), setting.dropout, forward_rate * 1e-9, 100.0 * forward_rate / peak,
             backward_rate * 1e-9, 100.0 * backward_rate / peak, attention.cache_bytes() / decode * 1e-9);
}

void print_table(double budget) {
  const OwnedScratch scratch;
  const double peak = cpu::measure_multiply_add_peak(0.3);
  fmt::print("{} threads, multiply-add peak {:.1f} GFLOP/s\n", threads(), peak * 1e-9);
  fmt::print("{:<11} {:>3} {:>3} {:>4} {:<8} {:>4} {:>9} {:>6} {:>9} {:>6} {:>8}\n", "documents", "N", "K", "D", "type",
             "drop", "forward", "", "backward", "", "1: GB/s");
  for (const Setting& setting :
       {Setting{1024, 1, 4, 2, 64}, Setting{1024, 1, 4, 2, 128}, Setting{4096, 1, 2, 2, 64},
        Setting{4096, 1, 2, 2, 128}, Setting{4096, 1, 2, 1, 64}, Setting{1024, 1, 4, 2, 64, DType::bf16},
        Setting{1024, 1, 4, 1, 64}, Setting{1024, 1, 4, 2, 64, DType::f32, 0.1}, Setting{128, 8, 4, 2, 64},
        Setting{16, 64, 4, 2, 64}, Setting{1024, 1, 4, 2, 48}}) {
    print_row(setting, scratch.get(), peak, budget);
  }
}

std::string to_json(const std::vector<Seconds>& calls) {
  std::vector<double> wall, processor;
  for (const Seconds& call : calls) {
    wall.push_back(call.wall);
    processor.push_back(call.processor);
  }
  return fmt::format("{{\"wall\": [{}], \"processor\": [{}]}}", fmt::join(wall, ", "), fmt::join(processor, ", "));
}

/// Seconds of each call, the ceiling, and by how much operands and kernels together raised the resident size.
void print_json(const Setting& setting, int calls) {
  const OwnedScratch scratch;
  const std::int64_t before = peak_resident_bytes();
  const Attention attention(setting, scratch.get());
  std::vector<Seconds> forward, backward;
  for (int call = 0; call < calls; ++call) {
    forward.push_back(seconds_of([&] { attention.forward(); }));
    backward.push_back(seconds_of([&] { attention.backward(); }));
  }
  const std::int64_t bytes = peak_resident_bytes() - before;
  const ProductTime product = measure_product(0.3, scratch.get());
  fmt::print("{{\"forward\": {}, \"backward\": {}, \"product\": {}, \"product_flops\": {}, \"bytes\": {}}}\n",
             to_json(forward), to_json(backward), to_json({product.seconds}), product.flops, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 9 && std::string_view(argv[1]) == "--json") {
    set_threads(std::atoi(argv[2]));
    cpu::allow_bf16_dot(argc == 9 || std::string_view(argv[9]) != "portable");
    const DType dtype = std::string_view(argv[8]) == "bf16" ? DType::bf16 : DType::f32;
    print_json({std::atoll(argv[3]), 1, std::atoll(argv[4]), std::atoll(argv[5]), std::atoll(argv[6]), dtype},
               std::atoi(argv[7]));
    return 0;
  }
  set_threads(argc > 1 ? std::atoi(argv[1]) : available_cores());
  print_table(argc > 2 ? std::atof(argv[2]) : 0.2);
}
