#include "collectives.h"

#include <fmt/format.h>

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace heddle::collectives {

namespace {

/// Vigna's splitmix64 (https://prng.di.unimi.it/splitmix64.c), of a number that is different for each argument.
std::uint64_t random_bits(int stream, int rank, std::size_t index) {
  std::uint64_t z = (static_cast<std::uint64_t>(stream) << 40) + (static_cast<std::uint64_t>(rank) << 32) + index;
  z = (z + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

template <typename T>
T value(int stream, int rank, std::size_t index) {
  const std::uint64_t bits = random_bits(stream, rank, index);
  if constexpr (std::is_floating_point_v<T>) {
    // Sign and fraction as they come; the exponent from -16 to 15.
    const std::uint64_t exponent = 1023 - 16 + ((bits >> 52) & 31);
    return static_cast<T>(std::bit_cast<double>((bits & 0x800fffffffffffff) | (exponent << 52)));
  } else {
    return static_cast<T>(bits);
  }
}
template float value<float>(int, int, std::size_t);
template double value<double>(int, int, std::size_t);
template std::int32_t value<std::int32_t>(int, int, std::size_t);
template std::int64_t value<std::int64_t>(int, int, std::size_t);

namespace {

using Bytes = std::vector<std::byte>;

/// Bytes of one tensor: nothing, one, odd, within a message, and over the longest message of any transport.
constexpr std::size_t kSizes[] = {0, 1, 3, 64, 4'099, 1'310'723};

class Checker {
 public:
  explicit Checker(Communicator& communicator) : c_(communicator) {}

  std::vector<Outcome> run() {
    for (const std::size_t size : kSizes) {
      gather({size});
      for (int root = 0; root < c_.size(); ++root) broadcast({size}, root);
      all_to_all(size);
      all_to_all_uneven(size);
      ring(size);
    }
    gather({5, 0, 1'200'000, 17, 1'048'576, 3});
    gather(std::vector<std::size_t>(50, 24));
    broadcast({7, 0, 1'100'000, 64}, c_.size() - 1);
    for (const std::size_t elements : {0, 1, 3, 64, 1'001, 300'007}) {
      for (const bool add : {false, true}) {
        for (const int active : {1, c_.size() / 2, c_.size()}) {
          if (active == 0 || (elements > 10'000 && active != c_.size())) continue;
          scatter<float>({elements}, add, active);
          scatter<double>({elements}, add, active);
        }
      }
      reduce<float>({elements});
      reduce<double>({elements});
      reduce<std::int32_t>({elements});
      reduce<std::int64_t>({elements});
    }
    scatter<float>({3, 0, 270'000, 1, 50}, true, std::max(1, c_.size() - 1));
    for (const std::size_t count : {std::size_t{1'001}, std::size_t{300'007}}) {
      for (const bool add : {false, true}) scatter_in_place(count, add);
    }
    scatter_of_two_types();
    reduce<float>({3, 0, 270'000, 1, 50});
    reduce<float>({1'500'001});
    reduce<double>(std::vector<std::size_t>(60, 5));
    maximum_of_nothing_less_than_nan();
    messages_of_one_tag_keep_their_order();
    groups();
    c_.barrier("at the end");
    return std::move(outcomes_);
  }

 private:
  template <typename T>
  std::vector<T> values(int stream, int rank, std::size_t count) const {
    std::vector<T> made(count);
    for (std::size_t k = 0; k < count; ++k) made[k] = value<T>(stream, rank, k);
    return made;
  }
  Bytes bytes(int stream, int rank, std::size_t count) const {
    Bytes made(count);
    for (std::size_t k = 0; k < count; ++k) {
      made[k] = static_cast<std::byte>(
          (static_cast<std::size_t>(stream) * 131 + static_cast<std::size_t>(rank) * 31 + k * 7) % 251);
    }
    return made;
  }

  /// Compares bits, and notes them.
  void expect(const std::string& name, std::span<const std::byte> found, std::span<const std::byte> right) {
    if (found.size() != right.size() ||
        (!found.empty() && std::memcmp(found.data(), right.data(), found.size()) != 0)) {
      const auto place = std::mismatch(found.begin(), found.end(), right.begin(), right.end()).first - found.begin();
      fail("{}, rank {} of {}: byte {} differs", name, c_.rank(), c_.size(), place);
    }
    outcomes_.push_back({name, XXH3_64bits(found.data(), found.size())});
  }
  template <typename T>
  void expect(const std::string& name, const std::vector<T>& found, const std::vector<T>& right) {
    expect(name, std::as_bytes(std::span(found)), std::as_bytes(std::span(right)));
  }

  void gather(const std::vector<std::size_t>& sizes) {
    const auto ranks = static_cast<std::size_t>(c_.size()), place = static_cast<std::size_t>(c_.rank());
    for (const bool in_place : {false, true}) {
      std::vector<Bytes> mine, all;
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        mine.push_back(bytes(static_cast<int>(t), c_.rank(), sizes[t]));
        all.emplace_back(sizes[t] * ranks);
        if (in_place)
          std::copy(mine[t].begin(), mine[t].end(), all[t].begin() + static_cast<std::ptrdiff_t>(place * sizes[t]));
      }
      std::vector<GatherPiece> pieces;
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        const std::span<std::byte> whole(all[t]);
        pieces.push_back({in_place ? whole.subspan(place * sizes[t], sizes[t]) : std::span<std::byte>(mine[t]), whole});
      }
      c_.all_gather(pieces, "tensors of the test");
      for (std::size_t t = 0; t < sizes.size(); ++t) {
        Bytes right;
        for (int r = 0; r < c_.size(); ++r) {
          const Bytes theirs = bytes(static_cast<int>(t), r, sizes[t]);
          right.insert(right.end(), theirs.begin(), theirs.end());
        }
        expect(fmt::format("all_gather {} of {}{}", t, fmt::join(sizes, ","), in_place ? " in place" : ""), all[t],
               right);
      }
    }
  }

  /// ((start + c_0) + c_1) + ..., or from c_0 on.
  template <typename T>
  std::vector<T> left_fold(int stream, std::size_t count, std::size_t offset, int active, const std::vector<T>* start) {
    std::vector<T> sums(count);
    for (std::size_t k = 0; k < count; ++k) {
      T sum = start != nullptr ? (*start)[k] : value<T>(stream, 0, offset + k);
      for (int r = start != nullptr ? 0 : 1; r < active; ++r) {
        const T next = value<T>(stream, r, offset + k);
        if constexpr (std::is_floating_point_v<T>) {
          sum += next;
        } else {
          using Unsigned = std::make_unsigned_t<T>;
          sum = static_cast<T>(static_cast<Unsigned>(sum) + static_cast<Unsigned>(next));
        }
      }
      sums[k] = sum;
    }
    return sums;
  }

  template <typename T>
  void scatter(const std::vector<std::size_t>& counts, bool add, int active) {
    const auto ranks = static_cast<std::size_t>(c_.size()), place = static_cast<std::size_t>(c_.rank());
    std::vector<std::vector<T>> contributions, targets, starts;
    std::vector<ScatterPiece> pieces;
    for (std::size_t t = 0; t < counts.size(); ++t) {
      const int stream = static_cast<int>(t);
      // Ranks that are not active may bring nothing, or what must not count.
      const bool brings = c_.rank() < active || (c_.rank() + stream) % 2 == 0;
      contributions.push_back(values<T>(stream, c_.rank(), brings ? counts[t] * ranks : 0));
      starts.push_back(values<T>(1000 + stream, c_.rank(), counts[t]));
      targets.push_back(starts.back());
    }
    for (std::size_t t = 0; t < counts.size(); ++t) {
      pieces.push_back({std::as_bytes(std::span(contributions[t])), std::as_writable_bytes(std::span(targets[t])),
                        DTypeOf<T>::value});
    }
    c_.reduce_scatter(pieces, {add, active, Order::ordered}, "gradients of the test");
    for (std::size_t t = 0; t < counts.size(); ++t) {
      expect(fmt::format("reduce_scatter {} of {}, {} bytes each, add {}, active {}", t, fmt::join(counts, ","),
                         sizeof(T), add, active),
             targets[t],
             left_fold<T>(static_cast<int>(t), counts[t], place * counts[t], active, add ? &starts[t] : nullptr));
    }
  }

  void scatter_in_place(std::size_t count, bool add) {
    const auto ranks = static_cast<std::size_t>(c_.size()), place = static_cast<std::size_t>(c_.rank());
    auto all = values<float>(3, c_.rank(), count * ranks);
    const auto base = values<float>(1003, c_.rank(), count);
    const auto own = std::span(all).subspan(place * count, count);
    const ScatterPiece piece{std::as_bytes(std::span(all)), std::as_writable_bytes(own), DType::f32,
                             std::as_bytes(std::span(base))};
    c_.reduce_scatter(std::span(&piece, 1), {.add = add});
    auto right = values<float>(3, c_.rank(), count * ranks);  // all but its own piece stays
    const auto sums = left_fold<float>(3, count, place * count, c_.size(), add ? &base : nullptr);
    std::copy(sums.begin(), sums.end(), right.begin() + static_cast<std::ptrdiff_t>(place * count));
    expect(fmt::format("reduce_scatter in place of {}, add {}", count, add), all, right);
  }

  /// An odd number of floats leaves what follows in a message between two addresses of doubles.
  void scatter_of_two_types() {
    const auto ranks = static_cast<std::size_t>(c_.size()), place = static_cast<std::size_t>(c_.rank());
    const auto floats = values<float>(4, c_.rank(), 3 * ranks);
    const auto doubles = values<double>(5, c_.rank(), 5 * ranks);
    std::vector<float> float_sums(3);
    std::vector<double> double_sums(5);
    const ScatterPiece pieces[] = {
        {std::as_bytes(std::span(floats)), std::as_writable_bytes(std::span(float_sums)), DType::f32},
        {std::as_bytes(std::span(doubles)), std::as_writable_bytes(std::span(double_sums)), DType::f64}};
    c_.reduce_scatter(pieces);
    expect("reduce_scatter of floats before doubles", float_sums,
           left_fold<float>(4, 3, place * 3, c_.size(), nullptr));
    expect("reduce_scatter of doubles after floats", double_sums,
           left_fold<double>(5, 5, place * 5, c_.size(), nullptr));
  }

  template <typename T>
  void reduce(const std::vector<std::size_t>& counts) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
      std::vector<std::vector<T>> tensors;
      for (std::size_t t = 0; t < counts.size(); ++t) {
        tensors.push_back(values<T>(static_cast<int>(t), c_.rank(), counts[t]));
      }
      std::vector<ReducePiece> pieces;
      for (auto& tensor : tensors) pieces.push_back({std::as_writable_bytes(std::span(tensor)), DTypeOf<T>::value});
      c_.all_reduce(pieces, reduction);
      for (std::size_t t = 0; t < counts.size(); ++t) {
        auto right = left_fold<T>(static_cast<int>(t), counts[t], 0, c_.size(), nullptr);
        if (reduction == Reduction::max) {
          for (std::size_t k = 0; k < counts[t]; ++k) {
            right[k] = value<T>(static_cast<int>(t), 0, k);
            for (int r = 1; r < c_.size(); ++r) right[k] = std::max(right[k], value<T>(static_cast<int>(t), r, k));
          }
        }
        expect(fmt::format("all_reduce {} of {}, {} {}", t, fmt::join(counts, ","), torch_name(DTypeOf<T>::value),
                           reduction == Reduction::sum ? "sum" : "maximum"),
               tensors[t], right);
      }
    }
  }

  void maximum_of_nothing_less_than_nan() {
    std::vector<float> found{1.0F, static_cast<float>(c_.rank()), -2.0F};
    if (c_.rank() == c_.size() / 2) found[0] = std::nanf("");
    c_.all_reduce(std::span(found), Reduction::max);
    if (!std::isnan(found[0])) fail("the maximum lost a NaN: {}", found[0]);
    expect("maximum beside a NaN", std::vector(found.begin() + 1, found.end()),
           {static_cast<float>(c_.size() - 1), -2.0F});
  }

  void broadcast(const std::vector<std::size_t>& sizes, int root) {
    std::vector<Bytes> tensors;
    std::vector<std::span<std::byte>> pieces;
    for (std::size_t t = 0; t < sizes.size(); ++t) tensors.push_back(bytes(static_cast<int>(t), c_.rank(), sizes[t]));
    for (auto& tensor : tensors) pieces.emplace_back(tensor);
    c_.broadcast(pieces, root);
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      expect(fmt::format("broadcast {} of {} from {}", t, fmt::join(sizes, ","), root), tensors[t],
             bytes(static_cast<int>(t), root, sizes[t]));
    }
  }

  void all_to_all(std::size_t size) {
    const auto ranks = static_cast<std::size_t>(c_.size()), place = static_cast<std::size_t>(c_.rank());
    const Bytes out = bytes(6, c_.rank(), size * ranks);
    Bytes in(size * ranks), right;
    c_.all_to_all(out, in);
    for (int r = 0; r < c_.size(); ++r) {
      const Bytes theirs = bytes(6, r, size * ranks);
      const auto begin = theirs.begin() + static_cast<std::ptrdiff_t>(place * size);
      right.insert(right.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    }
    expect(fmt::format("all_to_all of {}", size), in, right);
  }

  /// From a to b go `size` bytes if a + b is even, (a + 2b) else.
  void all_to_all_uneven(std::size_t size) {
    const auto count = [&](int from, int to) {
      return (from + to) % 2 == 0 ? size : static_cast<std::size_t>(from + 2 * to);
    };
    std::vector<Bytes> out, in;
    for (int r = 0; r < c_.size(); ++r) {
      out.push_back(bytes(c_.rank() + 10 * r, c_.rank(), count(c_.rank(), r)));
      in.emplace_back(count(r, c_.rank()));
    }
    std::vector<std::span<const std::byte>> out_pieces(out.begin(), out.end());
    std::vector<std::span<std::byte>> in_pieces(in.begin(), in.end());
    c_.all_to_all(out_pieces, in_pieces);
    for (int r = 0; r < c_.size(); ++r) {
      expect(fmt::format("uneven all_to_all of {} from {}", size, r), in[static_cast<std::size_t>(r)],
             bytes(r + 10 * c_.rank(), r, count(r, c_.rank())));
    }
  }

  /// Once round with exchange; then by send and receive, where every second rank speaks first.
  void ring(std::size_t size) {
    const int next = (c_.rank() + 1) % c_.size(), previous = (c_.rank() + c_.size() - 1) % c_.size();
    const Bytes out = bytes(8, c_.rank(), size);
    Bytes in(size);
    c_.exchange(out, next, in, previous, 5);
    expect(fmt::format("exchange of {}", size), in, bytes(8, previous, size));
    if (c_.size() == 1) return;
    in.assign(size, std::byte{});
    if (c_.rank() % 2 == 0) c_.send(out, next, 7);
    c_.receive(in, previous, 7);
    if (c_.rank() % 2 != 0) c_.send(out, next, 7);
    expect(fmt::format("send and receive of {}", size), in, bytes(8, previous, size));
  }

  void messages_of_one_tag_keep_their_order() {
    if (c_.size() == 1) return;
    const int last = c_.size() - 1;
    std::vector<Bytes> received(3, Bytes(9));
    if (c_.rank() == 0) {
      for (int m = 0; m < 3; ++m) c_.send(bytes(20 + m, 0, 9), last, 3);
    } else if (c_.rank() == last) {
      for (Bytes& message : received) c_.receive(message, 0, 3);
      for (int m = 0; m < 3; ++m) {
        expect(fmt::format("message {} of one tag", m), received[static_cast<std::size_t>(m)], bytes(20 + m, 0, 9));
      }
    }
  }

  void groups() {
    // Every third rank, the last first; rank 1 stays out of it.
    const int color = c_.rank() == 1 ? -1 : c_.rank() % 3;
    const auto group = c_.split(color, -c_.rank());
    if ((group == nullptr) != (color < 0)) fail("rank {}: a group for no colour, or none for one", c_.rank());
    if (group) {
      std::vector<int> members;
      for (int r = c_.size() - 1; r >= 0; --r) {
        if (r != 1 && r % 3 == color) members.push_back(r);
      }
      if (group->size() != static_cast<int>(members.size()) ||
          members[static_cast<std::size_t>(group->rank())] != c_.rank()) {
        fail("rank {} is {} of {} in its group", c_.rank(), group->rank(), group->size());
      }
      std::vector<std::int64_t> sum{c_.rank() + 1};
      group->all_reduce(std::span(sum));
      std::int64_t right = 0;
      for (const int member : members) right += member + 1;
      expect("all_reduce in a group", sum, {right});
      const Bytes mine = bytes(9, c_.rank(), 100);
      Bytes all(100 * members.size()), gathered;
      group->all_gather(mine, all);
      for (const int member : members) {
        const Bytes theirs = bytes(9, member, 100);
        gathered.insert(gathered.end(), theirs.begin(), theirs.end());
      }
      expect("all_gather in a group", all, gathered);
    }
    const auto twin = c_.split(0, 0);
    if (twin->rank() != c_.rank() || twin->size() != c_.size()) fail("a group of all has another order");
  }

  Communicator& c_;
  std::vector<Outcome> outcomes_;
};

}  // namespace

std::vector<Outcome> check_all(Communicator& communicator) { return Checker(communicator).run(); }

}  // namespace heddle::collectives
