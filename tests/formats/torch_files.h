#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Files as torch.save writes them, put together by hand: pickled values, and the archive around them.
namespace heddle::torch_files {

inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xff);
  return text;
}

// Opcodes of Python's pickletools, protocol 2.
inline std::string text(std::string_view s) { return "X" + little(s.size(), 4) + std::string(s); }
inline std::string number(std::int32_t n) { return "J" + little(static_cast<std::uint32_t>(n), 4); }
inline std::string none() { return "N"; }
inline std::string join(const std::vector<std::string>& items) {
  std::string all;
  for (const auto& item : items) all += item;
  return all;
}
inline std::string tuple(const std::vector<std::string>& items) { return "(" + join(items) + "t"; }
inline std::string list(const std::vector<std::string>& items) { return "](" + join(items) + "e"; }
inline std::string numbers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const auto value : values) items.push_back(number(static_cast<std::int32_t>(value)));
  return tuple(items);
}
using Items = std::vector<std::pair<std::string, std::string>>;
inline std::string dict(const Items& items) {
  std::string all = "}(";
  for (const auto& [key, value] : items) all += text(key) + value;
  return all + "u";
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string call(const std::string& function, const std::string& arguments) {
  return function + arguments + "R";
}
/// An object whose class has no __reduce__: __new__, then its state.
inline std::string object(const std::string& type, const std::string& state) { return type + ")\x81" + state + "b"; }
inline std::string size(const std::vector<std::int64_t>& shape) {
  return call(global("torch", "Size"), tuple({numbers(shape)}));
}

/// Stored entries with their checksums, a directory, its end.
class Zip {
 public:
  void add(const std::string& name, const std::string& data, bool with_crc = true) {
    const auto crc =
        with_crc ? ::crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())) : 0;
    const std::string common = little(0, 2) + little(0, 2) + little(0, 4) + little(crc, 4) + little(data.size(), 4) +
                               little(data.size(), 4) + little(name.size(), 2);
    directory_ += "PK\1\2" + little(0, 4) + common + std::string(12, 0) + little(files_.size(), 4) + name;
    files_ += "PK\3\4" + little(0, 2) + common + little(0, 2) + name + data;
    ++count_;
  }
  std::string bytes() const {
    return files_ + directory_ + "PK\5\6" + little(0, 4) + little(count_, 2) + little(count_, 2) +
           little(directory_.size(), 4) + little(files_.size(), 4) + little(0, 2);
  }

 private:
  std::string files_, directory_;
  std::uint64_t count_ = 0;
};

/// A file with tensors: tensor() gives the pickled value to be put into what save() writes.
class TorchArchive {
 public:
  template <typename T>
  std::string tensor(const std::vector<T>& values, const std::vector<std::int64_t>& shape, const std::string& storage) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t axis = shape.size(); axis > 1; --axis) strides[axis - 2] = strides[axis - 1] * shape[axis - 1];
    return tensor(values, shape, strides, storage);
  }
  template <typename T>
  std::string tensor(const std::vector<T>& values, const std::vector<std::int64_t>& shape,
                     const std::vector<std::int64_t>& strides, const std::string& storage) {
    const std::string key = std::to_string(storages_.size());
    storages_.emplace_back(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    const std::string reference = tuple({text("storage"), global("torch", storage), text(key), text("cpu"),
                                         number(static_cast<std::int32_t>(values.size()))}) +
                                  "Q";
    return call(global("torch._utils", "_rebuild_tensor_v2"),
                tuple({reference, number(0), numbers(shape), numbers(strides), "\x89",
                       call(global("collections", "OrderedDict"), ")")}));
  }
  std::string flat(const std::vector<float>& values) {
    return tensor(values, {static_cast<std::int64_t>(values.size())}, "FloatStorage");
  }
  std::string bytes(const std::string& value, bool with_crc = true) const {
    Zip zip;
    zip.add("archive/data.pkl", "\x80\x02" + value + ".", with_crc);
    zip.add("archive/byteorder", "little", with_crc);
    for (std::size_t i = 0; i < storages_.size(); ++i)
      zip.add("archive/data/" + std::to_string(i), storages_[i], with_crc);
    return zip.bytes();
  }
  void save(const std::filesystem::path& path, const std::string& value) const {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes(value);
  }

 private:
  std::vector<std::string> storages_;
};

}  // namespace heddle::torch_files
