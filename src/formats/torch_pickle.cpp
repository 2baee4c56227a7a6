#include "formats/torch_pickle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "formats/json.h"
#include "formats/zip_archive.h"

namespace heddle {
namespace {

constexpr std::uint64_t kMaxPickleBytes = std::uint64_t{64} << 20;
constexpr std::int64_t kMaxExpanded = std::int64_t{1} << 24;  // elements of a view that repeats its storage's
constexpr std::size_t kMaxAxes = 64;
constexpr std::uint64_t kBuffered = std::uint64_t{1} << 20;  // bytes

constexpr std::array<std::pair<std::string_view, DType>, 10> kStorageTypes = {{{"torch DoubleStorage", DType::f64},
                                                                               {"torch FloatStorage", DType::f32},
                                                                               {"torch HalfStorage", DType::f16},
                                                                               {"torch BFloat16Storage", DType::bf16},
                                                                               {"torch LongStorage", DType::i64},
                                                                               {"torch IntStorage", DType::i32},
                                                                               {"torch ShortStorage", DType::i16},
                                                                               {"torch CharStorage", DType::i8},
                                                                               {"torch ByteStorage", DType::u8},
                                                                               {"torch BoolStorage", DType::boolean}}};
constexpr std::string_view kRebuildTensor = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils _rebuild_parameter";
constexpr std::string_view kRebuildFromType = "torch._tensor _rebuild_from_type_v2";
constexpr std::string_view kOrderedDict = "collections OrderedDict";
constexpr std::string_view kLegacyBegin = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

std::optional<DType> storage_type(std::string_view name) {
  for (const auto& [storage, dtype] : kStorageTypes) {
    if (storage == name) return dtype;
  }
  return std::nullopt;
}

bool is_of_tensors(std::string_view name) {
  return storage_type(name) || name == kRebuildTensor || name == kRebuildParameter || name == kOrderedDict;
}

}  // namespace

std::int64_t TorchTensor::elements() const {
  std::int64_t product = 1;
  for (const auto extent : shape) product *= extent;
  return product;
}

bool TorchTensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t axis = shape.size(); axis > 0; --axis) {
    if (shape[axis - 1] != 1 && strides[axis - 1] != expected) return false;
    expected *= shape[axis - 1];
  }
  return true;
}

/// Fills a TorchPickle from its file.
class TorchReader {
 public:
  TorchReader(TorchPickle& file, const std::function<bool(std::string_view)>& allows)
      : file_(file),
        path_(file.path()),
        allows_([&allows](std::string_view name) { return is_of_tensors(name) || allows(name); }) {}

  void read() {
    if (is_zip(file_.file_)) {
      read_zip();
    } else {
      read_legacy();
    }
  }

 private:
  using Kind = Pickle::Kind;
  using Object = Pickle::Object;
  using Storage = TorchPickle::Storage;

  void read_zip() {
    const ZipArchive archive(file_.file_);
    std::string prefix;
    for (const auto& [name, entry] : archive.entries()) {
      if (name.ends_with("/data.pkl") && name.find('/') + 9 == name.size()) prefix = name.substr(0, name.find('/') + 1);
    }
    if (prefix.empty() || archive.find(prefix + "data.pkl") == nullptr)
      fail("{}: is no PyTorch file: the archive has no data.pkl", path_);
    if (archive.find(prefix + "byteorder") != nullptr && archive.read(prefix + "byteorder", 16) != "little")
      fail("{}: its byte order is not little", path_);
    file_.pickle_ = Pickle(archive.read(prefix + "data.pkl", kMaxPickleBytes), path_, allows_);
    add_storages();
    for (auto& [key, storage] : file_.storages_) {
      storage.entry = fmt::format("{}data/{}", prefix, key);
      const auto* data = archive.find(storage.entry);
      if (data == nullptr) fail("{}: storage {} is missing", path_, text_excerpt(key));
      place(key, storage, data->begin, data->bytes);
    }
  }

  /// Magic number, version, system, the dictionary, and the keys of the storages, each a pickle; then these, each with
  /// its number of elements before it.
  void read_legacy() {
    std::string text(std::min(file_.file_.size(), kMaxPickleBytes), '\0');
    file_.file_.read(0, std::span(text));
    std::size_t at = 0;
    const auto next = [&] {
      Pickle pickle(std::string_view(text).substr(at), path_, allows_);
      at += pickle.size();
      return pickle;
    };
    if (!text.starts_with(kLegacyBegin)) {
      next();  // tells what it is, where it is a pickle at all
      fail("{}: is no PyTorch file: it does not begin with PyTorch's magic number", path_);
    }
    for (int i = 0; i < 3; ++i) next();
    file_.pickle_ = next();
    add_storages();
    const Pickle keys = next();
    if (keys.root().kind != Kind::list) fail("{}: its list of storages is none", path_);
    std::uint64_t begin = at;
    std::set<std::string> seen;
    for (const int index : keys.root().items) {
      const std::string& key = keys.at(index).text;
      const auto found = file_.storages_.find(key);
      if (found == file_.storages_.end() || !seen.insert(key).second)
        fail("{}: storage {} belongs to no tensor, or is there twice", path_, text_excerpt(key));
      Storage& storage = found->second;
      const std::uint64_t bytes = static_cast<std::uint64_t>(storage.elements) * dtype_bytes(storage.dtype);
      if (begin + 8 > file_.file_.size() || bytes > file_.file_.size() - begin - 8)
        fail("{}: ends inside storage {}", path_, text_excerpt(key));
      std::uint64_t elements = 0;
      file_.file_.read(begin, std::as_writable_bytes(std::span(&elements, 1)));
      if (elements != static_cast<std::uint64_t>(storage.elements))
        fail("{}: storage {} has {} elements; its tensors say {}", path_, text_excerpt(key), elements,
             storage.elements);
      place(key, storage, begin + 8, bytes);
      begin += 8 + bytes;
    }
    if (seen.size() != file_.storages_.size()) fail("{}: a storage is missing", path_);
  }

  void place(const std::string& key, Storage& storage, std::uint64_t begin, std::uint64_t bytes) const {
    if (bytes != static_cast<std::uint64_t>(storage.elements) * dtype_bytes(storage.dtype)) {
      fail("{}: storage {} has {} bytes; its tensors say {} elements of {}", path_, text_excerpt(key), bytes,
           storage.elements, torch_name(storage.dtype));
    }
    storage.begin = begin;
  }

  /// ("storage", type, key, device, elements), of all tensors.
  void add_storages() {
    for (const Object& object : file_.pickle_.objects()) {
      if (object.kind != Kind::persistent) continue;
      const auto refuse = [&] { fail("{}: names a storage that is none", path_); };
      const Object& description = file_.pickle_.at(object.items[0]);
      if (description.kind != Kind::tuple || description.items.size() < 5) refuse();
      const auto part = [&](std::size_t i) -> const Object& { return file_.pickle_.at(description.items[i]); };
      const auto dtype = storage_type(part(1).text);
      if (part(0).text != "storage" || part(1).kind != Kind::global || !dtype || part(2).kind != Kind::text) refuse();
      const std::int64_t elements = part(4).number;
      if (part(4).kind != Kind::integer || elements < 0 || elements > INT64_MAX / 8) refuse();
      const auto [found, is_new] = file_.storages_.emplace(part(2).text, Storage{*dtype, elements, 0, {}});
      if (!is_new && (found->second.dtype != *dtype || found->second.elements != elements))
        fail("{}: storage {} has two types or sizes", path_, text_excerpt(part(2).text));
    }
  }

  TorchPickle& file_;
  const std::string& path_;
  const std::function<bool(std::string_view)> allows_;
};

namespace {

/// Looks at one tensor of a pickle.
class TensorReader {
 public:
  TensorReader(const Pickle& pickle, const std::string& path, const std::string& name)
      : pickle_(pickle), where_(fmt::format("{}: {}", path, text_excerpt(name))) {}

  /// Without its type and view checked; the storage is one that the file has.
  TorchTensor read(const Pickle::Object& object) const {
    const auto& arguments = pickle_.at(arguments_of_tensor(object)).items;
    if (arguments.size() < 4) fail("{}: is no tensor", where_);
    const Pickle::Object& persistent = pickle_.at(arguments[0]);
    if (persistent.kind != Pickle::Kind::persistent) fail("{}: its storage is none", where_);
    TorchTensor tensor;
    tensor.storage = pickle_.at(pickle_.at(persistent.items[0]).items[2]).text;
    tensor.offset = integer(arguments[1]);
    tensor.shape = integers(arguments[2]);
    tensor.strides = integers(arguments[3]);
    return tensor;
  }

  void check_view(const TorchTensor& tensor, std::int64_t there) const {
    if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > kMaxAxes)
      fail("{}: has {} extents and {} strides", where_, tensor.shape.size(), tensor.strides.size());
    std::int64_t elements = 1, last = tensor.offset;
    bool overflows = false;
    const bool is_empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    for (std::size_t axis = 0; axis < tensor.shape.size() && !is_empty; ++axis) {
      std::int64_t reach = 0;
      overflows = overflows || __builtin_mul_overflow(elements, tensor.shape[axis], &elements) ||
                  __builtin_mul_overflow(tensor.shape[axis] - 1, tensor.strides[axis], &reach) ||
                  __builtin_add_overflow(last, reach, &last);
    }
    if (is_empty ? tensor.offset > there : overflows || last >= there)
      fail("{}: reaches beyond its storage of {} elements", where_, there);
    if (!is_empty && elements > std::max(there, kMaxExpanded))
      fail("{}: repeats its storage of {} elements to {}", where_, there, elements);
  }

 private:
  using Kind = Pickle::Kind;

  /// Of _rebuild_tensor_v2, through what may stand around it: a parameter (tensor, ...), a tensor of a class (function,
  /// class, its arguments, ...).
  int arguments_of_tensor(const Pickle::Object& object) const {
    const Pickle::Object* call = &object;
    for (int around = 0; around < 3 && call->kind == Kind::call; ++around) {
      const std::string& function = pickle_.at(call->items[0]).text;
      const auto& arguments = pickle_.at(call->items[1]).items;
      if (function == kRebuildTensor) return call->items[1];
      if (function == kRebuildParameter && !arguments.empty()) {
        call = &pickle_.at(arguments[0]);
      } else if (function == kRebuildFromType && arguments.size() >= 3 &&
                 pickle_.at(arguments[0]).text == kRebuildTensor && pickle_.at(arguments[2]).kind == Kind::tuple) {
        return arguments[2];
      } else {
        break;
      }
    }
    fail("{}: is no tensor", where_);
  }
  std::int64_t integer(int index) const {
    const Pickle::Object& object = pickle_.at(index);
    if (object.kind != Kind::integer || object.number < 0)
      fail("{}: an extent, stride or offset is no whole number of at least 0", where_);
    return object.number;
  }
  std::vector<std::int64_t> integers(int index) const {
    if (pickle_.at(index).kind != Kind::tuple) fail("{}: its shape is none", where_);
    std::vector<std::int64_t> values;
    for (const int item : pickle_.at(index).items) values.push_back(integer(item));
    return values;
  }

  const Pickle& pickle_;
  const std::string where_;
};

}  // namespace

TorchPickle::TorchPickle(const std::filesystem::path& path, const std::function<bool(std::string_view)>& allows)
    : file_(path) {
  TorchReader(*this, allows).read();
}

TorchTensor TorchPickle::tensor(const Pickle::Object& object, const std::string& name) const {
  const TensorReader reader(pickle_, path(), name);
  TorchTensor tensor = reader.read(object);
  const Storage& storage = storages_.at(tensor.storage);
  reader.check_view(tensor, storage.elements);
  tensor.name = name;
  tensor.dtype = storage.dtype;
  return tensor;
}

void TorchPickle::verify(const std::vector<TorchTensor>& tensors) const {
  if (!is_zip(file_)) return;
  const ZipArchive archive(file_);
  std::set<std::string> entries;
  for (const auto& tensor : tensors) entries.insert(storages_.at(tensor.storage).entry);
  for (const auto& entry : entries) archive.verify(entry);
}

void TorchPickle::read_contiguous(const TorchTensor& tensor, std::int64_t begin, std::span<std::byte> target) const {
  const auto size = static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
  const auto count = static_cast<std::int64_t>(target.size()) / size;
  HEDDLE_CHECK(tensor.is_contiguous() && begin >= 0 && begin + count <= tensor.elements());
  file_.read(storages_.at(tensor.storage).begin + static_cast<std::uint64_t>((tensor.offset + begin) * size), target);
}

void TorchPickle::read(const TorchTensor& tensor, const std::function<void(std::span<const std::byte>)>& use) const {
  const Storage& storage = storages_.at(tensor.storage);
  const std::uint64_t size = dtype_bytes(tensor.dtype);
  const auto elements = static_cast<std::uint64_t>(tensor.elements());
  std::vector<std::byte> piece;
  const auto read_bytes = [&](std::uint64_t first, std::uint64_t count) {
    piece.resize(count * size);
    file_.read(storage.begin + first * size, std::span(piece));
  };
  if (tensor.is_contiguous()) {
    const std::uint64_t at_once = kBuffered / size;
    for (std::uint64_t at = 0; at < elements; at += at_once) {
      read_bytes(static_cast<std::uint64_t>(tensor.offset) + at, std::min(at_once, elements - at));
      use(piece);
    }
    return;
  }
  if (elements == 0) return;
  read_bytes(0, static_cast<std::uint64_t>(storage.elements));
  std::vector<std::byte> row;
  std::vector<std::int64_t> place(tensor.shape.size(), 0);
  std::int64_t at = tensor.offset;
  for (std::uint64_t i = 0; i < elements; ++i) {
    const auto* from = piece.data() + static_cast<std::uint64_t>(at) * size;
    row.insert(row.end(), from, from + size);
    if (row.size() >= kBuffered) {
      use(row);
      row.clear();
    }
    for (std::size_t axis = place.size(); axis > 0; --axis) {  // the next place, and what it moves by
      at += tensor.strides[axis - 1];
      if (++place[axis - 1] < tensor.shape[axis - 1]) break;
      at -= tensor.strides[axis - 1] * tensor.shape[axis - 1];
      place[axis - 1] = 0;
    }
  }
  use(row);
}

}  // namespace heddle
