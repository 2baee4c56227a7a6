#include "formats/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string error_of(const std::string& text, int max_depth = 200) {
  try {
    parse_json(text, "f.json", max_depth);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Json, KeepsTheOrderOfKeysAndEveryKindOfValue) {
  const Json value =
      parse_json(R"({"z": 1, "a": [true, null, -2, 2.5, "h\u00e9\ud83d\ude00"], "m": {"x": {}, "y": []}})", "f");
  EXPECT_EQ(value.dump(), "{\"z\":1,\"a\":[true,null,-2,2.5,\"h\xc3\xa9\xf0\x9f\x98\x80\"],\"m\":{\"x\":{},\"y\":[]}}");
  EXPECT_EQ(parse_json(" 7 ", "f"), Json(7));
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": 2}, [[3]]])", "f").dump(), R"([{"a":1},{"a":2},[[3]]])");
}

TEST(Json, DuplicateKeysAreRefusedByNameAndLine) {
  EXPECT_EQ(error_of("{\"a\": 1,\n\"b\": {\"a\": 2},\n\"a\": 3}"), "f.json: line 3: duplicate key \"a\"");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\": {\"k0\": 1},\n";
  EXPECT_EQ(error_of(many + "\"last\": 0}"), "no error");
  EXPECT_EQ(error_of(many + "\"k3\": 0}"), "f.json: line 101: duplicate key \"k3\"");
  EXPECT_EQ(error_of(many + "\"k99\": 0}"), "f.json: line 101: duplicate key \"k99\"");
}

TEST(Json, ALargeObjectIsReadInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":" + std::to_string(i);
  const Json value = parse_json(text + "}", "f");  // 4.5e10 comparisons if each key were looked up
  EXPECT_EQ(value.size(), 300000U);
}

TEST(Json, NumbersThatAreNoneAreRefused) {
  for (const char* text :
       {"NaN", "Infinity", "-Infinity", "nan", "1e999", "-1e999", "01", "1.", ".5", "+1", "0x10", "1e"}) {
    EXPECT_THAT(error_of(std::string("{\"a\":\n") + text + "}"), StartsWith("f.json: line 2: ")) << text;
  }
}

TEST(Json, NonFiniteNumbersMayBecomeTexts) {
  const auto parsed = [](const std::string& text) { return parse_json(text, "f", 200, NonFinite::as_text).dump(); };
  EXPECT_EQ(parsed("[NaN, -Infinity,Infinity\n]"), R"(["NaN","-Infinity","Infinity"])");
  EXPECT_EQ(parsed("NaN"), "\"NaN\"");
  EXPECT_EQ(parsed(R"({"NaN": {"a": NaN}})"), R"({"NaN":{"a":"NaN"}})");
  EXPECT_EQ(parsed(R"(["\"NaN, NaN\\", 1])"), R"(["\"NaN, NaN\\",1])");
  for (const char* text : {"{NaN: 1}", "[xNaN]", "[NaNs]", "[--Infinity]", "[\"a]", "[\"\\"})
    EXPECT_THROW(parsed(text), Error) << text;
}

TEST(Json, IntegersBeyond64BitsAreNoIntegers) {
  EXPECT_TRUE(parse_json("18446744073709551615", "f").is_number_unsigned());
  EXPECT_TRUE(parse_json("-9223372036854775808", "f").is_number_integer());
  EXPECT_FALSE(parse_json("18446744073709551616", "f").is_number_integer());
  EXPECT_FALSE(parse_json("-9223372036854775809", "f").is_number_integer());
}

TEST(Json, DepthIsLimited) {
  EXPECT_THAT(error_of(std::string(200000, '[') + std::string(200000, ']')), HasSubstr("nested deeper than 200"));
  std::string objects;
  for (int i = 0; i < 200000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of(objects), HasSubstr("nested deeper than 200"));
  EXPECT_EQ(error_of("[[[]]]", 3), "no error");
  EXPECT_EQ(error_of("[[[{}]]]", 3), "f.json: line 1: nested deeper than 3 levels");
}

TEST(Json, TextThatIsNotUtf8IsRefused) {
  for (const char* bytes : {"\xff\xfe", "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_THAT(error_of(std::string("\n{\"a\": \"") + bytes + "\"}"),
                AllOf(StartsWith("f.json: line 2: "), HasSubstr("\\x"), Not(HasSubstr(bytes))));
  }
}

TEST(Json, LoneSurrogatesAreRefused) {
  EXPECT_THAT(error_of(R"(["\ud800"])"), HasSubstr("surrogate"));
  EXPECT_THAT(error_of(R"(["\udc00"])"), HasSubstr("surrogate"));
  EXPECT_THAT(error_of(R"(["\ud800\ud800"])"), HasSubstr("surrogate"));
}

TEST(Json, TruncatedAndTrailingTextIsRefused) {
  for (const char* text : {"", " \n", "{", "{\"a\"", "{\"a\":", "{\"a\": 1,", "{\"a\": 1,}", "[1, 2", "[1,]", "\"abc",
                           "tru", "{} {}", "1 2", "{'a': 1}", "/* */ 1"}) {
    EXPECT_THAT(error_of(text), StartsWith("f.json: line ")) << text;
  }
}

TEST(Json, AnErrorIsOneShortLine) {
  const std::string error = error_of("[\"" + std::string(100000, 'x') + "\n\"]");
  EXPECT_LT(error.size(), 300U);
  EXPECT_THAT(error, Not(HasSubstr("\n")));
}

TEST(JsonFile, AbsentFoldersAndLargeFilesAreRefusedByPath) {
  const auto folder = std::filesystem::temp_directory_path() / "heddle_json_test";
  std::filesystem::create_directories(folder);
  const auto path = folder / "a.json";
  std::ofstream(path) << "{\"a\": 12345}";
  EXPECT_EQ(read_json_file(path).dump(), "{\"a\":12345}");
  EXPECT_THROW(read_json_file(path, 5), Error);
  EXPECT_THROW(read_json_file(folder), Error);
  try {
    read_json_file(folder / "absent.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("absent.json"), HasSubstr("No such file")));
  }
  std::filesystem::remove_all(folder);
}

TEST(JsonExcerpt, IsShortAndAscii) {
  EXPECT_EQ(json_excerpt(Json("h\xc3\xa9")), "\"h\\u00e9\"");
  EXPECT_EQ(json_excerpt(Json("\xff")), "\"\\ufffd\"");
  EXPECT_LT(json_excerpt(Json(std::string(1000, 'x'))).size(), 70U);
  EXPECT_EQ(json_excerpt(Json(std::vector<int>(1000))), "an array of 1000 elements");
}

}  // namespace
}  // namespace heddle
