#include "train/plan_document.h"

#include <fmt/format.h>

#include <map>

#include "base/text.h"
#include "train/residency.h"

namespace heddle {
namespace {

std::string operand_text(const StepProgram& program, int operand) {
  if (operand < 0) return "-";
  const Buffer& buffer = program.at(operand);
  return fmt::format("%{} {} {}{}", operand, buffer.label, torch_name(buffer.type.dtype), buffer.type.shape.text());
}

std::string attributes_text(const Attributes& attributes) {
  std::string text;
  for (const auto& [name, value] : attributes.entries()) {
    text += text.empty() ? "" : ", ";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
      text += fmt::format("{}={}", name, *whole);
    } else if (const auto* real = std::get_if<double>(&value)) {
      text += fmt::format("{}={}", name, *real);
    } else {
      text += fmt::format("{}=[{} values]", name, std::get<std::vector<double>>(value).size());
    }
  }
  return text.empty() ? "" : "  {" + text + "}";
}

void append_program(std::string& text, const StepProgram& program) {
  text += fmt::format("program {}: {} instructions\n", program.name, program.instructions.size());
  int unit = -1;
  Phase phase = Phase::forward;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto& instruction = program.instructions[i];
    if (instruction.unit != unit || instruction.phase != phase) {
      unit = instruction.unit;
      phase = instruction.phase;
      text += fmt::format("  {} of {}\n", phase_name(phase), program.units[static_cast<std::size_t>(unit)]);
    }
    std::string inputs, outputs;
    for (const int in : instruction.inputs) inputs += (inputs.empty() ? "" : ", ") + operand_text(program, in);
    for (const int out : instruction.outputs) outputs += (outputs.empty() ? "" : ", ") + operand_text(program, out);
    text += fmt::format("    {:5} {}({}) -> {}{}\n", i, instruction.operation->name, inputs, outputs,
                        attributes_text(instruction.attributes));
  }
  text += fmt::format("buffers of {}\n", program.name);
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.view_of >= 0 || (buffer.first_use < 0 && !buffer.is_persistent)) continue;
    std::string life = fmt::format("instructions {}-{}", buffer.first_use, buffer.last_use);
    if (buffer.is_carried) {
      life = fmt::format("persistent from instruction {}", buffer.first_use);
    } else if (buffer.is_persistent) {
      life = "persistent";
    }
    const std::string place = buffer.storage != static_cast<int>(id) && !buffer.is_persistent
                                  ? fmt::format("in place of %{}", buffer.storage)
                                  : fmt::format("at {}", buffer.offset);
    text += fmt::format("    %{} {} {}{}, {} bytes of {} on {}, {}, {}\n", id, buffer.label,
                        torch_name(buffer.type.dtype), buffer.type.shape.text(), buffer.bytes(),
                        class_name(buffer.buffer_class), tier_name(buffer.tier), life, place);
  }
}

/// Bytes of each optimizer state on a tier; they are held from the first step to the last. Their buffers are labelled
/// "PARAMETER STATE".
std::map<std::string, std::uint64_t> state_bytes(const CompiledRun& compiled, Tier tier) {
  std::map<std::string, std::uint64_t> bytes;
  for (const int update : {compiled.update, compiled.streamed_update}) {
    if (update < 0) continue;
    for (const auto& buffer : compiled.programs[static_cast<std::size_t>(update)].buffers) {
      if (buffer.buffer_class != BufferClass::optimizer_states || buffer.view_of >= 0 || buffer.tier != tier) continue;
      bytes[buffer.label.substr(buffer.label.rfind(' ') + 1)] += static_cast<std::uint64_t>(buffer.bytes());
    }
  }
  return bytes;
}

}  // namespace

Json bill_document(const Parameters& parameters, std::span<const TierBills> ranks) {
  Json documents = Json::array();
  for (const TierBills& bills : ranks) {
    Json tiers = Json::object();
    for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      const Bill& bill = bills[static_cast<std::size_t>(tier)];
      if (bill.peak == 0 && tier != Tier::device) continue;
      Json at_peak = Json::object(), greatest = Json::object();
      for (std::size_t c = 0; c < kBufferClasses; ++c) {
        const std::string name(class_name(static_cast<BufferClass>(c)));
        at_peak[name] = bill.at_peak[c];
        greatest[name] = bill.greatest[c];
      }
      tiers[std::string(tier_name(tier))] = {{"peak", bill.peak}, {"at_peak", at_peak}, {"classes", greatest}};
    }
    documents.push_back({{"rank", documents.size()}, {"tiers", std::move(tiers)}});
  }
  return {{"num_parameters", parameters.count()},
          {"num_trainable_parameters", parameters.trainable_count()},
          {"ranks", documents}};
}

Json plan_document(const CompiledRun& compiled) {
  const std::vector<TierBills> bills(static_cast<std::size_t>(compiled.sharding.ranks), compiled.plan.bills());
  return bill_document(compiled.parameters, bills);
}

std::string bill_text(const CompiledRun& compiled) {
  std::string text = fmt::format("{} parameters, {} trainable, computed in {}\n",
                                 format_count(static_cast<std::uint64_t>(compiled.parameters.count())),
                                 format_count(static_cast<std::uint64_t>(compiled.parameters.trainable_count())),
                                 torch_name(compiled.activation_type));
  for (const std::string& line : decisions(compiled)) text += line + "\n";
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const Bill bill = compiled.plan.bills()[static_cast<std::size_t>(tier)];
    if (bill.peak == 0) continue;
    text += fmt::format("\n{:<18}{:>14}{:>14}{:>22}\n",
                        fmt::format("{}{}", tier_name(tier), compiled.sharding.ranks > 1 ? " of a rank" : ""),
                        "at the peak", "greatest", "bytes at the peak");
    const auto add_line = [&](std::string_view name, std::uint64_t at_peak, std::uint64_t greatest) {
      text += fmt::format("{:<18}{:>14}{:>14}{:>22}\n", name, format_bytes(at_peak), format_bytes(greatest),
                          format_count(at_peak));
    };
    for (std::size_t c = 0; c < kBufferClasses; ++c) {
      if (bill.greatest[c] == 0) continue;
      add_line(class_name(static_cast<BufferClass>(c)), bill.at_peak[c], bill.greatest[c]);
      if (static_cast<BufferClass>(c) != BufferClass::optimizer_states) continue;
      for (const auto& [state, bytes] : state_bytes(compiled, tier)) add_line("  " + state, bytes, bytes);
    }
    text += fmt::format("{:<18}{:>14}{:>14}{:>22}\n", "peak", format_bytes(bill.peak), "", format_count(bill.peak));
  }
  return text;
}

std::string program_text(const CompiledRun& compiled) {
  std::string text;
  for (const auto& program : compiled.programs) append_program(text, program);
  return text;
}

}  // namespace heddle
