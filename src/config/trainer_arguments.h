#pragma once

#include <span>
#include <string_view>

namespace heddle {

/// One row of the table of Hugging Face's TrainingArguments, and of what else their scripts keep beside them.
struct TrainerArgument {
  enum class Use {
    run_key,  // the run file's key takes the value
    rule,     // by a rule that `why` tells; several arguments may be one key
    ignored,  // a note tells why, unless the value is harmless
    refused,  // it would train something else; not so for harmless values
  };
  std::string_view name;
  Use use;
  std::string_view run_key = {};
  std::string_view harmless = {};  // values to pass over in silence, joined with |; "*": all
  std::string_view why = {};
};

std::span<const TrainerArgument> trainer_arguments();
/// Null for an unknown name.
const TrainerArgument* find_trainer_argument(std::string_view name);

}  // namespace heddle
