// Run files from random bytes: each is read or refused with an Error of one line. A first byte chooses the form.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "config/run_config.h"
#include "train/loss_scaler.h"
#include "train/schedule.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// What was accepted can be shown, and gives numbers.
void use(const heddle::RunFile& run) {
  require(run.effective().contains("max_steps"));
  const auto& config = run.config();
  for (const std::int64_t step : {0, 1, 7, 10}) {
    const double rate = heddle::learning_rate_at(config.schedule, config.learning_rate, step, 10);
    require(!std::isnan(rate));
  }
  heddle::LossScaler scaler(config.loss_scaling);
  scaler.update(true);
  require(std::isfinite(scaler.scale()) && scaler.scale() > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (!text.empty() && text.front() == '-') {  // --KEY VALUE, separated by a zero byte
      const auto zero = text.find('\0');
      const std::string key(text.substr(1, zero == std::string_view::npos ? zero : zero - 1));
      const std::string value(zero == std::string_view::npos ? "" : text.substr(zero + 1));
      if (key == "deepspeed") return 0;  // a path would be opened
      use(heddle::RunFile::parse("seed: 1", "run.yaml", {{key, value}}));
    } else {
      use(heddle::RunFile::parse(text, "run.yaml", {}));
    }
  } catch (const heddle::Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
