#include "formats/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "formats/json.h"
#include "formats/pickle.h"
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

std::optional<DType> storage_type(std::string_view name) {
  for (const auto& [storage, dtype] : kStorageTypes) {
    if (storage == name) return dtype;
  }
  return std::nullopt;
}

bool is_allowed(std::string_view name) {
  return storage_type(name) || name == kRebuildTensor || name == kRebuildParameter || name == "collections OrderedDict";
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

/// Fills a TorchFile from what its pickle says.
class TorchReader {
 public:
  explicit TorchReader(TorchFile& file) : file_(file), path_(file.file_.path()) {}

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

  std::string text_of(std::uint64_t begin, std::uint64_t bytes) const {
    std::string text(bytes, '\0');
    file_.file_.read(begin, std::span(text));
    return text;
  }

  void read_zip() {
    const ZipArchive archive(file_.file_);
    std::string prefix;
    for (const auto& [name, entry] : archive.entries()) {
      if (name.ends_with("/data.pkl") && name.find('/') + 9 == name.size()) prefix = name.substr(0, name.find('/') + 1);
    }
    const auto* entry = archive.find(prefix + "data.pkl");
    if (prefix.empty() || entry == nullptr) fail("{}: is no PyTorch file: the archive has no data.pkl", path_);
    if (entry->bytes > kMaxPickleBytes)
      fail("{}: its data.pkl has {} bytes; expected at most {}", path_, entry->bytes, kMaxPickleBytes);
    if (const auto* order = archive.find(prefix + "byteorder");
        order != nullptr && (order->bytes != 6 || text_of(order->begin, order->bytes) != "little")) {
      fail("{}: its byte order is not little", path_);
    }
    const std::string text = text_of(entry->begin, entry->bytes);
    read_tensors(Pickle(text, path_, is_allowed));
    for (auto& [key, storage] : file_.storages_) {
      const auto* data = archive.find(fmt::format("{}data/{}", prefix, key));
      if (data == nullptr) fail("{}: storage {} is missing", path_, text_excerpt(key));
      place(key, storage, data->begin, data->bytes);
    }
  }

  /// Magic number, version, system, the dictionary, and the keys of the storages, each a pickle; then these, each with
  /// its number of elements before it.
  void read_legacy() {
    const std::string text = text_of(0, std::min(file_.file_.size(), kMaxPickleBytes));
    std::size_t at = 0;
    const auto next = [&] {
      Pickle pickle(std::string_view(text).substr(at), path_, is_allowed);
      at += pickle.size();
      return pickle;
    };
    if (!text.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.")) {
      next();  // tells what it is, where it is a pickle at all
      fail("{}: is no PyTorch file: it does not begin with PyTorch's magic number", path_);
    }
    for (int i = 0; i < 3; ++i) next();
    read_tensors(next());
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
      const std::string count = text_of(begin, 8);
      std::memcpy(&elements, count.data(), 8);
      if (elements != static_cast<std::uint64_t>(storage.elements))
        fail("{}: storage {} has {} elements; its tensors say {}", path_, text_excerpt(key), elements,
             storage.elements);
      place(key, storage, begin + 8, bytes);
      begin += 8 + bytes;
    }
    if (seen.size() != file_.storages_.size()) fail("{}: a storage is missing", path_);
  }

  using Storage = TorchFile::Storage;

  void place(const std::string& key, Storage& storage, std::uint64_t begin, std::uint64_t bytes) const {
    if (bytes != static_cast<std::uint64_t>(storage.elements) * dtype_bytes(storage.dtype)) {
      fail("{}: storage {} has {} bytes; its tensors say {} elements of {}", path_, text_excerpt(key), bytes,
           storage.elements, torch_name(storage.dtype));
    }
    storage.begin = begin;
  }

  void read_tensors(const Pickle& pickle) {
    const Object* dictionary = &pickle.root();
    if (dictionary->kind != Kind::dict) fail("{}: holds no dictionary of tensors", path_);
    for (std::size_t i = 0; i < dictionary->items.size(); i += 2) {
      const Object& key = pickle.at(dictionary->items[i]);
      const Object& value = pickle.at(dictionary->items[i + 1]);
      if (value.kind == Kind::dict && key.kind == Kind::text &&
          (key.text == "state_dict" || key.text == "model" || key.text == "module")) {
        dictionary = &value;
        break;
      }
    }
    std::set<std::string> names;
    for (std::size_t i = 0; i < dictionary->items.size(); i += 2) {
      const Object& key = pickle.at(dictionary->items[i]);
      if (key.kind != Kind::text) fail("{}: a name of its dictionary is no text", path_);
      if (!names.insert(key.text).second) fail("{}: tensor {} is there twice", path_, text_excerpt(key.text));
      add_tensor(pickle, key.text, pickle.at(dictionary->items[i + 1]));
    }
  }

  void add_tensor(const Pickle& pickle, const std::string& name, const Object& value) {
    const auto refuse = [&](std::string_view what) { fail("{}: {}: {}", path_, text_excerpt(name), what); };
    const Object* object = &value;
    const auto arguments_of = [&](std::string_view function) -> const std::vector<int>* {
      if (object->kind != Kind::call || pickle.at(object->items[0]).text != function) return nullptr;
      return &pickle.at(object->items[1]).items;
    };
    if (const auto* arguments = arguments_of(kRebuildParameter)) {
      if (arguments->empty()) refuse("a parameter of nothing");
      object = &pickle.at((*arguments)[0]);
    }
    const auto* arguments = arguments_of(kRebuildTensor);
    if (arguments == nullptr || arguments->size() < 4) {
      refuse("is no tensor");
      return;
    }
    TorchTensor tensor;
    tensor.name = name;
    add_storage(pickle, pickle.at((*arguments)[0]), tensor);
    tensor.offset = integer(pickle, (*arguments)[1], name);
    for (auto [list, argument] : {std::pair{&tensor.shape, (*arguments)[2]}, {&tensor.strides, (*arguments)[3]}}) {
      if (pickle.at(argument).kind != Kind::tuple) refuse("its shape is none");
      for (const int item : pickle.at(argument).items) list->push_back(integer(pickle, item, name));
    }
    check_view(tensor);
    file_.tensors_.push_back(std::move(tensor));
  }

  std::int64_t integer(const Pickle& pickle, int index, const std::string& name) const {
    const Object& object = pickle.at(index);
    if (object.kind != Kind::integer || object.number < 0)
      fail("{}: {}: an extent, stride or offset is no whole number of at least 0", path_, text_excerpt(name));
    return object.number;
  }

  /// ("storage", type, key, device, elements)
  void add_storage(const Pickle& pickle, const Object& persistent, TorchTensor& tensor) {
    const auto refuse = [&] { fail("{}: {}: its storage is none", path_, text_excerpt(tensor.name)); };
    if (persistent.kind != Kind::persistent) refuse();
    const Object& description = pickle.at(persistent.items[0]);
    if (description.kind != Kind::tuple || description.items.size() < 5) refuse();
    const auto part = [&](std::size_t i) -> const Object& { return pickle.at(description.items[i]); };
    const auto dtype = storage_type(part(1).text);
    if (part(0).text != "storage" || part(1).kind != Kind::global || !dtype || part(2).kind != Kind::text) refuse();
    const std::int64_t elements = integer(pickle, description.items[4], tensor.name);
    tensor.dtype = *dtype;
    tensor.storage = part(2).text;
    if (elements > INT64_MAX / 8) refuse();
    const auto [found, is_new] = file_.storages_.emplace(tensor.storage, Storage{*dtype, elements, 0});
    if (!is_new && (found->second.dtype != *dtype || found->second.elements != elements))
      fail("{}: {}: storage {} has another type or size elsewhere", path_, text_excerpt(tensor.name),
           text_excerpt(tensor.storage));
  }

  void check_view(const TorchTensor& tensor) const {
    const std::string where = fmt::format("{}: {}", path_, text_excerpt(tensor.name));
    const std::int64_t there = file_.storages_.at(tensor.storage).elements;
    if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > kMaxAxes)
      fail("{}: has {} extents and {} strides", where, tensor.shape.size(), tensor.strides.size());
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
      fail("{}: reaches beyond its storage of {} elements", where, there);
    if (!is_empty && elements > std::max(there, kMaxExpanded))
      fail("{}: repeats its storage of {} elements to {}", where, there, elements);
  }

  TorchFile& file_;
  const std::string& path_;
};

TorchFile::TorchFile(const std::filesystem::path& path) : file_(path) { TorchReader(*this).read(); }

void TorchFile::read(const TorchTensor& tensor, const std::function<void(std::span<const std::byte>)>& use) const {
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
