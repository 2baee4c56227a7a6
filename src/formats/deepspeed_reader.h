#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/json.h"
#include "formats/torch_pickle.h"

namespace heddle {

using NamedShape = std::pair<std::string, std::vector<std::int64_t>>;

/// Reads the parts of a file of DeepSpeed by their keys; where one is absent or something else, an Error says where.
class DeepSpeedReader {
 public:
  using Kind = Pickle::Kind;
  using Object = Pickle::Object;

  explicit DeepSpeedReader(const TorchPickle& file) : file_(file), pickle_(file.pickle()) {}

  const Object& require(const Object& dictionary, const std::string& key) const {
    const Object* found = pickle_.find(dictionary, key);
    if (found == nullptr) fail("{}: has no {}", file_.path(), key);
    return *found;
  }
  /// Null for an absent key and for None.
  const Object* optional(const Object& dictionary, const std::string& key) const {
    const Object* found = pickle_.find(dictionary, key);
    return found == nullptr || found->kind == Kind::none ? nullptr : found;
  }
  const Object& expect(const Object& object, Kind kind, const std::string& where) const {
    if (object.kind != kind) fail("{}: {} is not what DeepSpeed writes there", file_.path(), text_excerpt(where));
    return object;
  }
  const std::vector<int>& items(const Object& object, Kind kind, const std::string& where) const {
    return expect(object, kind, where).items;
  }
  const std::string& text(const Object& object, const std::string& where) const {
    return expect(object, Kind::text, where).text;
  }
  std::int64_t integer(const Object& object, const std::string& where) const {
    const std::int64_t number = expect(object, Kind::integer, where).number;
    if (number < 0) fail("{}: {} is {}; expected at least 0", file_.path(), text_excerpt(where), number);
    return number;
  }
  /// A list or tuple.
  std::vector<std::int64_t> integers(const Object& object, const std::string& where) const {
    std::vector<std::int64_t> values;
    for (const int item : items(object, object.kind == Kind::list ? Kind::list : Kind::tuple, where))
      values.push_back(integer(pickle_.at(item), where));
    return values;
  }
  /// torch.Size of a tuple, or the tuple alone.
  std::vector<std::int64_t> shape(const Object& object, const std::string& where) const {
    if (object.kind != Kind::call) return checked(integers(object, where), where);
    const auto& arguments = items(pickle_.at(object.items[1]), Kind::tuple, where);
    if (pickle_.at(object.items[0]).text != "torch Size" || arguments.size() != 1)
      fail("{}: the shape of {} is none", file_.path(), text_excerpt(where));
    return checked(integers(pickle_.at(arguments[0]), where), where);
  }
  std::vector<NamedShape> shapes(const Object& dictionary, const std::string& where) const {
    std::vector<NamedShape> all;
    for_each(dictionary, where,
             [&](const std::string& name, const Object& value) { all.emplace_back(name, shape(value, name)); });
    return all;
  }
  /// Calls use(name, value).
  template <typename Use>
  void for_each(const Object& dictionary, const std::string& where, Use use) const {
    const auto& list = items(dictionary, Kind::dict, where);
    for (std::size_t i = 0; i < list.size(); i += 2) use(text(pickle_.at(list[i]), where), pickle_.at(list[i + 1]));
  }
  const std::string& path() const { return file_.path(); }
  const Object& at(int index) const { return pickle_.at(index); }

 private:
  /// Their product fits, so that nobody need ask again.
  std::vector<std::int64_t> checked(std::vector<std::int64_t> extents, const std::string& where) const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : extents) {
      if (__builtin_mul_overflow(elements, extent, &elements) || elements > INT64_MAX / 64)
        fail("{}: the shape of {} has more elements than any file", file_.path(), text_excerpt(where));
    }
    return extents;
  }

  const TorchPickle& file_;
  const Pickle& pickle_;
};

}  // namespace heddle
