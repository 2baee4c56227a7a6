#include "data/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const Json kHello =
    Json::array({{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Hello ä"}}});

class Folder : public testing::Test {
 protected:
  Folder() : path_(fs::temp_directory_path() / ("chat_template_test." + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() override { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string render(const Json& tools = nullptr) {
    return ChatTemplate::of_folder(path_)->render(kHello, tools, nullptr, false).text;
  }
  fs::path path_;
};

using ChatTemplateFolder = Folder;

TEST_F(ChatTemplateFolder, HasNoneWhereNoFileHasOne) {
  EXPECT_FALSE(ChatTemplate::of_folder(path_).has_value());
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_FALSE(ChatTemplate::of_folder(path_).has_value());
}

TEST_F(ChatTemplateFolder, TheJinjaFileComesBeforeTheOthers) {
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": null, "chat_template": "config{{ bos_token }}"})");
  EXPECT_EQ(render(), "config<s>");
  write("chat_template.json", R"({"chat_template": "json{{ bos_token }}"})");
  EXPECT_EQ(render(), "json<s>");
  write("chat_template.jinja", "jinja{{ bos_token }}{{ eos_token is defined }}\n");
  EXPECT_EQ(render(), "jinja<s>False");
}

TEST_F(ChatTemplateFolder, RowsWithToolsTakeTheTemplateForThem) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t{{ tools|length }}"}]})");
  EXPECT_EQ(render(), "d");
  EXPECT_EQ(render(Json::array({Json::object()})), "t1");
}

TEST_F(ChatTemplateFolder, NamesTheFileOfATemplateThatIsNone) {
  write("chat_template.jinja", "a\n{% if %}");
  try {
    ChatTemplate::of_folder(path_);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("chat_template.jinja:2: "));
  }
}

TEST(ChatTemplate, MarksBytesOfGenerationBlocks) {
  const ChatTemplate marked(
      "{% for m in messages %}{% if m.role == 'assistant' %}a:{% generation %}{{ m.content }}.{% endgeneration %}\n"
      "{% else %}u:{{ m.content }}\n{% endif %}{% endfor %}",
      "t", Json::object());
  EXPECT_TRUE(marked.marks_generation());
  const auto rendering = marked.render(kHello, nullptr, nullptr, false);
  EXPECT_EQ(rendering.text, "u:Hi\na:Hello ä.");
  EXPECT_THAT(rendering.generated, ElementsAre(Pair(7U, 16U)));
  EXPECT_FALSE(ChatTemplate("x", "t", nullptr).marks_generation());
}

TEST(ChatTemplate, VariablesOfTheRowWin) {
  const ChatTemplate shown("{{ bos_token }}{{ x }}{{ add_generation_prompt }}{{ tools }}", "t",
                           {{"bos_token", "<s>"}, {"x", 1}});
  EXPECT_EQ(shown.render(kHello, nullptr, {{"x", 2}}, true).text, "<s>2TrueNone");
}

// transformers 5.24: _normalize_chat_messages and _alias_reasoning_fields.
TEST(ChatTemplate, MessagesLoseNullsAndReasoningHasAllItsNames) {
  const ChatTemplate shown("{{ messages[0] }}", "t", nullptr);
  const Json messages = Json::array({{{"role", "a"}, {"content", nullptr}, {"reasoning", "r"}}});
  EXPECT_EQ(shown.render(messages, nullptr, nullptr, false).text,
            "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}");
}

TEST(ChatTemplate, KeysKeepTheirOrder) {
  const ChatTemplate shown("{{ tools|tojson }}", "t", nullptr);
  const Json tools = Json::parse(R"([{"z": 1, "a": {"y": 2, "b": 3}}])");
  EXPECT_EQ(shown.render(kHello, tools, nullptr, false).text, R"([{"z": 1, "a": {"y": 2, "b": 3}}])");
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const ChatTemplate shown("x", "t", nullptr);
  EXPECT_THROW(shown.render(Json::array(), nullptr, nullptr, false), Error);
  EXPECT_THROW(shown.render("text", nullptr, nullptr, false), Error);
  EXPECT_THROW(shown.render(Json::array({1}), nullptr, nullptr, false), Error);
}

}  // namespace
}  // namespace heddle
