#include "checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/agreement.h"
#include "checkpoint/frames.h"
#include "checkpoint/save.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-", kAside = ".checkpoint-", kPartial = ".partial";

}  // namespace

fs::path checkpoint_folder(const fs::path& output_dir, std::int64_t step) {
  return output_dir / fmt::format("{}{}", kPrefix, step);
}

fs::path aside_folder(const fs::path& output_dir, std::int64_t step) {
  return output_dir / fmt::format("{}{}{}", kAside, step, kPartial);
}

void remove_checkpoint_folder(const fs::path& folder) {
  const fs::path gone = folder.parent_path() / fmt::format(".{}.removed{}", folder.filename().string(), kPartial);
  std::error_code error;
  fs::remove_all(gone, error);
  fs::rename(folder, gone, error);
  if (!error) fs::remove_all(gone, error);
  if (error) warning("{}: cannot be removed: {}", folder.string(), error.message());
}

void remove_leftovers(const fs::path& output_dir) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kAside) && name.ends_with(kPartial)) found.push_back(entry.path());
  }
  for (const auto& path : found) fs::remove_all(path, ignored);
}

std::uint64_t most_stored(std::uint64_t bytes, bool compresses) {
  return compresses ? (bytes / kFrameBytes + 1) * kMostFrameBytes : bytes;
}

void require_space(const fs::path& output_dir, std::uint64_t bytes) {
  std::error_code error;
  const auto space = fs::space(output_dir, error);
  if (!error && space.available < bytes) {
    fail("{}: a save needs {}, {} are free on its disk", output_dir.string(), format_bytes(bytes),
         format_bytes(space.available));
  }
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& output_dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t step = 0;
    const char* end = name.data() + name.size();
    if (const auto [at, failed] = std::from_chars(name.data() + kPrefix.size(), end, step);
        failed == std::errc{} && at == end) {
      steps.push_back(step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Checkpoint open_checkpoint(const fs::path& folder, Communicator& communicator) {
  std::optional<Checkpoint> checkpoint;
  agree(communicator, [&] {
    checkpoint.emplace(folder);
    checkpoint->verify(communicator.rank(), communicator.size());
  });
  return std::move(*checkpoint);
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& output_dir, Communicator& communicator) {
  return newest_checkpoint(
      output_dir, communicator.rank() == 0 ? checkpoint_steps(output_dir) : std::vector<std::int64_t>{}, communicator);
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& output_dir, std::span<const std::int64_t> steps,
                                            Communicator& communicator) {
  const bool is_first = communicator.rank() == 0;
  const auto count = broadcast_number(communicator, is_first ? static_cast<std::int64_t>(steps.size()) : 0);
  std::string first_error;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto step = broadcast_number(communicator, is_first ? steps[i] : 0);
    std::optional<Checkpoint> checkpoint;
    const auto error = first_failure(communicator, [&] {
      checkpoint.emplace(checkpoint_folder(output_dir, step));
      checkpoint->verify(communicator.rank(), communicator.size());
    });
    if (!error) return checkpoint;
    if (i == 0) first_error = *error;
    if (is_first && i + 1 < steps.size())
      warning("checkpoint-{} cannot be used, the one before is tried: {}", step, *error);
  }
  if (count == 0) return std::nullopt;
  fail("{}: none of its {} checkpoints can be used (resume_from_checkpoint: false starts anew): {}",
       output_dir.string(), count, first_error);
}

void remove_old_checkpoints(const fs::path& output_dir, std::int64_t keep, std::int64_t keep_every, std::int64_t best,
                            Communicator& communicator) {
  if (communicator.rank() != 0) return;
  remove_leftovers(output_dir);
  if (keep <= 0) return;
  const auto steps = checkpoint_steps(output_dir);
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) {
    if (steps[i] == best || (keep_every > 0 && steps[i] % keep_every == 0)) continue;
    remove_checkpoint_folder(checkpoint_folder(output_dir, steps[i]));
  }
}

void rehearse_save(const fs::path& output_dir, std::uint64_t bytes, Communicator& communicator) {
  agree(communicator, [&] {
    if (communicator.rank() != 0) return;
    remove_leftovers(output_dir);
    const fs::path probe = aside_folder(output_dir, 0);
    const fs::path renamed = output_dir / ".checkpoint-0.rehearsal.partial";
    make_folder(probe);
    write_text_file(probe / "manifest.json", "{}\n");
    sync_folder(probe);
    std::error_code error;
    fs::rename(probe, renamed, error);
    if (error) fail("{}: a folder in it cannot be renamed: {}", output_dir.string(), error.message());
    sync_folder(output_dir);
    fs::remove_all(renamed);
    require_space(output_dir, bytes);
  });
}

}  // namespace heddle
