#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Whether it becomes true within 30 s.
bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

/// Children are small scripts, which count their starts in a file of the test's folder.
class Supervise : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "heddle-supervise-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    fs::remove_all(folder_);
  }

  /// Starts `heddle supervise OPTIONS -- COMMAND`, in the test's folder.
  void start(const std::vector<std::string>& options, const std::vector<std::string>& command) {
    std::vector<std::string> words = {HEDDLE_PROGRAM, "supervise"};
    words.insert(words.end(), options.begin(), options.end());
    if (std::find(words.begin(), words.end(), "--restart_delay") == words.end()) {
      words.insert(words.end(), {"--restart_delay", "0.01"});
    }
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    process_ = ::fork();
    if (process_ == 0) become(words);
  }
  void start(const std::vector<std::string>& options, const std::string& script) {
    start(options, std::vector<std::string>{"sh", "-c", "echo >>starts; " + script});
  }

  int exit_code() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  template <typename Command>
  int run(const std::vector<std::string>& options, const Command& command) {
    start(options, command);
    return exit_code();
  }

  std::string errors() const { return text_of(folder_ / "errors"); }
  std::string last_error() const {
    const std::string all = errors();
    const std::size_t begin = all.rfind('\n', all.size() - 2);
    return all.substr(begin == std::string::npos ? 0 : begin + 1);
  }
  std::size_t starts() const { return text_of(folder_ / "starts").size(); }
  bool has(const std::string& name) const { return fs::exists(folder_ / name); }
  /// Whether the process whose number a file holds still runs.
  bool is_running(const std::string& file) const {
    std::ifstream status(fs::path("/proc") / std::to_string(std::atoi(text_of(folder_ / file).c_str())) / "stat");
    std::string id, name, state;
    return (status >> id >> name >> state) && state != "Z";
  }

  fs::path folder_;
  pid_t process_ = 0;

 private:
  void become(const std::vector<std::string>& words) const {
    std::vector<char*> pointers;
    for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    const bool is_there = ::chdir(folder_.c_str()) == 0 && std::freopen("errors", "w", stderr) != nullptr &&
                          std::freopen("output", "w", stdout) != nullptr;
    if (is_there) ::execv(pointers[0], pointers.data());
    ::_exit(126);
  }
};

TEST_F(Supervise, TheCommandIsPassedOnAsItIs) {
  const std::vector<std::string> words = {"[a,b]", "", "--", "-x", "--y=1", "a b", "{}", "\"q\""};
  std::vector<std::string> command = {"sh", "-c", "for word; do echo \"<$word>\"; done", "name"};
  command.insert(command.end(), words.begin(), words.end());
  EXPECT_EQ(run({}, command), 0);
  EXPECT_EQ(text_of(folder_ / "output"), "<[a,b]>\n<>\n<-->\n<-x>\n<--y=1>\n<a b>\n<{}>\n<\"q\">\n");
}

TEST_F(Supervise, WhatIsDoneOrStoppedOrWronglyUsedIsNotStartedAgain) {
  for (const int code : {0, 2, 130, 143}) {
    EXPECT_EQ(run({}, "exit " + std::to_string(code)), code);
    EXPECT_EQ(starts(), 1U) << code;
    fs::remove(folder_ / "starts");
  }
  EXPECT_EQ(run({}, std::string("kill -TERM $$")), 143);
  EXPECT_EQ(starts(), 1U);
}

TEST_F(Supervise, FailuresAreRestartedSoManyTimesWithTheirReason) {
  EXPECT_EQ(run({"--max_restarts", "2"}, std::string("echo line $HEDDLE_RESTART_COUNT >&2; exit 7")), 1);
  EXPECT_EQ(starts(), 3U);
  EXPECT_THAT(errors(), HasSubstr("ended with exit code 7 after 0 s; its last line: line 0; restart 1 of 2"));
  EXPECT_THAT(last_error(), HasSubstr("heddle: error: supervise: the job ended with exit code 7"));
  EXPECT_THAT(last_error(), HasSubstr("restarted 2 times without a newer checkpoint"));
}

TEST_F(Supervise, ASignalIsAFailureThatNamesIt) {
  EXPECT_EQ(run({"--max_restarts", "3"}, std::string("if test -e again; then exit 0; fi; touch again; kill -SEGV $$")),
            0);
  EXPECT_EQ(starts(), 2U);
  EXPECT_THAT(errors(), HasSubstr("ended by signal 11"));
}

TEST_F(Supervise, AnErrorThatRepeatsAtOnceEndsIt) {
  const std::string bad = "echo 'heddle: error: run.yaml: no such key' >&2; echo >&2; echo ---- >&2; exit 1";
  EXPECT_EQ(run({}, bad), 1);
  EXPECT_EQ(starts(), 2U);
  EXPECT_THAT(last_error(), HasSubstr("heddle: error: run.yaml: no such key"));
  fs::remove(folder_ / "starts");
  // Not what ran for a while, nor other errors.
  EXPECT_EQ(run({"--max_restarts", "3", "--min_uptime", "0"}, bad), 1);
  EXPECT_EQ(starts(), 4U);
  fs::remove(folder_ / "starts");
  EXPECT_EQ(run({"--max_restarts", "3"}, std::string("echo error $HEDDLE_RESTART_COUNT >&2; exit 1")), 1);
  EXPECT_EQ(starts(), 4U);
}

TEST_F(Supervise, ANewerCheckpointStartsTheCountAgain) {
  // Each of the first six starts leaves a checkpoint.
  const std::string script = "n=$(wc -l <starts); if [ $n -le 6 ]; then mkdir -p out/checkpoint-$n; fi; exit 9";
  EXPECT_EQ(run({"--max_restarts", "2", "--output_dir", "out"}, script), 1);
  EXPECT_EQ(starts(), 8U);  // two restarts after the sixth, which was the last to leave one
  EXPECT_THAT(errors(), HasSubstr("from checkpoint-6"));
}

TEST_F(Supervise, ACommandThatCannotBeStartedIsAnError) {
  EXPECT_EQ(run({}, std::vector<std::string>{"/no/such/program", "--x"}), 1);
  EXPECT_THAT(last_error(), HasSubstr("/no/such/program: cannot be started: No such file"));
  EXPECT_EQ(run({}, std::vector<std::string>{}), 2);
  EXPECT_THAT(last_error(), HasSubstr("COMMAND is missing"));
}

TEST_F(Supervise, ProcessesThatEndWhileTheyAreLookedAtAreNoError) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 8; ++i) {
    others.emplace_back([&] {
      while (!is_over) {
        const pid_t other = ::fork();
        if (other == 0) ::_exit(0);
        ::waitpid(other, nullptr, 0);
      }
    });
  }
  EXPECT_EQ(run({"--max_restarts", "100", "--restart_delay", "0"}, std::string("exit 9")), 1);
  is_over = true;
  for (auto& thread : others) thread.join();
  EXPECT_EQ(starts(), 101U) << last_error();
}

TEST_F(Supervise, SignalsArePassedOnAndTheSaveIsWaitedFor) {
  for (const auto& [signal, name, code] :
       {std::tuple{SIGTERM, "TERM", 143}, {SIGINT, "INT", 130}, {SIGHUP, "HUP", 129}}) {
    start({}, fmt::format("trap 'sleep 0.3; touch saved; exit {}' {}; touch ready; while :; do sleep 0.02; done", code,
                          name));
    ASSERT_TRUE(comes_true([&] { return has("ready"); })) << errors();
    ::kill(process_, signal);
    EXPECT_EQ(exit_code(), code) << errors();
    EXPECT_TRUE(has("saved"));
    EXPECT_EQ(starts(), 1U);
    for (const char* file : {"ready", "saved", "starts"}) fs::remove(folder_ / file);
  }
}

TEST_F(Supervise, ASignalEndsTheWaitForARestart) {
  start({"--restart_delay", "100"}, std::string("exit 5"));
  ASSERT_TRUE(comes_true([&] { return errors().find("restart 1") != std::string::npos; }));
  ::kill(process_, SIGTERM);
  EXPECT_EQ(exit_code(), 143);
  EXPECT_EQ(starts(), 1U);
}

TEST_F(Supervise, NothingIsLeftRunning) {
  // One worker ends when asked, one in a session of its own does not listen.
  std::ofstream(folder_ / "deaf") << "trap '' TERM\necho $$ >deaf.id\nwhile :; do sleep 0.1; done\n";
  std::ofstream(folder_ / "kind")
      << "trap 'touch saved; exit 0' TERM\necho $$ >kind.id\nwhile :; do sleep 0.02; done\n";
  EXPECT_EQ(
      run({"--max_restarts", "0", "--grace", "2"},
          std::string(
              "setsid sh deaf & sh kind & until [ -s deaf.id ] && [ -s kind.id ]; do sleep 0.02; done; kill -KILL $$")),
      1);
  EXPECT_TRUE(has("saved"));
  EXPECT_FALSE(is_running("deaf.id"));
  EXPECT_FALSE(is_running("kind.id"));
}

TEST_F(Supervise, RanksThatFailAgainBecomeFewerAndTheBatchStays) {
  // A job that needs no more than two ranks' hosts, of 12 micro-batches a step.
  const std::vector<std::string> command = {
      "sh",  "-c",      "echo $1 x $2 >>tried; echo 'heddle: error: no host' >&2; test $1 -le 2",
      "job", "{ranks}", "{accumulation}"};
  EXPECT_EQ(run({"--ranks", "6", "--micro_batches", "12"}, command), 0) << errors();
  EXPECT_EQ(text_of(folder_ / "tried"), "6 x 2\n6 x 2\n4 x 3\n4 x 3\n3 x 4\n3 x 4\n2 x 6\n");
  EXPECT_THAT(errors(), HasSubstr("supervise: from here on with 2 ranks, 6 micro-batches each in a step"));
}

TEST_F(Supervise, AsManyRanksStayAsAreAskedFor) {
  const std::string script = "echo {ranks}{accumulation} >>tried; exit 9";
  EXPECT_EQ(run({"--ranks", "4", "--min_ranks", "2", "--max_restarts", "4"}, script), 1);
  EXPECT_EQ(text_of(folder_ / "tried"), "41\n41\n22\n22\n22\n");  // 3 ranks do not divide 4 micro-batches
}

TEST_F(Supervise, ProgressKeepsTheRanks) {
  const std::string script = "n=$(wc -l <starts); mkdir -p out/checkpoint-$n; echo {ranks} >>tried; test $n -ge 4";
  EXPECT_EQ(run({"--ranks", "2", "--output_dir", "out"}, script), 0);
  EXPECT_EQ(text_of(folder_ / "tried"), "2\n2\n2\n2\n");
}

TEST_F(Supervise, CountsOfRanksThatDoNotFitAreWrongUsage) {
  EXPECT_EQ(run({"--ranks", "4", "--micro_batches", "6"}, std::string("{ranks}")), 2);
  EXPECT_THAT(last_error(), HasSubstr("--micro_batches is 6; expected a multiple of --ranks, 4"));
  EXPECT_EQ(run({"--ranks", "4", "--min_ranks", "5"}, std::string("{ranks}")), 2);
  EXPECT_EQ(run({"--ranks", "4"}, std::string("true")), 2);
  EXPECT_THAT(last_error(), HasSubstr("COMMAND has no {ranks} in it"));
  EXPECT_EQ(run({"--min_ranks", "4"}, std::string("{ranks}")), 2);
}

/// A small run whose checkpoints are of every step.
class SuperviseTraining : public Supervise {
 protected:
  void SetUp() override {
    Supervise::SetUp();
    std::ofstream(folder_ / "config.json")
        << R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64,
               "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true,
               "bos_token_id": null, "eos_token_id": null})";
    std::ofstream rows(folder_ / "rows.jsonl");
    for (int row = 0; row < 12; ++row) {
      Json ids = Json::array();
      for (int i = 0; i < 20; ++i) ids.push_back((row * 31 + i * i) % 96);
      rows << Json{{"input_ids", ids}}.dump() << "\n";
    }
  }
  std::vector<std::string> training(const std::string& output_dir) const {
    const Json run = {{"config_name", "config.json"},
                      {"train_file", "rows.jsonl"},
                      {"output_dir", output_dir},
                      {"packing", false},
                      {"max_length", 32},
                      {"max_steps", 100},
                      {"save_steps", 1},
                      {"save_total_limit", 2},
                      {"learning_rate", 1e-3},
                      {"seed", 5},
                      {"threads", 1},
                      {"attention_dropout", 0.1}};
    std::ofstream(folder_ / (output_dir + ".json")) << run.dump();
    return {HEDDLE_PROGRAM, "train", output_dir + ".json"};
  }
  int newest(const std::string& output_dir) const {
    int step = -1;
    if (!has(output_dir)) return step;
    for (const auto& entry : fs::directory_iterator(folder_ / output_dir)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("checkpoint-")) step = std::max(step, std::atoi(name.c_str() + 11));
    }
    return step;
  }
};

TEST_F(SuperviseTraining, AKilledRunGoesOnToTheSameWeights) {
  ASSERT_EQ(run({}, training("whole")), 0) << errors();
  std::vector<std::string> command = {"sh", "-c", "echo $$ >id; exec \"$@\"", "sh"};
  for (const auto& word : training("killed")) command.push_back(word);
  start({"--max_restarts", "1"}, command);  // two kills: only a newer checkpoint allows the second restart
  for (const int step : {5, 50}) {
    ASSERT_TRUE(comes_true([&] { return newest("killed") >= step; })) << errors();
    ::kill(std::atoi(text_of(folder_ / "id").c_str()), SIGKILL);
  }
  ASSERT_EQ(exit_code(), 0) << errors();
  EXPECT_THAT(errors(), HasSubstr("ended by signal 9"));
  EXPECT_THAT(errors(), HasSubstr("from checkpoint-"));
  EXPECT_EQ(text_of(folder_ / "killed/model.safetensors"), text_of(folder_ / "whole/model.safetensors"));
  EXPECT_FALSE(text_of(folder_ / "whole/model.safetensors").empty());
}

TEST_F(SuperviseTraining, ASignalReachesTheRanksAndNotWhatStandsBetween) {
  // As mpirun, which does not wait for its ranks once it is told.
  std::vector<std::string> command = {"sh", "-c", "trap 'exit 1' TERM; \"$@\" & wait $!; exit $?", "sh"};
  for (const auto& word : training("stopped")) command.push_back(word);
  start({}, command);
  ASSERT_TRUE(comes_true([&] { return newest("stopped") >= 3; })) << errors();
  ::kill(process_, SIGTERM);
  EXPECT_EQ(exit_code(), 143) << errors();
  EXPECT_THAT(errors(), HasSubstr("stopped by SIGTERM"));
  EXPECT_THAT(errors(), HasSubstr("checkpoint-" + std::to_string(newest("stopped"))));
}

TEST_F(SuperviseTraining, Sigusr1AsksTheRanksForACheckpointAndTrainingGoesOn) {
  std::vector<std::string> command = training("asked");
  command.insert(command.end(), {"--save_steps", "0", "--save_minutes", "60", "--max_steps", "1000000"});
  start({}, command);
  ASSERT_TRUE(comes_true([&] { return errors().find("step 2/") != std::string::npos; })) << errors();
  ::kill(process_, SIGUSR1);
  ASSERT_TRUE(comes_true([&] { return newest("asked") >= 2; })) << errors();
  const auto step = newest("asked");
  ::kill(process_, SIGUSR1);
  ASSERT_TRUE(comes_true([&] { return newest("asked") > step; })) << errors();
  ::kill(process_, SIGTERM);
  EXPECT_EQ(exit_code(), 143) << errors();
}

}  // namespace
}  // namespace heddle
