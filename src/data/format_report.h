#pragma once

#include <span>
#include <string>

#include "data/conversation_encoder.h"
#include "data/token_cache.h"

namespace heddle {

/// What the rows of a data file were taken for. The notes must outlive it.
struct FileFormats {
  std::string path;
  const TableNotes* notes = nullptr;
};

/// Notes what rows were taken for, where that is not plain to see, and what of them is not used.
void report_formats(std::span<const FileFormats> files);

/// Throws Error where a key about labels that is set concerns not one row (assistant_only_loss, and all are texts): TRL
/// refuses that too. Where it concerns the rows of some files alone, a note names the others.
void check_label_keys(std::span<const FileFormats> files, const LabelRules& rules, bool has_chat_template);

}  // namespace heddle
