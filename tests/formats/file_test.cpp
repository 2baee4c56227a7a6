#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iterator>

#include "formats/append_file.h"
#include "formats/aside_file.h"
#include "formats/file_reader.h"
#include "formats/files.h"
#include "formats/folder_lock.h"
#include "safetensors_files.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class FileTest : public FolderTest {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) found.push_back(entry.path().filename());
    return found;
  }
  static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
};

TEST_F(FileTest, AReaderGivesBytesOfAnyPlaceAndAllInBlocks) {
  std::string content;
  while (content.size() < 3'000'000) content += std::to_string(content.size());
  const FileReader file(write("f", content));
  EXPECT_EQ(file.size(), content.size());
  std::string part(100, '\0');
  file.read(2'999'000, std::span<char>(part));
  EXPECT_EQ(part, content.substr(2'999'000, 100));
  std::string all;
  file.read_from(5, [&](std::string_view block) { all += block; });
  EXPECT_EQ(all, content.substr(5));
  file.check_unchanged();
}

TEST_F(FileTest, AReaderSaysThatTheFileWasChanged) {
  const auto path = write("f", std::string(1000, 'x'));
  const FileReader file(path);
  std::string part(100, '\0');
  const auto read = [&] { file.read(900, std::span<char>(part)); };
  std::ofstream(path, std::ios::app) << "y";
  EXPECT_EQ(error_of(read), "no error");
  EXPECT_EQ(error_of([&] { file.check_unchanged(); }),
            path.string() + ": has changed from 1000 to 1001 bytes while it was read");
  std::filesystem::resize_file(path, 950);
  EXPECT_EQ(error_of(read), path.string() + ": has shrunk from 1000 to 950 bytes since it was opened");
  write("g", std::string(1000, 'x'));
  const FileReader same_size(folder / "g");
  std::filesystem::last_write_time(folder / "g", std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_THAT(error_of([&] { same_size.check_unchanged(); }), HasSubstr("was written to while it was read"));
}

TEST_F(FileTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { FileReader(folder / "pipe"); }), HasSubstr("is no regular file"));
  EXPECT_THAT(error_of([&] { FileReader reader(folder); }), HasSubstr("is a folder"));
  EXPECT_THAT(error_of([&] { FileReader(folder / "absent"); }), HasSubstr("cannot be opened: No such file"));
}

TEST_F(FileTest, TextThatCannotBeReadIsAnErrorAndNotEmpty) {
  // The memory of this process can be opened as a file, but has nothing at its first byte.
  EXPECT_EQ(error_of([] { read_text_file("/proc/self/mem"); }), "/proc/self/mem: cannot be read: Input/output error");
}

TEST_F(FileTest, AFileWrittenAsideAppearsWholeOrNotAtAll) {
  const auto path = write("f", "old");
  {
    AsideFile file(path);
    file.append(bytes_of("new"));
  }
  EXPECT_EQ(read_text_file(path), "old");
  EXPECT_THAT(names(), UnorderedElementsAre("f"));
  {
    AsideFile file(path);
    file.append(bytes_of("__w"));
    file.write_at(0, bytes_of("ne"));
    EXPECT_EQ(read_text_file(path), "old");
    EXPECT_EQ(file.size(), 3U);
    file.commit();
    EXPECT_FALSE(file.is_open());
  }
  EXPECT_EQ(read_text_file(path), "new");
  EXPECT_THAT(names(), UnorderedElementsAre("f"));
  EXPECT_THAT(error_of([&] { AsideFile(folder / "absent" / "f"); }), HasSubstr("cannot be created: No such file"));
}

TEST_F(FileTest, WritersOfOnePathDoNotMeet) {
  AsideFile first(folder / "f", AsideFile::Writers::shared), second(folder / "f", AsideFile::Writers::shared);
  first.append(bytes_of("first"));
  second.append(bytes_of("second"));
  first.commit();
  EXPECT_EQ(read_text_file(folder / "f"), "first");
  second.commit();
  EXPECT_EQ(read_text_file(folder / "f"), "second");
  EXPECT_THAT(names(), UnorderedElementsAre("f"));
}

TEST_F(FileTest, WhatAKilledProcessLeftIsRemovedAndTheRestIsNot) {
  for (const auto writers : {AsideFile::Writers::one, AsideFile::Writers::shared}) {
    const pid_t child = ::fork();
    if (child == 0) {
      AsideFile file(folder / "killed", writers);
      ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(names().size(), 1U);
    write("kept", "");
    AsideFile living(folder / "living", writers);
    remove_abandoned(folder);
    EXPECT_THAT(names(), UnorderedElementsAre("kept", testing::StartsWith("living")));
    living.commit();
    std::filesystem::remove(folder / "living");
    std::filesystem::remove(folder / "kept");
  }
  remove_abandoned(folder / "absent");
}

TEST_F(FileTest, AnAppendFileKeepsWhatItIsToldTo) {
  const auto path = write("f", "abcdef");
  {
    AppendFile file(path, 3);
    file.append("X");
    file.append("YZ");
    file.sync();
    EXPECT_EQ(read_text_file(path), "abcXYZ");
  }
  AppendFile(folder / "new", 0).append("1");
  EXPECT_EQ(read_text_file(folder / "new"), "1");
  EXPECT_THAT(error_of([&] { AppendFile(folder / "absent" / "f", 0); }),
              AllOf(HasSubstr("absent/f"), HasSubstr("No such file")));
}

TEST_F(FileTest, AFolderIsLockedByOneAtATime) {
  using std::chrono::milliseconds;
  const auto take = [&] { FolderLock(folder, milliseconds(30)); };
  {
    const FolderLock held(folder, milliseconds(0));
    EXPECT_EQ(error_of(take), folder.string() + ": another run writes to it; expected a folder of its own");
  }
  EXPECT_EQ(error_of(take), "no error");

  // A process that dies lets go, and who waits gets it.
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock held(folder, milliseconds(0));
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(error_of(take), HasSubstr("another run"));
  ::kill(child, SIGKILL);
  EXPECT_EQ(error_of([&] { FolderLock(folder, std::chrono::seconds(20)); }), "no error");
  ::waitpid(child, nullptr, 0);
  for (const int end : ready) ::close(end);
}

}  // namespace
}  // namespace heddle
