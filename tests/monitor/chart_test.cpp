#include "monitor/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "monitor/svg.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Chart, TicksAreRoundNumbersInsideTheRange) {
  EXPECT_THAT(nice_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(nice_ticks(1, 2001, 4), ElementsAre(500, 1000, 1500, 2000));
  EXPECT_DOUBLE_EQ(nice_ticks(2.31, 2.94, 5).front(), 2.4);
  EXPECT_THAT(nice_ticks(3, 3, 5), ElementsAre(3));
}

TEST(Chart, LogTicksAreDecadesOrTheirHalves) {
  EXPECT_THAT(log_ticks(1, 100), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(log_ticks(1, 10000), ElementsAre(1, 10, 100, 1000, 10000));
}

TEST(Chart, TickTextsHaveTheDigitsThatTellThemApart) {
  EXPECT_EQ(format_tick(0.25, 0.05), "0.25");
  EXPECT_EQ(format_tick(3, 0.5), "3.0");
  EXPECT_EQ(format_tick(1500, 500), "1,500");
  EXPECT_EQ(format_tick(20000, 5000), "20k");
  EXPECT_EQ(format_tick(3e-4, 1e-4), "3e-4");
  EXPECT_EQ(format_tick(0, 1e-4), "0");
  EXPECT_EQ(format_tick(-40, 20), "-40");
}

TEST(Chart, SmoothingIsACentredMeanThatPassesOverGaps) {
  EXPECT_THAT(smoothed({1, 2, 6, 4, 5}, 3), ElementsAre(1, 3, 4, 5, 5));
  const double gap = std::numeric_limits<double>::quiet_NaN();
  const auto means = smoothed({1, gap, 3, 5, 9}, 3);
  EXPECT_TRUE(std::isnan(means[1]));
  EXPECT_EQ(means[2], 4);  // of 3 and 5
}

TEST(Chart, ALineIsDrawnWhereItsValuesAre) {
  LineChart chart;
  chart.width = 860, chart.height = 380;
  chart.title = "t";
  chart.series = {{"a", Mark::line, 0, {0, 10}, {0, 10}}};
  // The plot reaches from x 64 to 796 and from y 330 up to 48: margins of 64, 64, 50 and 48 pixels.
  EXPECT_THAT(draw(chart, Canvas::page), HasSubstr(R"(d="M64.0 330.0L796.0 48.0")"));
}

TEST(Chart, TheLegendStandsBelowATitleThatLeavesItNoRoom) {
  LineChart chart;
  chart.width = 400;
  chart.title = "t";
  chart.series = {{"abcd", Mark::line, 0, {0, 10}, {0, 10}}};
  // Its text is 22 pixels behind its mark, at 0.58 x 12 pixels a character: it ends 20 pixels before the right edge.
  EXPECT_THAT(draw(chart, Canvas::page),
              HasSubstr(R"(<text class="text" x="352.2" y="28.0" text-anchor="start">abcd)"));
  chart.title = std::string(36, 't');
  EXPECT_THAT(draw(chart, Canvas::page), HasSubstr(R"(<text class="text" x="42.0" y="50.0" text-anchor="start">abcd)"));
}

TEST(Chart, TheLastValueHasRoomForItsText) {
  LineChart chart;
  chart.width = 860, chart.height = 380;
  chart.series = {{"", Mark::line, 0, {0, 10}, {0, 1.667e-5}}};
  // Nine characters of 0.58 x 13 pixels and 16 pixels around them.
  EXPECT_THAT(draw(chart, Canvas::page), HasSubstr(R"(<circle class="f0" cx="776.1")"));
}

TEST(Chart, FewStepsHaveNoTicksBetweenThem) {
  LineChart chart;
  chart.series = {{"", Mark::line, 0, {1, 2, 3}, {5, 5, 5}}};
  const std::string drawn = draw(chart, Canvas::page);
  for (const char* tick : {">1<", ">2<", ">3<"}) EXPECT_THAT(drawn, HasSubstr(tick));
  EXPECT_THAT(drawn, Not(HasSubstr(">1.5<")));
}

TEST(Chart, NeitherNanNorInfinityReachesTheFile) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  LineChart chart;
  chart.title = "t";
  chart.cut_outliers = true;
  for (const auto& values : {std::vector<double>{}, {nan}, {nan, infinity, 2.0}, {5.0, 5.0, 5.0}, {0.0}}) {
    std::vector<double> steps(values.size());
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<double>(i + 1);
    chart.series = {{"a", Mark::line, 0, steps, values}, {"b", Mark::points, 1, steps, values}};
    for (const bool log_x : {false, true}) {
      chart.log_x = log_x;
      const auto svg = draw(chart, Canvas::file);
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
  }
}

TEST(Chart, ALongRunGivesASmallFile) {
  LineChart chart;
  chart.title = "t";
  Series series{"a", Mark::faint_line, 0, {}, {}};
  for (int i = 0; i < 1000000; ++i) {
    series.x.push_back(i);
    series.y.push_back(std::sin(i * 0.37));
  }
  chart.series = {series};
  EXPECT_LT(draw(chart, Canvas::file).size(), 150000u);
}

TEST(Chart, TextIsEscaped) {
  LineChart chart;
  chart.title = "<b> & \"x\"";
  const auto svg = draw(chart, Canvas::file);
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt; &amp; &quot;x&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
}

TEST(Chart, BarsAreAsLongAsTheirValues) {
  BarChart chart;
  chart.width = 860;
  chart.format = [](double) { return std::string(); };
  chart.bars = {{"", {{"a", 3, 0}, {"b", 1, 1}}}};
  // 860 less margins of 20 and 20 and 12 before the total: 808 pixels for 4, a pixel of each part kept free.
  const auto svg = draw(chart, Canvas::page);
  EXPECT_THAT(svg, HasSubstr(R"(x="20.0" y="8.0" width="605.0")"));
  EXPECT_THAT(svg, HasSubstr(R"(x="626.0" y="8.0" width="201.0")"));
}

TEST(Chart, AFileHasItsOwnStyleAndAPageDrawingHasNone) {
  LineChart chart;
  chart.title = "t";
  EXPECT_THAT(draw(chart, Canvas::file), HasSubstr("<style>"));
  EXPECT_THAT(draw(chart, Canvas::file), HasSubstr("xmlns"));
  EXPECT_THAT(draw(chart, Canvas::page), Not(HasSubstr("<style>")));
}

}  // namespace
}  // namespace heddle
