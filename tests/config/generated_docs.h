#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "formats/files.h"

namespace heddle {

/// A | in a cell of a table would end it.
inline std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, ", ");
  return text;
}

/// Expects `generated` between the lines "<!-- NAME: begin -->" and "<!-- NAME: end -->" of a page below the
/// repository; with HEDDLE_WRITE_DOCS=1 it is written there.
inline void expect_generated(const std::string& page, const std::string& name, const std::string& generated) {
  const auto path = std::filesystem::path(HEDDLE_SOURCE_DIR) / page;
  const auto begin_line = "<!-- " + name + ": begin -->\n", end_line = "<!-- " + name + ": end -->\n";
  auto text = read_text_file(path);
  const auto begin = text.find(begin_line), end = text.find(end_line);
  ASSERT_NE(begin, std::string::npos) << page << " has no line " << begin_line;
  ASSERT_NE(end, std::string::npos) << page << " has no line " << end_line;
  const auto first = begin + begin_line.size();
  if (std::getenv("HEDDLE_WRITE_DOCS") != nullptr) {
    text.replace(first, end - first, generated);
    write_text_file(path, text);
    return;
  }
  EXPECT_EQ(text.substr(first, end - first), generated) << "run this test with HEDDLE_WRITE_DOCS=1";
}

}  // namespace heddle
