#include "train/merged_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "models/model.h"
#include "models/module_list.h"
#include "quantize/four_bit.h"
#include "train/adapter_weights.h"
#include "train/quantized_base.h"
#include "train/vocabulary.h"

namespace heddle {

void MergeReport::add_rounding(std::span<const double> exact, std::span<const float> rounded) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = static_cast<double>(rounded[i]) - exact[i];
    greatest_error_ = std::max(greatest_error_, std::abs(error));
    square_errors_ += error * error;
  }
}

void MergeReport::add_base_error(DType four_bits, double squares) {
  base_type_ = four_bits;
  square_base_errors_ += squares;
}

double MergeReport::relative(double squares) const {
  return square_changes_ > 0 ? std::sqrt(squares / square_changes_) : 0.0;
}

double MergeReport::relative_error() const { return relative(square_errors_); }

double MergeReport::base_error() const { return relative(square_base_errors_); }

void note_merge(const MergeReport& report) {
  if (report.merged() == 0) return;
  const double relative = report.relative_error();
  note("{} weights are merged; rounding to their type moved them by {:.2g} at most, {} of the adapter's changes",
       report.merged(), report.greatest_error(),
       relative < 10 ? fmt::format("{:.2g}", relative) : fmt::format("{:.0f} times the size", relative));
  if (relative > 1) warning("rounding changed the merged weights more than the adapter did; a finer type keeps more");
  if (!report.base_type()) return;
  note(
      "the adapter was trained on its base in {}, which changed those weights by {:.2g} times what the adapter does; "
      "it is merged into the unquantized base",
      quant_type_of(*report.base_type()), report.base_error());
}

double MergedTensor::Change::at(std::int64_t element) const {
  const std::int64_t o = output_of(element), i = is_transposed ? element / outputs : element % inputs;
  double sum = 0;
  for (std::int64_t k = 0; k < rank; ++k) {
    sum += static_cast<double>(b[static_cast<std::size_t>(o * rank + k)]) *
           static_cast<double>(a[static_cast<std::size_t>(k * inputs + i)]);
  }
  return scaling * sum;
}

double MergedTensor::Change::merged(std::int64_t element, double before) const {
  const double sum = before + at(element);
  if (magnitude.empty()) return sum;
  const auto o = static_cast<std::size_t>(output_of(element));
  return sum * static_cast<double>(magnitude[o]) / norms[o];
}

void MergedTensor::read(std::int64_t begin, std::span<double> exact) {
  constexpr std::size_t kChunk = 16384;  // elements, by one thread
  if (!change_ && rows_.empty()) {
    std::copy_n(replacement_.begin() + begin, exact.size(), exact.begin());
    return;
  }
  before_.resize(exact.size());
  decoded_.read(begin, before_);
  if (!change_) {
    std::copy(before_.begin(), before_.end(), exact.begin());
    return replace_rows(begin, exact);
  }
  parallel_for(static_cast<std::int64_t>((exact.size() + kChunk - 1) / kChunk), [&](std::int64_t index, int) {
    const auto first = static_cast<std::size_t>(index) * kChunk, last = std::min(exact.size(), first + kChunk);
    for (std::size_t i = first; i < last; ++i)
      exact[i] = change_->merged(begin + static_cast<std::int64_t>(i), static_cast<double>(before_[i]));
  });
  for (std::size_t i = 0; i < exact.size(); ++i) report_.add_change(exact[i] - static_cast<double>(before_[i]));
}

void MergedTensor::account(std::span<const double> exact, std::span<const float> rounded) {
  if (change_) report_.add_rounding(exact, rounded);
}

/// In a pass of their own.
void MergedTensor::measure_norms() {
  change_->norms.assign(static_cast<std::size_t>(change_->outputs), 0.0);
  decoded_.for_each_piece(0, decoded_.elements(), [&](std::int64_t begin, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t element = begin + static_cast<std::int64_t>(i);
      const double sum = static_cast<double>(values[i]) + change_->at(element);
      change_->norms[static_cast<std::size_t>(change_->output_of(element))] += sum * sum;
    }
  });
  for (double& norm : change_->norms) norm = std::sqrt(norm);
}

void MergedTensor::replace_rows(std::int64_t begin, std::span<double> exact) const {
  const auto end = begin + static_cast<std::int64_t>(exact.size());
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const std::int64_t first = std::max(begin, rows_[row] * columns_),
                       last = std::min(end, (rows_[row] + 1) * columns_);
    const std::int64_t from = static_cast<std::int64_t>(row) * columns_ - rows_[row] * columns_;  // in replacement_
    for (std::int64_t element = first; element < last; ++element) {
      exact[static_cast<std::size_t>(element - begin)] =
          static_cast<double>(replacement_[static_cast<std::size_t>(element + from)]);
    }
  }
}

MergedModel::MergedModel(const ModelSource& model)
    : source_(model),
      base_(open_weights(model)),
      rules_(inference_rules(model.config, base_.get(), model.adapter_folder)) {
  const LoraModules* modules = rules_.adapter();
  if (modules == nullptr) return;
  if (modules->splits_tied()) {
    fail("{}: has an adapter of an embedding that the model ties to its head; merged, they would be two",
         model.adapter_folder.string());
  }
  if (modules->unties_head()) {
    base_ = untied_weights(std::move(base_), model.config);
    source_ = untied(model);
  }
  adapter_ = open_adapter_weights(model.adapter_folder);
  if (model.is_bitsandbytes) return;  // merged as it was trained on
  four_bits_ = four_bits_of_run(model.adapter_folder);
  if (!four_bits_) return;
  ModuleList list;
  emit_model(list, model.config);
  for (const auto& module : list.linear) quantized_.insert(module + ".weight");
}

bool MergedModel::changes(const std::string& parameter) const {
  const LoraModules* modules = rules_.adapter();
  if (modules == nullptr) return false;
  const std::string module = module_of(parameter);
  return modules->trains(parameter) || modules->token_rows(module) != nullptr ||
         (parameter.ends_with(".weight") && modules->has_adapter(module));
}

const LoraModules::TokenRows* MergedModel::changed_rows(const std::string& parameter) const {
  const LoraModules* modules = rules_.adapter();
  if (modules == nullptr || modules->trains(parameter)) return nullptr;
  return modules->token_rows(module_of(parameter));
}

std::vector<float> MergedModel::adapter_values(const std::string& parameter) const {
  const std::string name = rules_.adapter()->saved_name(parameter);
  const StoredTensor* tensor = adapter_->find(name);
  if (tensor == nullptr) fail("{}: the adapter has no {}", source_.adapter_folder.string(), name);
  DecodedTensor decoded(*adapter_, *tensor);
  std::vector<float> values(static_cast<std::size_t>(decoded.elements()));
  decoded.read(0, values);
  return values;
}

MergedTensor MergedModel::open(const std::string& parameter, const StoredTensor& stored) {
  MergedTensor tensor(*base_, stored, report_);
  const std::string module = module_of(parameter);
  if (rules_.adapter()->trains(parameter)) {
    tensor.replacement_ = adapter_values(parameter);
    if (static_cast<std::int64_t>(tensor.replacement_.size()) != tensor.decoded_.elements()) {
      fail("{}: the adapter has {} elements, the base {}", parameter, tensor.replacement_.size(),
           tensor.decoded_.elements());
    }
    return tensor;
  }
  report_.add_tensor();
  if (const auto* rows = changed_rows(parameter); rows != nullptr) {
    tensor.rows_ = rows->ids;
    tensor.columns_ = stored.shape.at(1);
    tensor.replacement_ = adapter_values(rows->weight);
    if (tensor.replacement_.size() != rows->ids.size() * static_cast<std::size_t>(tensor.columns_)) {
      fail("{}: the adapter has {} elements; expected {} rows of {}", rows->weight, tensor.replacement_.size(),
           rows->ids.size(), tensor.columns_);
    }
    return tensor;
  }
  if (four_bits_ && quantized_.contains(parameter))
    report_.add_base_error(*four_bits_, four_bit_error(*base_, stored, *four_bits_));
  tensor.change_ = change_of(module, stored);
  if (!tensor.change_->magnitude.empty()) tensor.measure_norms();
  return tensor;
}

MergedTensor::Change MergedModel::change_of(const std::string& module, const StoredTensor& stored) const {
  const LoraModules& modules = *rules_.adapter();
  const std::string prefix = std::string(kAdapterPrefix) + module + ".";
  MergedTensor::Change change;
  change.is_transposed = modules.is_transposed(module);
  change.outputs = stored.shape[change.is_transposed ? 1 : 0];
  change.inputs = stored.shape[change.is_transposed ? 0 : 1];
  const bool is_table = module == module_of(modules.embedding());
  change.a = adapter_values(prefix + (is_table ? "lora_embedding_A" : "lora_A.weight"));
  change.b = adapter_values(prefix + (is_table ? "lora_embedding_B" : "lora_B.weight"));
  if (modules.config().use_dora) change.magnitude = adapter_values(prefix + "lora_magnitude_vector");
  change.rank = modules.rank_of(module);
  change.scaling = modules.scaling_of(module);
  if (static_cast<std::int64_t>(change.a.size()) != change.rank * change.inputs ||
      static_cast<std::int64_t>(change.b.size()) != change.outputs * change.rank) {
    fail("{}lora_A and lora_B have {} and {} elements; rank {} of a layer of {} inputs and {} outputs has others",
         prefix, change.a.size(), change.b.size(), change.rank, change.inputs, change.outputs);
  }
  return change;
}

}  // namespace heddle
