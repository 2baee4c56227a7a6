#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "formats/safetensors.h"
#include "models/lora.h"
#include "train/decoded_tensor.h"
#include "train/run_setup.h"
#include "train/weight_rules.h"

namespace heddle {

/// What rounding to the types of the files written takes from merged weights, and what their base was when the adapter
/// was trained.
class MergeReport {
 public:
  /// One more tensor is merged.
  void add_tensor() { ++merged_; }
  void add_change(double change) { square_changes_ += change * change; }
  /// `rounded`: what the file holds of the exact values.
  void add_rounding(std::span<const double> exact, std::span<const float> rounded);
  /// The adapter was trained beside a tensor in four bits, which changed it by this sum of squares.
  void add_base_error(DType four_bits, double squares);

  std::size_t merged() const { return merged_; }             ///< tensors that an adapter changed
  double greatest_error() const { return greatest_error_; }  ///< of an element, absolute
  /// Root mean square of the errors over that of the adapter's changes.
  double relative_error() const;
  /// The four bits in which the run held the base that is merged unquantized, and what they changed, as above.
  std::optional<DType> base_type() const { return base_type_; }
  double base_error() const;

 private:
  double relative(double squares) const;

  std::size_t merged_ = 0;
  double greatest_error_ = 0, square_errors_ = 0, square_changes_ = 0, square_base_errors_ = 0;
  std::optional<DType> base_type_;
};

/// Says it in a note, where there was something to merge.
void note_merge(const MergeReport& report);

/// One weight as the merged model has it, read piece by piece. Holds a piece, and the adapter's part for it.
class MergedTensor {
 public:
  /// Elements [begin, begin + exact.size()), any, not yet rounded to a type.
  void read(std::int64_t begin, std::span<double> exact);
  /// Takes what the file holds of them to the report.
  void account(std::span<const double> exact, std::span<const float> rounded);

 private:
  friend class MergedModel;

  /// scaling·B·A, element by element.
  struct Change {
    std::vector<float> a, b, magnitude;  // [r, I], [O, r], [O] or empty
    std::int64_t rank = 0, inputs = 0, outputs = 0;
    double scaling = 1;
    bool is_transposed = false;
    std::vector<double> norms;  // of DoRA: |W + change| by output

    std::int64_t output_of(std::int64_t element) const { return is_transposed ? element % outputs : element / inputs; }
    double at(std::int64_t element) const;
    /// The merged element of a weight that was `before`.
    double merged(std::int64_t element, double before) const;
  };

  MergedTensor(const WeightFiles& base, const StoredTensor& stored, MergeReport& report)
      : decoded_(base, stored), report_(report) {}
  void measure_norms();
  void replace_rows(std::int64_t begin, std::span<double> exact) const;

  DecodedTensor decoded_;
  MergeReport& report_;
  std::vector<float> before_;       // the base's piece
  std::optional<Change> change_;    // of a module with an adapter
  std::vector<float> replacement_;  // of a weight that was trained itself: all of it, or the rows that were
  std::vector<std::int64_t> rows_;  // their ids; empty: all
  std::int64_t columns_ = 0;
};

/// A model's weights with its adapter merged in, if it has one: W + scaling·B·A, and with DoRA scaled to its
/// magnitudes.
class MergedModel {
 public:
  /// Throws Error for an adapter that cannot be merged. Reads no weight of the base.
  explicit MergedModel(const ModelSource& model);

  /// The model as it is to be written: with a head of its own where the adapter unties it.
  const ModelSource& source() const { return source_; }
  /// The weights without the adapter, with a head of its own too.
  const WeightFiles& base() const { return *base_; }
  /// Whether the adapter changes that weight. What it does not change leaves as it came.
  bool changes(const std::string& parameter) const;
  /// The rows that it changes where it changes no others; else null.
  const LoraModules::TokenRows* changed_rows(const std::string& parameter) const;
  /// A weight that changes(); `stored` is the base's. Must not outlive the model.
  MergedTensor open(const std::string& parameter, const StoredTensor& stored);
  const MergeReport& report() const { return report_; }

 private:
  /// A trained weight of the adapter, whole.
  std::vector<float> adapter_values(const std::string& parameter) const;
  MergedTensor::Change change_of(const std::string& module, const StoredTensor& stored) const;

  ModelSource source_;
  std::unique_ptr<WeightFiles> base_;
  WeightRules rules_;  // they hold the adapter's modules
  std::unique_ptr<WeightFiles> adapter_;
  std::optional<DType> four_bits_;   // in which the run held a base that is not quantized
  std::set<std::string> quantized_;  // these of its weights
  MergeReport report_;
};

}  // namespace heddle
