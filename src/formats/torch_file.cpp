#include "formats/torch_file.h"

#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {
namespace {

/// The dictionary of the file, or one in it that stands for the whole.
const Pickle::Object& dictionary_of(const TorchPickle& file) {
  const Pickle& pickle = file.pickle();
  const Pickle::Object& root = pickle.root();
  if (root.kind != Pickle::Kind::dict) fail("{}: holds no dictionary of tensors", file.path());
  for (const char* name : {"state_dict", "model", "module"}) {
    const auto* inner = pickle.find(root, name);
    if (inner != nullptr && inner->kind == Pickle::Kind::dict) return *inner;
  }
  return root;
}

}  // namespace

TorchFile::TorchFile(const std::filesystem::path& path) : file_(path, [](std::string_view) { return false; }) {
  const Pickle& pickle = file_.pickle();
  const Pickle::Object& dictionary = dictionary_of(file_);
  std::set<std::string> names;
  for (std::size_t i = 0; i < dictionary.items.size(); i += 2) {
    const Pickle::Object& key = pickle.at(dictionary.items[i]);
    if (key.kind != Pickle::Kind::text) fail("{}: a name of its dictionary is no text", file_.path());
    if (!names.insert(key.text).second) fail("{}: tensor {} is there twice", file_.path(), text_excerpt(key.text));
    tensors_.push_back(file_.tensor(pickle.at(dictionary.items[i + 1]), key.text));
  }
}

}  // namespace heddle
