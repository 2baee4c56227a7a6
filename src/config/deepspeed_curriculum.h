#pragma once

#include "config/curriculum.h"
#include "config/deepspeed_reader.h"

namespace heddle {

/// DeepSpeed's `curriculum_learning`. Throws Error for what its schedule lacks or cannot serve.
CurriculumConfig read_curriculum(const DeepSpeedReader& reader);

}  // namespace heddle
