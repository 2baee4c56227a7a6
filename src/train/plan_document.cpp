#include "train/plan_document.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"

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
    const std::string life =
        buffer.is_persistent ? "persistent" : fmt::format("instructions {}-{}", buffer.first_use, buffer.last_use);
    const std::string place = buffer.storage != static_cast<int>(id) && !buffer.is_persistent
                                  ? fmt::format("in place of %{}", buffer.storage)
                                  : fmt::format("at {}", buffer.offset);
    text += fmt::format("    %{} {} {}{}, {} bytes of {} on {}, {}, {}\n", id, buffer.label,
                        torch_name(buffer.type.dtype), buffer.type.shape.text(), buffer.bytes(),
                        class_name(buffer.buffer_class), tier_name(buffer.tier), life, place);
  }
}

}  // namespace

Json bill_document(const Parameters& parameters, const Bill& device) {
  Json at_peak = Json::object(), greatest = Json::object();
  for (std::size_t c = 0; c < kBufferClasses; ++c) {
    const std::string name(class_name(static_cast<BufferClass>(c)));
    at_peak[name] = device.at_peak[c];
    greatest[name] = device.greatest[c];
  }
  Json rank = {{"rank", 0},
               {"tiers", {{"device", {{"peak", device.peak}, {"at_peak", at_peak}, {"classes", greatest}}}}}};
  return {{"num_parameters", parameters.count()},
          {"num_trainable_parameters", parameters.trainable_count()},
          {"ranks", Json::array({rank})}};
}

std::string bill_text(const CompiledRun& compiled) {
  const Bill& bill = compiled.plan.device;
  std::string text = fmt::format("{} parameters, {} trainable, computed in {}\n\n",
                                 format_count(static_cast<std::uint64_t>(compiled.parameters.count())),
                                 format_count(static_cast<std::uint64_t>(compiled.parameters.trainable_count())),
                                 torch_name(compiled.activation_type));
  text += fmt::format("{:<18}{:>14}{:>14}{:>22}\n", "device", "at the peak", "greatest", "bytes at the peak");
  for (std::size_t c = 0; c < kBufferClasses; ++c) {
    if (bill.greatest[c] == 0) continue;
    const bool is_optimizer = static_cast<BufferClass>(c) == BufferClass::optimizer_states;
    text += fmt::format("{:<18}{:>14}{:>14}{:>22}\n", class_name(static_cast<BufferClass>(c)),
                        format_bytes(bill.at_peak[c]), format_bytes(bill.greatest[c]), format_count(bill.at_peak[c]));
    if (!is_optimizer) continue;
    for (const char* moment : {"  exp_avg", "  exp_avg_sq"}) {  // Adam's momentum and variance: two of a kind
      text += fmt::format("{:<18}{:>14}{:>14}{:>22}\n", moment, format_bytes(bill.at_peak[c] / 2),
                          format_bytes(bill.greatest[c] / 2), format_count(bill.at_peak[c] / 2));
    }
  }
  text += fmt::format("{:<18}{:>14}{:>14}{:>22}\n", "peak", format_bytes(bill.peak), "", format_count(bill.peak));
  return text;
}

std::string lengths_text(const RunConfig& run, const ModelConfig& model) {
  constexpr std::array kModes = {std::pair{"none", Recompute::none}, std::pair{"selective", Recompute::selective},
                                 std::pair{"full", Recompute::full}};
  std::string text =
      fmt::format("\nactivations (and peak) of {} row{} by length\n{:<12}", run.per_device_train_batch_size,
                  run.per_device_train_batch_size == 1 ? "" : "s", "max_length");
  for (const auto& [name, mode] : kModes) text += fmt::format("{:>26}", fmt::format("recompute: {}", name));
  text += "\n";
  RunConfig varied = run;
  for (std::int64_t length = 512; length <= std::min<std::int64_t>(model.max_positions, 65536); length *= 2) {
    text += fmt::format("{:<12}", length);
    varied.max_length = length;
    for (const auto& [name, mode] : kModes) {
      varied.recompute = mode;
      const std::int64_t tokens = length * run.per_device_train_batch_size;
      const Bill bill =
          compile_training(model, varied, {tokens, run.per_device_train_batch_size}, std::nullopt).plan.device;
      const auto activations = bill.greatest[static_cast<std::size_t>(BufferClass::activations)];
      text += fmt::format("{:>26}", fmt::format("{} ({})", format_bytes(activations), format_bytes(bill.peak)));
    }
    text += "\n";
  }
  return text;
}

std::string program_text(const CompiledRun& compiled) {
  std::string text;
  for (const auto& program : compiled.programs) append_program(text, program);
  return text;
}

}  // namespace heddle
