#include "monitor/chart.h"

namespace heddle {

// Plain properties and no variables, which some viewers of SVG files do not know.
std::string_view chart_style() {
  return R"(
.chart{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",Arial,sans-serif;font-size:12px}
.chart .paper{fill:#ffffff}
.chart .title{font-size:15px;font-weight:600;fill:#111827}
.chart .text{fill:#6b7280}
.chart .strong{fill:#111827}
.chart .grid{stroke:#e5e7eb;stroke-width:1}
.chart .axis{stroke:#9ca3af;stroke-width:1}
.chart .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.chart .thin{fill:none;stroke-width:1.25;stroke-linejoin:round;stroke-opacity:.6}
.chart .faint{fill:none;stroke-width:1;stroke-linejoin:round;stroke-opacity:.3}
.chart .ring{stroke:#ffffff;stroke-width:1.5}
.chart .s0{stroke:#2563eb}.chart .f0{fill:#2563eb}
.chart .s1{stroke:#ea580c}.chart .f1{fill:#ea580c}
.chart .s2{stroke:#0d9488}.chart .f2{fill:#0d9488}
.chart .s3{stroke:#7c3aed}.chart .f3{fill:#7c3aed}
.chart .s4{stroke:#ca8a04}.chart .f4{fill:#ca8a04}
.chart .s5{stroke:#db2777}.chart .f5{fill:#db2777}
.chart .s6{stroke:#65a30d}.chart .f6{fill:#65a30d}
.chart .s7{stroke:#64748b}.chart .f7{fill:#94a3b8}
@media (prefers-color-scheme:dark){
.chart .paper{fill:#0f1419}
.chart .title,.chart .strong{fill:#f3f4f6}
.chart .text{fill:#9ca3af}
.chart .grid{stroke:#262d36}
.chart .axis{stroke:#4b5563}
.chart .ring{stroke:#0f1419}
.chart .s0{stroke:#60a5fa}.chart .f0{fill:#60a5fa}
.chart .s1{stroke:#fb923c}.chart .f1{fill:#fb923c}
.chart .s2{stroke:#2dd4bf}.chart .f2{fill:#2dd4bf}
.chart .s3{stroke:#a78bfa}.chart .f3{fill:#a78bfa}
.chart .s4{stroke:#facc15}.chart .f4{fill:#facc15}
.chart .s5{stroke:#f472b6}.chart .f5{fill:#f472b6}
.chart .s6{stroke:#a3e635}.chart .f6{fill:#a3e635}
.chart .s7{stroke:#94a3b8}.chart .f7{fill:#64748b}
}
)";
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace heddle
