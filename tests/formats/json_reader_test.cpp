#include "formats/json_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "safetensors_files.h"

namespace heddle {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

class JsonReaderTest : public testing::Test {
 protected:
  const Json value = parse_json(
      R"({"n": 3, "minus": -3, "f": 2.5, "big": 18446744073709551615, "beyond": 99999999999999999999,
      "t": "text", "b": true, "none": null, "list": [1, 2.5], "words": ["a"], "inner": {"x": 0}})",
      "f");
  const JsonReader reader{value, "f.json"};
};

TEST_F(JsonReaderTest, ReadsEachKind) {
  EXPECT_EQ(reader.integer("n", 1, 3), 3);
  EXPECT_EQ(reader.integer("minus", -3, -1), -3);
  EXPECT_EQ(reader.integer_or("none", 7, 1, 9), 7);
  EXPECT_EQ(reader.number("f"), 2.5);
  EXPECT_EQ(reader.positive_number("n"), 3);
  EXPECT_EQ(reader.text("t"), "text");
  EXPECT_TRUE(reader.boolean_or("b", false));
  EXPECT_EQ(reader.positive_numbers("list"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(reader.texts("words"), std::vector<std::string>{"a"});
  EXPECT_FALSE(reader.has("none"));
  EXPECT_EQ(reader.either("none", "n"), "n");
  EXPECT_EQ(reader.either("n", "f"), "n");
  EXPECT_EQ(reader.either("none", "absent"), "none");
}

TEST_F(JsonReaderTest, ErrorsNameFileKeyValueAndWhatWasExpected) {
  const auto integer = [&](const char* key, std::int64_t min, std::int64_t max) {
    return error_of([&] { reader.integer(key, min, max); });
  };
  EXPECT_EQ(integer("n", 4, 8), "f.json: n is 3; expected a whole number from 4 to 8");
  EXPECT_EQ(integer("n", -8, 2), "f.json: n is 3; expected a whole number from -8 to 2");
  EXPECT_EQ(integer("minus", 0, 8), "f.json: minus is -3; expected a whole number from 0 to 8");
  EXPECT_EQ(integer("f", 1, 8), "f.json: f is 2.5; expected a whole number from 1 to 8");
  EXPECT_EQ(integer("t", 1, 8), "f.json: t is \"text\"; expected a whole number from 1 to 8");
  EXPECT_EQ(integer("list", 1, 8), "f.json: list is [1,2.5]; expected a whole number from 1 to 8");
  EXPECT_EQ(integer("absent", 1, 8), "f.json: absent is absent; expected a whole number from 1 to 8");
  EXPECT_NE(integer("big", 1, kMax), "no error");
  EXPECT_NE(integer("big", -5, -1), "no error");
  EXPECT_NE(integer("beyond", 1, kMax), "no error");
  EXPECT_EQ(error_of([&] { reader.positive_number("minus"); }), "f.json: minus is -3; expected a number above 0");
  EXPECT_EQ(error_of([&] { reader.number_up_to_or("f", 0, 1); }), "f.json: f is 2.5; expected a number from 0 to 1");
  EXPECT_EQ(error_of([&] { reader.boolean_or("n", true); }), "f.json: n is 3; expected true or false");
  EXPECT_EQ(error_of([&] { reader.text("n"); }), "f.json: n is 3; expected a text");
  EXPECT_EQ(error_of([&] { reader.texts("list"); }), "f.json: list is [1,2.5]; expected a list of texts");
  EXPECT_EQ(error_of([&] { reader.object("inner").positive_number("x"); }),
            "f.json: inner.x is 0; expected a number above 0");
  EXPECT_EQ(error_of([&] { reader.object("n"); }), "f.json: n is 3; expected an object");
  EXPECT_EQ(error_of([&] { JsonReader(value["list"], "f.json"); }), "f.json: is [1,2.5]; expected an object");
}

TEST_F(JsonReaderTest, MisspeltNamesAreMet) {
  constexpr std::array<std::string_view, 2> kWords = {"test", "other"};
  EXPECT_EQ(error_of([&] { reader.refuse_choice("t", kWords); }),
            "f.json: t is \"text\"; expected one of test, other; did you mean test?");
  EXPECT_EQ(error_of([&] { reader.object("inner").allow_only(std::array<std::string_view, 1>{"xx"}); }),
            "f.json: inner.x is no known key; did you mean xx?");
}

}  // namespace
}  // namespace heddle
