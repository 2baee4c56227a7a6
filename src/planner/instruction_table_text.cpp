// The table of a step's instructions as text and as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "planner/instruction_table.h"

namespace heddle {
namespace {

constexpr std::size_t kLosers = 5;

std::string row_text(const InstructionGroup& group, double step_seconds) {
  const auto rate = [&](double amount) {
    return amount > 0 && group.seconds > 0 ? fmt::format("{:.1f}", amount / group.seconds * 1e-9) : std::string("-");
  };
  const bool has_ceiling = group.ceiling_seconds > 0 && group.seconds > 0;
  return fmt::format("{:>7.4g}{:>11.3f}{:>7.1f}%{:>10}{:>9}{:>9}", group.calls, group.seconds * 1e3,
                     100 * group.seconds / step_seconds, rate(group.work.flops), rate(group.work.bytes.total()),
                     has_ceiling ? fmt::format("{:.0f}%", 100 * group.ceiling_seconds / group.seconds) : "-");
}

std::string_view bound_name(const InstructionGroup& group) {
  return group.ceiling_seconds <= 0 ? ""
         : !group.is_compute_bound  ? "memory"
         : group.work.in_bf16       ? "multiply-add of bf16"
                                    : "multiply-add";
}

/// Those that take the most time beyond their ceiling.
std::vector<const InstructionGroup*> losers(const InstructionTable& table) {
  std::vector<const InstructionGroup*> order;
  for (const auto& group : table.groups) {
    if (group.seconds > group.ceiling_seconds) order.push_back(&group);
  }
  std::ranges::stable_sort(order, std::greater<>(),
                           [](const auto* group) { return group->seconds - group->ceiling_seconds; });
  if (order.size() > kLosers) order.resize(kLosers);
  return order;
}

Json group_document(const InstructionGroup& group, double step_seconds) {
  Json document = {{"phase", phase_name(group.phase)},
                   {"operation", group.operation},
                   {"shapes", group.shapes},
                   {"calls", group.calls},
                   {"seconds", group.seconds},
                   {"share", group.seconds / step_seconds},
                   {"flops", group.work.flops},
                   {"bytes_read", group.work.bytes.read},
                   {"bytes_written", group.work.bytes.written},
                   {"bytes_updated", group.work.bytes.updated},
                   {"ceiling_seconds", group.ceiling_seconds}};
  document["bound"] = group.ceiling_seconds > 0 ? Json(bound_name(group)) : Json();
  document["fraction"] =
      group.ceiling_seconds > 0 && group.seconds > 0 ? Json(group.ceiling_seconds / group.seconds) : Json();
  return document;
}

}  // namespace

std::string instruction_table_text(const InstructionTable& table) {
  const auto& c = table.ceilings;
  std::string text = fmt::format(
      "an optimizer step of {:.0f} tokens: {:.1f} ms, {:.0f} tokens/s; mean of {} steps\n"
      "ceilings of {} thread{}: {:.1f} GFLOP/s of multiply-adds, {:.1f} of bf16; memory {:.1f} GB/s read, {:.1f} "
      "written, {:.1f} "
      "updated in place\n\n",
      table.tokens, table.step_seconds * 1e3, table.tokens / table.step_seconds, table.steps, c.threads,
      c.threads == 1 ? "" : "s", c.flops * 1e-9, c.bf16_flops * 1e-9, c.read * 1e-9, c.write * 1e-9, c.update * 1e-9);
  std::size_t shapes_width = 8, name_width = 9;
  for (const auto& group : table.groups) {
    shapes_width = std::max(shapes_width, group.shapes.size());
    name_width = std::max(name_width, group.operation.size());
  }
  text += fmt::format("{:10}{:{}}  {:{}}{:>7}{:>11}{:>8}{:>10}{:>9}{:>9}  {}\n", "phase", "operation", name_width,
                      "shapes", shapes_width, "calls", "ms", "share", "GFLOP/s", "GB/s", "reached", "ceiling");
  for (const auto& group : table.groups) {
    text += fmt::format("{:10}{:{}}  {:{}}{}  {}\n", phase_name(group.phase), group.operation, name_width, group.shapes,
                        shapes_width, row_text(group, table.step_seconds), bound_name(group));
  }
  const InstructionGroup total = table.total();
  const auto label_width = 10 + name_width + 2 + shapes_width;
  text += fmt::format("{:{}}{}\n", "total", label_width, row_text(total, table.step_seconds));
  const double between = table.step_seconds - total.seconds;
  text += fmt::format("{:{}}{:>7}{:>11.3f}{:>7.1f}%\n", "between instructions", label_width, "", between * 1e3,
                      100 * between / table.step_seconds);
  const auto order = losers(table);
  if (!order.empty()) text += "\nmost time beyond the ceiling:\n";
  for (const auto* group : order) {
    const double lost = group->seconds - group->ceiling_seconds;
    text += fmt::format("  {:>9.3f} ms, {:>4.1f}% of the step: {} {} {}\n", lost * 1e3, 100 * lost / table.step_seconds,
                        phase_name(group->phase), group->operation, group->shapes);
  }
  return text;
}

Json instruction_table_document(const InstructionTable& table) {
  const auto& c = table.ceilings;
  const InstructionGroup total = table.total();
  Json document = {{"steps", table.steps},
                   {"ranks", table.ranks},
                   {"step_seconds", table.step_seconds},
                   {"tokens", table.tokens},
                   {"tokens_per_second", table.tokens / table.step_seconds},
                   {"ceilings",
                    {{"threads", c.threads},
                     {"multiply_add_flops_per_second", c.flops},
                     {"bf16_multiply_add_flops_per_second", c.bf16_flops},
                     {"read_bytes_per_second", c.read},
                     {"write_bytes_per_second", c.write},
                     {"update_bytes_per_second", c.update}}},
                   {"total",
                    {{"seconds", total.seconds},
                     {"flops", total.work.flops},
                     {"bytes", total.work.bytes.total()},
                     {"ceiling_seconds", total.ceiling_seconds},
                     {"fraction", total.ceiling_seconds / total.seconds}}},
                   {"between_instructions_seconds", table.step_seconds - total.seconds}};
  Json& rows = document["instructions"] = Json::array();
  for (const auto& group : table.groups) rows.push_back(group_document(group, table.step_seconds));
  Json& most = document["most_beyond_ceiling"] = Json::array();
  for (const auto* group : losers(table)) most.push_back(group_document(*group, table.step_seconds));
  return document;
}

}  // namespace heddle
