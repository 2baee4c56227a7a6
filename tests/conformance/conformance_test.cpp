#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <tuple>

#include "../kernels/instruction_sets.h"
#include "execute.h"
#include "operation.h"
#include "ops/operation.h"
#include "support.h"

namespace heddle::conformance {
namespace {

struct Subject {
  const Backend* backend;
  const Operation* operation;
  DType precision;
};

std::vector<Subject> subjects() {
  std::vector<Subject> list;
  for (const Backend& backend : backends()) {
    for (const Operation& operation : operations()) {
      for (const DType precision : operation.precisions) list.push_back({&backend, &operation, precision});
    }
  }
  return list;
}

std::string subject_name(const testing::TestParamInfo<Subject>& parameter) {
  return fmt::format("{}_{}_{}", parameter.param.operation->name, torch_name(parameter.param.precision),
                     parameter.param.backend->name);
}

class Conformance : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    operation_ = GetParam().operation;
    kernel_ = GetParam().backend->find(operation_->name);
    ASSERT_NE(kernel_, nullptr) << "no kernel of " << operation_->name;
    cases_ = operation_->cases({.activation = GetParam().precision, .single = DType::f32});
    ASSERT_FALSE(cases_.empty());
  }
  const Operation* operation_ = nullptr;
  Kernel kernel_ = nullptr;
  std::vector<Case> cases_;
};

TEST_P(Conformance, AgreesWithTheReferenceOnEveryInstructionSet) {
  for (const Case& c : cases_) {
    const Outputs reference = operation_->reference(c);
    for (const std::int64_t set : instruction_sets()) {
      const InstructionSetLimit limit(set);
      EXPECT_EQ(compare(c, execute(kernel_, c, 1), reference), "") << c.name << ", " << instruction_set_name(set);
    }
  }
}

TEST_P(Conformance, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Case& c : cases_) {
    const Execution alone = execute(kernel_, c, 1);
    for (const int threads : {2, 3, 4}) {
      EXPECT_EQ(compare_bits(c, alone, execute(kernel_, c, threads)), "") << c.name << ", threads " << threads;
    }
  }
}

TEST_P(Conformance, HasTheSameBitsOnEveryInstructionSetThatFusesMultiplyAdds) {
  const test::WithoutAmx without_amx;
  for (const Case& c : cases_) {
    if (!has_one_result(*operation_, c)) continue;
    const Execution best = execute(kernel_, c, 1);
    for (const std::int64_t set : instruction_sets()) {
      if (!fuses_multiply_adds(set)) continue;
      const InstructionSetLimit limit(set);
      EXPECT_EQ(compare_bits(c, best, execute(kernel_, c, 1)), "") << c.name << ", " << instruction_set_name(set);
    }
  }
}

TEST_P(Conformance, WorksInPlaceWhereDeclared) {
  for (const auto& aliases : operation_->aliases) {
    bool tried = false;
    for (const Case& c : cases_) {
      bool applies = true;
      for (const Alias& alias : aliases) applies = applies && c.in[alias.input].present && c.out[alias.output].present;
      if (!applies) continue;
      tried = true;
      EXPECT_EQ(compare_bits(c, execute(kernel_, c, 1), execute(kernel_, c, 2, aliases)), "")
          << c.name << ", output " << aliases[0].output << " in input " << aliases[0].input;
    }
    EXPECT_TRUE(tried) << "no case has output " << aliases[0].output << " and input " << aliases[0].input;
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Conformance, testing::ValuesIn(subjects()), subject_name);

/// References of backward operations against central differences of the forward's references, all in double.
class Gradient : public testing::TestWithParam<const Operation*> {};

std::vector<const Operation*> differentiable() {
  std::vector<const Operation*> list;
  for (const Operation& operation : operations()) {
    if (operation.objective != nullptr) list.push_back(&operation);
  }
  return list;
}

TEST_P(Gradient, AgreesWithFiniteDifferences) {
  // The error of a central difference is h^2/6 of the third derivative, plus the rounding of the objective over h.
  constexpr double kStep = 1e-5, kTolerance = 1e-6;
  constexpr std::int64_t kSamples = 40;
  const Operation& operation = *GetParam();
  for (Case& c : operation.cases({.activation = DType::f64, .single = DType::f64})) {
    const Outputs reference = operation.reference(c);
    for (const Derivative& derivative : operation.derivatives) {
      Operand& variable = c.variable(derivative.input);
      if (!variable.present || !c.out[derivative.output].present) continue;
      std::vector<double>& values = variable.values;
      const auto elements = static_cast<std::int64_t>(values.size());
      const std::int64_t stride = std::max<std::int64_t>(1, elements / kSamples);
      for (std::int64_t i = 0; i < elements; i += stride) {
        double& x = values[static_cast<std::size_t>(i)];
        const double at = x;
        x = at + kStep;
        const double above = operation.objective(c);
        x = at - kStep;
        const double below = operation.objective(c);
        x = at;
        const double expected = (above - below) / (2 * kStep);
        const double found = reference[derivative.output][static_cast<std::size_t>(i)].value -
                             (c.out[derivative.output].values.empty() ? 0.0 : initial(c, derivative.output, i));
        ASSERT_NEAR(found, expected, kTolerance * std::max({1.0, std::abs(expected), std::abs(above) * 1e-3}))
            << c.name << ", output " << derivative.output << ", element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Gradient, testing::ValuesIn(differentiable()),
                         [](const auto& parameter) { return std::string(parameter.param->name); });

TEST(Support, EveryDeclaredOperationHasACaseAndAKernelInEachPrecision) {
  std::ifstream declaration(HEDDLE_SOURCE_DIR "/src/ops/operations.md");
  ASSERT_TRUE(declaration.is_open());
  std::set<std::string, std::less<>> known;
  for (const Operation& operation : operations()) known.insert(std::string(operation.name));
  std::size_t declared = 0;
  for (std::string line; std::getline(declaration, line);) {
    if (!line.starts_with("| ") || line.starts_with("| operation |")) continue;
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    if (heddle::find_operation(name).moves_data) continue;  // the communicator's
    ++declared;
    EXPECT_TRUE(known.contains(name)) << name << " is declared, but the harness does not know it";
    for (const Backend& backend : backends()) EXPECT_NE(backend.find(name), nullptr) << name << " on " << backend.name;
  }
  EXPECT_EQ(declared, known.size());
  std::printf("%s", support_table().c_str());
}

}  // namespace
}  // namespace heddle::conformance
