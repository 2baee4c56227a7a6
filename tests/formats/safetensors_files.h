#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace heddle {

/// A folder of its own for each test, removed after it.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::temp_directory_path() /
             (std::string("heddle_") + test->test_suite_name() + "_" + test->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder); }

  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder / name, std::ios::binary) << content;
    return folder / name;
  }

  std::filesystem::path folder;
};

/// The bytes of a safetensors file, put together by hand.
inline std::string raw_safetensors(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) bytes += static_cast<char>((length >> shift) & 0xff);
  return bytes + header + data;
}
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  return raw_safetensors(header, data, header.size());
}

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace heddle
