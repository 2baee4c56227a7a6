// What recompute: auto chooses changes no bit, and keeps the budget to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "planner/activation_choice.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

using testing::HasSubstr;

class AutomaticRun : public testing::Test {
 protected:
  std::filesystem::path train_with(const Json& changes) {
    const std::string name = "out" + std::to_string(runs_++);
    Json config = llama_config();
    config["num_hidden_layers"] = 4;
    Json run = small_run(folder_.path(), config, name);
    run.update({{"threads", 1}, {"max_steps", 2}, {"per_device_train_batch_size", 8}});
    run.update(changes);
    EXPECT_EQ(train(run_file(run), choose_activations_for_training), 0) << changes.dump();
    EXPECT_EQ(read_file(folder_.path() / name / "plan.json"), read_file(folder_.path() / name / "memory.json"));
    return folder_.path() / name;
  }

  static std::uint64_t peak(const std::filesystem::path& out, const char* tier = "device") {
    const Json plan = parse_json(read_file(out / "plan.json"), "plan.json");
    const Json& tiers = plan["ranks"][0]["tiers"];
    return tiers.contains(tier) ? tiers[tier]["peak"].get<std::uint64_t>() : 0;
  }

  static Json chosen(const std::filesystem::path& out) {
    const Json document = parse_json(read_file(out / "effective_config.json"), "effective_config.json");
    return document.value("recompute_blocks", Json());
  }

  TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(AutomaticRun, GivesTheBitsOfTheRunThatKeepsAll) {
  for (const Json& layout : {Json{{"bf16", true}}, Json{{"ranks", 2}, {"zero_stage", 3}}}) {
    Json plain = layout, full = layout;
    plain["recompute"] = "none";
    full["recompute"] = "full";
    const auto reference = train_with(plain);
    const std::uint64_t most = peak(reference), least = peak(train_with(full));
    ASSERT_LT(least, most);
    for (const std::uint64_t budget : {most, (most + least) / 2, least}) {
      Json run = layout;
      run.update({{"recompute", "auto"}, {"device_memory", budget}});
      const auto out = train_with(run);
      EXPECT_LE(peak(out), budget);
      EXPECT_EQ(trajectory(out), trajectory(reference));
      EXPECT_EQ(read_file(out / "model.safetensors"), read_file(reference / "model.safetensors"));
      ASSERT_EQ(chosen(out)["value"].size(), 4U);
      EXPECT_EQ(chosen(out)["origin"], "recompute: auto");
      EXPECT_EQ(chosen(out)["value"][0] == "none", budget == most) << chosen(out).dump();
    }
  }
}

TEST_F(AutomaticRun, OffloadsWhereItMay) {
  const auto reference = train_with({{"recompute", "none"}});
  const std::uint64_t least = peak(train_with({{"recompute", "full"}, {"offload_activations", "cpu"}}));
  const auto out = train_with({{"recompute", "auto"}, {"offload_activations", "cpu"}, {"device_memory", least}});
  EXPECT_EQ(trajectory(out), trajectory(reference));
  EXPECT_LE(peak(out), least);
  EXPECT_THAT(chosen(out).dump(), HasSubstr("offloaded"));
}

TEST_F(AutomaticRun, KeepsTheBudgetOfDeviceAndHostTogether) {
  const auto full = train_with({{"recompute", "full"}});
  const auto out = train_with({{"recompute", "auto"}, {"offload_activations", "cpu"}, {"memory_budget", peak(full)}});
  EXPECT_LE(peak(out) + peak(out, "host"), peak(full));
  EXPECT_EQ(trajectory(out), trajectory(full));
}

TEST_F(AutomaticRun, IsRefusedByTheBytesThatTheLeastLacks) {
  const std::uint64_t full = peak(train_with({{"recompute", "full"}}));
  try {
    train_with({{"recompute", "auto"}, {"device_memory", 1000}});
    FAIL() << "was accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, HasSubstr("at least (recompute: auto)"));
    const auto end = text.find(" bytes are missing");
    ASSERT_NE(end, std::string::npos) << text;
    const std::uint64_t missing = std::stoull(text.substr(text.rfind(' ', end - 1)));
    EXPECT_LE(missing + 1000, full);
    EXPECT_GT(missing + 1000, full / 2);
  }
}

TEST_F(AutomaticRun, EveryOtherBlockIsBetweenNoneAndAll) {
  const auto none = train_with({{"recompute", "none"}}), full = train_with({{"recompute", "full"}});
  const auto half = train_with({{"recompute", "full"}, {"recompute_every", 2}});
  EXPECT_LT(peak(half), peak(none));
  EXPECT_GT(peak(half), peak(full));
  EXPECT_EQ(trajectory(half), trajectory(none));
}

TEST_F(AutomaticRun, TheTimelineHasThePeakOfWhatIsHeld) {
  const auto out = train_with({{"memory_timeline", true}, {"gradient_accumulation_steps", 1}});
  EXPECT_THAT(read_file(out / "timeline.svg"), HasSubstr("<svg"));
  const Json trace = parse_json(read_file(out / "timeline.json"), "timeline.json");
  const Json memory = parse_json(read_file(out / "memory.json"), "memory.json");
  std::map<std::string, std::string> names;
  std::map<std::string, std::uint64_t> greatest, at_peak;
  double end_of_unit = 0, end = 0;
  std::uint64_t total = 0, most = 0;
  int slices = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") names[event["name"]] = event["args"]["name"];
    if (event["ph"] == "C" && event["name"] == "device") total = event["args"]["bytes"];
    if (event["ph"] == "C" && event["name"] == "device bytes") {
      std::map<std::string, std::uint64_t> held = event["args"];
      std::uint64_t sum = 0;
      for (const auto& [name, bytes] : held) {
        greatest[name] = std::max(greatest[name], bytes);
        sum += bytes;
      }
      EXPECT_EQ(sum, total);  // of the event before
      if (total > most) {
        most = total;
        at_peak = held;
      }
    }
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    EXPECT_GE(begin, end - 1e-3);  // one after another; microseconds
    if (event["cat"] == "unit") {
      EXPECT_GE(begin, end_of_unit - 1e-3);
      end_of_unit = begin + event["dur"].get<double>();
    } else {
      end = begin + event["dur"].get<double>();
      EXPECT_LE(end, end_of_unit + 1e-3);
      ++slices;
    }
  }
  EXPECT_GT(slices, 100);
  EXPECT_EQ(names["process_name"], "heddle rank");
  EXPECT_EQ(names["thread_name"], "instructions");
  const Json& device = memory["ranks"][0]["tiers"]["device"];
  EXPECT_LE(most, device["peak"].get<std::uint64_t>());
  for (const char* name : {"parameters", "gradients", "optimizer_states", "activations", "data"}) {
    EXPECT_EQ(greatest[name], device["classes"][name].get<std::uint64_t>()) << name;
    EXPECT_EQ(at_peak[name], device["at_peak"][name].get<std::uint64_t>()) << name;
  }
  EXPECT_EQ(greatest.count("communication"), 0u);  // one rank has none, hence no flat line of zeros
}

TEST_F(AutomaticRun, TheTimelineNamesWhatIsWaitedFor) {
  const auto out = train_with({{"memory_timeline", true}, {"recompute", "full"}, {"offload_activations", "cpu"}});
  const Json trace = parse_json(read_file(out / "timeline.json"), "timeline.json");
  std::set<std::string> written;
  int waits = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["cat"] == "unit") continue;
    const Json& arguments = event["args"];
    if (arguments.contains("outputs")) {
      for (const std::string label : arguments["outputs"]) written.insert(label);
    }
    if (event["name"] != "wait") continue;
    EXPECT_FALSE(arguments["inputs"].empty()) << event.dump();
    for (const std::string label : arguments["inputs"]) EXPECT_TRUE(written.contains(label)) << label;
    ++waits;
  }
  EXPECT_GT(waits, 4);
}

}  // namespace
}  // namespace heddle::endtoend
