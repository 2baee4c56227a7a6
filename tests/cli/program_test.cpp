// The program as the shell starts it: what it prints where, and its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Ended {
  int code = -1;
  std::string printed;
};

/// `command` by the shell, in which $HEDDLE is the program; what it writes to the shell's standard output.
Ended run(const std::string& command) {
  const std::string line = "HEDDLE='" HEDDLE_PROGRAM "'; " + command;
  std::FILE* pipe = ::popen(line.c_str(), "r");
  Ended ended;
  std::array<char, 4096> piece{};
  for (std::size_t count = 0; (count = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;)
    ended.printed.append(piece.data(), count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

TEST(Program, NamesAWordThatIsNoCommand) {
  const Ended misspelt = run("$HEDDLE trian run.yaml 2>&1");
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_THAT(misspelt.printed, StartsWith("heddle: error: trian is no command; expected one of train, plan, "));
  EXPECT_THAT(misspelt.printed, HasSubstr("; did you mean train?\n"));
  const Ended none = run("$HEDDLE 2>&1");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.printed, StartsWith("heddle: error: a command is missing; expected one of train, "));
}

TEST(Program, OutputThatCannotBeWrittenIsAFailure) {
  const Ended full = run("printf hello | $HEDDLE tokenize bytes 2>&1 >/dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_EQ(full.printed, "heddle: error: standard output: cannot be written: No space left on device\n");
  const Ended written = run("printf hi | $HEDDLE tokenize bytes");
  EXPECT_EQ(written.code, 0);
  EXPECT_EQ(written.printed, "104 105\n");
}

TEST(Program, InputThatCannotBeReadIsAFailure) {
  for (const std::string options : {"", " --lines", " --decode"}) {
    const Ended folder = run("$HEDDLE tokenize bytes" + options + " 2>&1 </");
    EXPECT_EQ(folder.code, 1) << options;
    EXPECT_EQ(folder.printed, "heddle: error: standard input: cannot be read: Is a directory\n") << options;
  }
}

TEST(Program, WhatOnlySamplingReadsIsAWarningWithoutIt) {
  const std::string greedy = "$HEDDLE generate no-model --prompt x --seed 1 --temperature 0.5 2>&1";
  EXPECT_THAT(run(greedy).printed,
              StartsWith("heddle: warning: --temperature, --seed change nothing without --do_sample"));
  EXPECT_THAT(run(greedy + " --do_sample").printed, StartsWith("heddle: error: no-model"));
}

TEST(Program, OptionsNameTheNumbersTheyTake) {
  EXPECT_EQ(run("$HEDDLE generate model --prompt x --temperature nan 2>&1").printed,
            "heddle: error: --temperature: nan; expected a number above 0\n");
  EXPECT_EQ(run("$HEDDLE generate model --prompt x --max_new_tokens 99999999999999999999 2>&1").printed,
            "heddle: error: --max_new_tokens: 99999999999999999999; expected a whole number from 0 to 1073741824\n");
  const Ended negative = run("$HEDDLE generate model --prompt x --top_k -1 2>&1");
  EXPECT_EQ(negative.code, 2);
  EXPECT_EQ(negative.printed, "heddle: error: --top_k: -1; expected a whole number of at least 0\n");
}

TEST(Program, OptionsOfEveryCommandNameTheNumbersTheyTake) {
  const std::vector<std::pair<const char*, const char*>> complaints = {
      {"data run.yaml --limit -3", "--limit: -3; expected a whole number of at least 0"},
      {"bench run.yaml --steps 0", "--steps: 0; expected a whole number from 1 to 1000000"},
      {"eval model --data x --max_length 0.5", "--max_length: 0.5; expected a whole number from 1 to 1073741824"},
      {"eval model --data x --threads 99999999999", "--threads: 99999999999; expected a whole number from 1 to 65536"},
      {"supervise --grace -1 -- true", "--grace: -1; expected a number of at least 0"},
      {"supervise --min_uptime nan -- true", "--min_uptime: nan; expected a number of at least 0"},
      {"supervise --max_restarts 1e9 -- true", "--max_restarts: 1e9; expected a whole number from 0 to 1000000"}};
  for (const auto& [command, complaint] : complaints) {
    const Ended ended = run(std::string("$HEDDLE ") + command + " 2>&1");
    EXPECT_EQ(ended.code, 2) << command;
    EXPECT_EQ(ended.printed, std::string("heddle: error: ") + complaint + "\n");
  }
}

TEST(Program, NamesTheOptionThatIsNotKnownAndTheOneThatIsMeant) {
  const Ended misspelt = run("$HEDDLE eval model --data x --max_lenght 3 2>&1");
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_EQ(misspelt.printed, "heddle: error: eval: unknown option --max_lenght; did you mean --max_length?\n");
  EXPECT_EQ(run("$HEDDLE inspect a b c 2>&1").printed, "heddle: error: inspect: c is one word too many\n");
  const Ended bare = run("$HEDDLE supervise --grace 1 heddle train run.yaml 2>&1");
  EXPECT_EQ(bare.code, 2);
  EXPECT_EQ(bare.printed,
            "heddle: error: supervise: heddle is no option; COMMAND stands behind --: heddle supervise -- heddle train "
            "run.yaml\n");
}

TEST(Program, OptionsThatWouldHaveNoEffectAreWrongUsage) {
  EXPECT_EQ(run("$HEDDLE generate model --prompt x --system y 2>&1").code, 2);
  EXPECT_EQ(run("$HEDDLE tokenize bytes text.txt --strings strings.json 2>&1").code, 2);
}

TEST(Program, InspectSaysOfAFileWithoutWeightsWhatToPass) {
  const Ended ended =
      run("cd $(mktemp -d); mkdir checkpoint-6; echo '{\"step\": 6}' | tee checkpoint-6/manifest.json > x.json;"
          "$HEDDLE inspect checkpoint-6/manifest.json 2>&1; $HEDDLE inspect x.json 2>&1; rm -r $PWD");
  EXPECT_EQ(ended.printed,
            "heddle: error: checkpoint-6/manifest.json: is neither a safetensors, a GGUF nor a PyTorch file; heddle "
            "inspect checkpoint-6 shows what its folder holds\n"
            "heddle: error: x.json: is neither a safetensors, a GGUF nor a PyTorch file\n");
}

TEST(Program, AModelIsNeverWrittenOverItself) {
  for (const char* command : {"export . .", "quantize . ../$(basename $PWD) --type nf4", "export --format gguf . ."}) {
    const Ended ended = run(std::string("$HEDDLE ") + command + " 2>&1");
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.printed, HasSubstr(": is the model itself, which would be lost; expected another place\n"));
  }
  EXPECT_THAT(run("$HEDDLE export . x.gguf 2>&1").printed, HasSubstr("is the name of a GGUF file, but a folder"));
  EXPECT_THAT(run("$HEDDLE export . / --format gguf 2>&1").printed, HasSubstr("/: is a folder; expected a name for"));
}

}  // namespace
}  // namespace heddle
