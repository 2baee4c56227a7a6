#pragma once

#include <string>
#include <string_view>

#include "monitor/chart.h"

namespace heddle {

/// An SVG drawing under construction; coordinates are pixels from the top left.
class Svg {
 public:
  Svg(double width, double height, Canvas canvas, std::string_view description);
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  /// `anchor` is start, middle or end.
  void text(double x, double y, std::string_view text, std::string_view style, std::string_view anchor = "start");
  void rectangle(double x, double y, double width, double height, double radius, std::string_view style,
                 std::string_view tooltip = {});
  void circle(double x, double y, double radius, std::string_view style, std::string_view tooltip = {});
  /// `commands` as in the attribute d.
  void path(std::string_view commands, std::string_view style);
  /// The finished document or element.
  std::string finish() &&;

 private:
  std::string out_;
};

/// Rough width in pixels of text in the charts' font at `size` pixels.
double text_width(std::string_view text, double size = 12);

}  // namespace heddle
