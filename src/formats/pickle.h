#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A pickle of Python's, read as data: nothing that it names is called. Objects refer to others by their index, so that
/// one that contains itself, or is nested deeply, costs no more than another.
/// https://github.com/python/cpython/blob/main/Lib/pickletools.py
class Pickle {
 public:
  enum class Kind : std::uint8_t {
    none,
    boolean,     ///< number
    integer,     ///< number
    real,        ///< text: eight bytes, which nobody needs
    text,        ///< text, of bytes too
    global,      ///< text: "MODULE NAME"
    tuple,       ///< items
    list,        ///< items
    dict,        ///< items: key, value, key, value, ...
    call,        ///< items: what is called, its arguments (a tuple); behind them, where it has one, its state
    record,      ///< an object of a class: items: the class, arguments; behind them, where it has one, its state
    persistent,  ///< items: the object that stands for something outside the pickle
  };
  struct Object {
    Kind kind = Kind::none;
    std::int64_t number = 0;
    std::string text;
    std::vector<int> items;
  };

  /// Of None.
  Pickle() : objects_(1) {}
  /// Reads up to the end of the pickle, at the beginning of `text`. `allows` is asked about each "MODULE NAME" that the
  /// pickle names; a call of collections.OrderedDict is an empty dict, other calls and objects of classes are only
  /// written down. Throws Error "WHERE: ..." for a name that is not allowed, for opcodes that only programs need, and
  /// for what is malformed or larger than any model needs.
  Pickle(std::string_view text, const std::string& where, const std::function<bool(std::string_view)>& allows);

  const Object& at(int index) const { return objects_[static_cast<std::size_t>(index)]; }
  const Object& root() const { return at(root_); }
  const std::vector<Object>& objects() const { return objects_; }
  /// The value of a key that is a text; null where it is absent, or where `dictionary` is none. The last one counts.
  const Object* find(const Object& dictionary, std::string_view key) const;
  /// Bytes that it takes.
  std::size_t size() const { return size_; }

 private:
  friend class PickleMachine;
  std::vector<Object> objects_;
  int root_ = 0;
  std::size_t size_ = 0;
};

}  // namespace heddle
