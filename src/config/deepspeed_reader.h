#pragma once

#include <map>
#include <string>
#include <string_view>

#include "config/deepspeed_keys.h"
#include "config/run_keys.h"

namespace heddle {

/// The keys of one DeepSpeed JSON, checked against the table: what resolve_deepspeed reads.
class DeepSpeedReader {
 public:
  /// Renames keys of former versions; refuses unknown ones, values of the wrong type, "auto" where it has no meaning,
  /// what the table refuses, and optimizers that are not here. `root` must outlive the reader.
  explicit DeepSpeedReader(SourceNode& root);

  /// Null if the key is not given.
  const SourceNode* find(std::string_view path) const;
  bool is_auto(std::string_view path) const;
  /// Given, and not "auto".
  bool is_explicit(std::string_view path) const { return find(path) != nullptr && !is_auto(path); }
  /// The value of an explicit key.
  Json value(std::string_view path) const;
  /// All keys but objects and scheduler.params, by path.
  const std::map<std::string, const SourceNode*, std::less<>>& leaves() const { return leaves_; }
  /// The entries of scheduler.params, or null.
  const SourceNode* schedule_arguments() const { return schedule_arguments_; }

 private:
  void rename_old_keys(SourceNode& root);
  void check_optimizer_type(const SourceNode& root) const;
  void walk(const SourceNode& node, const std::string& section);
  void read_leaf(const SourceNode& node, const std::string& path, const DeepSpeedKey& key);
  void walk_free_form(const SourceNode& node, const std::string& section);

  std::map<std::string, const SourceNode*, std::less<>> leaves_;
  const SourceNode* schedule_arguments_ = nullptr;
};

bool is_auto_text(const SourceNode& node);

/// What `optim` calls an optimizer.type that the reader has accepted: both its Adams are AdamW.
std::string_view optimizer_of_deepspeed(const std::string& type);

}  // namespace heddle
