#include "monitor/svg.h"

#include <fmt/format.h>

#include <utility>

namespace heddle {
namespace {

std::string closing(std::string_view element, std::string_view tooltip) {
  if (tooltip.empty()) return "/>\n";
  return fmt::format("><title>{}</title></{}>\n", escape_markup(tooltip), element);
}

}  // namespace

Svg::Svg(double width, double height, Canvas canvas, std::string_view description) {
  const bool is_file = canvas == Canvas::file;
  out_ = fmt::format(R"(<svg{} class="chart" viewBox="0 0 {:.0f} {:.0f}"{} role="img" aria-label="{}">)"
                     "\n",
                     is_file ? R"( xmlns="http://www.w3.org/2000/svg")" : "", width, height,
                     is_file ? fmt::format(R"( width="{:.0f}" height="{:.0f}")", width, height) : std::string(),
                     escape_markup(description));
  if (is_file) {
    out_ += fmt::format("<style>{}</style>\n", chart_style());
    rectangle(0, 0, width, height, 0, "paper");
  }
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  out_ += fmt::format(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)"
                      "\n",
                      style, x1, y1, x2, y2);
}

void Svg::text(double x, double y, std::string_view text, std::string_view style, std::string_view anchor) {
  out_ += fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)"
                      "\n",
                      style, x, y, anchor, escape_markup(text));
}

void Svg::rectangle(double x, double y, double width, double height, double radius, std::string_view style,
                    std::string_view tooltip) {
  out_ += fmt::format(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{:.0f}")", style, x,
                      y, width, height, radius) +
          closing("rect", tooltip);
}

void Svg::circle(double x, double y, double radius, std::string_view style, std::string_view tooltip) {
  out_ += fmt::format(R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}")", style, x, y, radius) +
          closing("circle", tooltip);
}

void Svg::path(std::string_view commands, std::string_view style) {
  out_ += fmt::format(R"(<path class="{}" d="{}"/>)"
                      "\n",
                      style, commands);
}

std::string Svg::finish() && {
  out_ += "</svg>\n";
  return std::move(out_);
}

double text_width(std::string_view text, double size) {
  double characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u ? 1.0 : 0.0;
  return 0.58 * size * characters;
}

}  // namespace heddle
