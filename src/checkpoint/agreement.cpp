#include "checkpoint/agreement.h"

#include <exception>
#include <span>

#include "base/error.h"

namespace heddle {
namespace {

constexpr int kTextTag = 900;
constexpr std::string_view kWhat = "agreement on a file";

}  // namespace

std::int64_t broadcast_number(Communicator& communicator, std::int64_t number, int root) {
  communicator.broadcast(std::as_writable_bytes(std::span(&number, 1)), root, kWhat);
  return number;
}

std::string broadcast_text(Communicator& communicator, std::string text, int root) {
  text.resize(static_cast<std::size_t>(broadcast_number(communicator, static_cast<std::int64_t>(text.size()), root)));
  if (!text.empty()) communicator.broadcast(std::as_writable_bytes(std::span(text)), root, kWhat);
  return text;
}

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(communicator.size()));
  const auto size = static_cast<std::int64_t>(text.size());
  communicator.all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), kWhat);
  if (communicator.rank() != 0) {
    if (!text.empty()) communicator.send(std::as_bytes(std::span(text)), 0, kTextTag, kWhat);
    return {};
  }
  std::vector<std::string> texts = {text};
  for (int rank = 1; rank < communicator.size(); ++rank) {
    auto& other = texts.emplace_back(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]), '\0');
    if (!other.empty()) communicator.receive(std::as_writable_bytes(std::span(other)), rank, kTextTag, kWhat);
  }
  return texts;
}

std::optional<std::string> first_failure(Communicator& communicator, const std::function<void()>& body) {
  std::optional<std::string> error;
  try {
    body();
  } catch (const std::exception& e) {
    error = e.what();
  }
  if (communicator.size() == 1) return error;
  // The greatest number wins, and rank 0's is the greatest.
  std::int64_t first = error ? communicator.size() - communicator.rank() : 0;
  communicator.all_reduce(std::span(&first, 1), Reduction::max, kWhat);
  if (first == 0) return std::nullopt;
  return broadcast_text(communicator, error.value_or(""), communicator.size() - static_cast<int>(first));
}

void agree(Communicator& communicator, const std::function<void()>& body) {
  if (const auto error = first_failure(communicator, body)) throw Error(*error);
}

}  // namespace heddle
