#include "logit_row.h"
#include "operation.h"

namespace heddle::conformance {
namespace {

/// Loss and, where asked for, d[t, v] with the gradient scale.
Real loss_of(const Case& c, std::vector<std::vector<Real>>* gradients) {
  const Operand& labels = c.in[2];
  const std::int64_t tokens = c.in[0].shape[0], vocabulary = c.in[1].shape.elements() / c.in[0].shape[1];
  Real loss = 0.0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool is_supervised = labels[t] != kIgnored;
    const LogitRow row(c, t);
    const auto label = static_cast<std::int64_t>(labels[t]);
    if (is_supervised) loss = loss + row.loss(label);
    if (gradients != nullptr) {
      gradients->push_back(elements(vocabulary, [&](std::int64_t v) {
        return is_supervised ? Real(static_cast<double>(c.scalars.gradient_scale)) * row.gradient(v, label) : Real();
      }));
    }
  }
  return loss;
}

Outputs loss_reference(const Case& c) { return {{loss_of(c, nullptr)}, {}}; }

Outputs gradient_reference(const Case& c) {
  const Operand& x = c.in[0];
  const std::int64_t tokens = x.shape[0], hidden = x.shape[1], vocabulary = c.in[1].shape.elements() / hidden;
  const bool is_transposed = c.attributes.integer("transposed") != 0;
  std::vector<std::vector<Real>> d;
  const Real loss = loss_of(c, &d);
  const auto at = [&](std::int64_t t, std::int64_t v) {
    return taken(c, d[static_cast<std::size_t>(t)][static_cast<std::size_t>(v)]);
  };
  const auto dx = elements(tokens * hidden, [&](std::int64_t i) {
    const std::int64_t t = i / hidden, h = i % hidden;
    return sum(vocabulary, [&](std::int64_t v) { return at(t, v) * weight_at(c, v, h); });
  });
  const auto dweight = elements(c.out[2].present ? vocabulary * hidden : 0, [&](std::int64_t i) {
    const std::int64_t v = is_transposed ? i % vocabulary : i / hidden;
    const std::int64_t h = is_transposed ? i / vocabulary : i % hidden;
    return initial(c, 2, i) + sum(tokens, [&](std::int64_t t) { return at(t, v) * x[t * hidden + h]; });
  });
  const auto exact = [&](std::int64_t t, std::int64_t v) {
    return d[static_cast<std::size_t>(t)][static_cast<std::size_t>(v)];
  };
  const Outputs adapter = adapter_gradients(c, at, exact);
  return {{loss}, dx, dweight, {}, adapter[0], adapter[1], adapter[2], adapter[3]};
}

/// What the gradients are of: gradient_scale times the loss of this micro-batch.
double loss_objective(const Case& c) {
  const Case forward{.name = "", .in = c.in, .out = {}, .attributes = c.attributes, .scalars = c.scalars};
  return static_cast<double>(c.scalars.gradient_scale) * loss_of(forward, nullptr).value;
}

struct Extents {
  std::int64_t tokens, hidden, vocabulary, chunk;
};

Case loss_case(Precision p, Extents e, bool transposed, double softcap, double logit_scale, bool first) {
  Operand labels = random_ids({e.tokens}, e.vocabulary, 3);
  for (std::size_t t = 1; t < labels.values.size(); t += 3) labels.values[t] = kIgnored;
  const Shape weight = transposed ? Shape{e.hidden, e.vocabulary} : Shape{e.vocabulary, e.hidden};
  return {.name = fmt::format("T {} H {} V {} chunk {} transposed {} softcap {} logit_scale {} first {}", e.tokens,
                              e.hidden, e.vocabulary, e.chunk, transposed, softcap, logit_scale, first),
          .in = {random(p.activation, {e.tokens, e.hidden}, 1), random(p.activation, weight, 2, 0.3), labels, absent(),
                 absent(), absent(), absent(), absent()},
          .out = {output(DType::f64, {1}), workspace({e.chunk, e.vocabulary})},
          .attributes = {{"chunk", e.chunk},
                         {"transposed", std::int64_t{transposed}},
                         {"softcap", softcap},
                         {"logit_scale", logit_scale}},
          .scalars = {.tokens = e.tokens, .first_micro_batch = first, .gradient_scale = 0.0625f}};
}

Case with_terms(Case c, double label_smoothing, double z_loss) {
  c.name += fmt::format(" label_smoothing {} z_loss {}", label_smoothing, z_loss);
  c.attributes.set("label_smoothing", label_smoothing);
  c.attributes.set("z_loss", z_loss);
  return c;
}

/// The same with a quantized weight, which has no gradient.
Case with_quantized(Case c, DType type) {
  c.name += fmt::format(" weight {}", torch_name(type));
  c.in[1] = random_quantized(type, c.in[1].shape, 2, 0.3);
  if (c.out.size() > 2) c.out[2] = absent();
  return c;
}

constexpr AdapterCase kForward{.workspace_output = 1}, kBackward{.workspace_output = 3, .dweight = 2};

/// The same where nothing trainable lies behind x.
Case without_dx(Case c) {
  c.name += " no dx";
  c.out[1] = absent();
  return c;
}

/// One case more of each quantized type.
std::vector<Case> and_quantized(std::vector<Case> cases, const Case& like) {
  for (const DType type : kQuantized) cases.push_back(with_quantized(like, type));
  return cases;
}

Case gradient_case(Precision p, Extents e, bool transposed, double softcap, double logit_scale, Accumulate mode,
                   bool first) {
  Case c = loss_case(p, e, transposed, softcap, logit_scale, first);
  c.name += fmt::format(" accumulate {}", static_cast<int>(mode));
  c.attributes.set("accumulate", static_cast<std::int64_t>(mode));
  c.out.insert(c.out.begin() + 1,
               {output(p.activation, {e.tokens, e.hidden}), gradient_output(p, c.in[1].shape, mode, first, 5)});
  c.out.insert(c.out.end(), {absent(), absent(), absent(), absent()});
  return c;
}

constexpr Extents kLarge{.tokens = 512, .hidden = 1024, .vocabulary = 16384, .chunk = 256};
double products(double count) {
  return count * 2.0 * static_cast<double>(kLarge.tokens * kLarge.hidden) * static_cast<double>(kLarge.vocabulary) *
         2.0 / 3.0;  // a third of the labels are ignored
}

}  // namespace

std::vector<Operation> cross_entropy_operations() {
  return {
      {.name = "linear_cross_entropy",
       .cases = [](Precision p) -> std::vector<Case> {
         return and_quantized(
             {loss_case(p, {1, 1, 2, 1}, false, 0.0, 1.0, true), loss_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, false),
              loss_case(p, {20, 33, 101, 64}, true, 2.0, 1.0, true),
              loss_case(p, {9, 16, 64, 8}, false, 0.0, 0.25, false),
              with_terms(loss_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, false), 0.1, 0.0),
              with_terms(loss_case(p, {13, 20, 101, 16}, false, 0.0, 0.5, false), 0.0, 1e-2),
              with_terms(loss_case(p, {20, 33, 101, 64}, true, 2.0, 1.0, true), 0.2, 1e-2),
              kForward.with_branch(p, loss_case(p, {13, 20, 37, 4}, false, 2.0, 0.5, false)),
              kForward.with_rows(p, loss_case(p, {13, 20, 37, 4}, false, 2.0, 0.5, false)),
              kForward.with_magnitudes(p, loss_case(p, {13, 20, 37, 4}, false, 2.0, 0.5, false))},
             loss_case(p, {13, 64, 37, 4}, false, 0.0, 1.0, false));
       },
       .reference = loss_reference,
       .large = [](Precision p) { return loss_case(p, kLarge, false, 0.0, 1.0, true); },
       .flops = [](const Case&) { return products(1.0); }},
      {.name = "linear_cross_entropy_gradient",
       .cases = [](Precision p) -> std::vector<Case> {
         return and_quantized(
             {gradient_case(p, {1, 1, 2, 1}, false, 0.0, 1.0, Accumulate::overwrite, true),
              gradient_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, Accumulate::add, false),
              gradient_case(p, {20, 33, 101, 64}, true, 2.0, 1.0, Accumulate::add_after_first, true),
              gradient_case(p, {9, 16, 64, 8}, false, 0.0, 0.25, Accumulate::add_after_first, false),
              with_terms(gradient_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, Accumulate::overwrite, true), 0.1, 0.0),
              with_terms(gradient_case(p, {13, 20, 101, 16}, false, 0.0, 0.5, Accumulate::overwrite, true), 0.0, 1e-2),
              with_terms(gradient_case(p, {20, 33, 101, 64}, true, 2.0, 1.0, Accumulate::overwrite, true), 0.2, 1e-2),
              kBackward.with_branch(p, gradient_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, Accumulate::overwrite, true)),
              kBackward.with_branch(p, gradient_case(p, {13, 20, 37, 16}, false, 2.0, 0.5, Accumulate::add, true)),
              kBackward.with_rows(p, gradient_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, Accumulate::overwrite, true)),
              kBackward.with_rows(p, gradient_case(p, {20, 33, 101, 64}, true, 2.0, 0.5, Accumulate::add, true)),
              kBackward.with_magnitudes(
                  p, gradient_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, Accumulate::overwrite, true)),
              kBackward.with_magnitudes(p, gradient_case(p, {13, 20, 37, 16}, false, 2.0, 0.5, Accumulate::add, true)),
              without_dx(gradient_case(p, {13, 20, 37, 4}, false, 0.0, 1.0, Accumulate::overwrite, true))},
             gradient_case(p, {13, 64, 37, 4}, false, 0.0, 1.0, Accumulate::overwrite, true));
       },
       .reference = gradient_reference,
       .objective = loss_objective,
       .derivatives = {{.output = 1, .input = 0},
                       {.output = 2, .input = 1},
                       {.output = 4, .input = 3},
                       {.output = 5, .input = 4},
                       {.output = 6, .input = 5},
                       {.output = 7, .input = 6}},
       .large = [](Precision p) { return gradient_case(p, kLarge, false, 0.0, 1.0, Accumulate::overwrite, true); },
       .flops = [](const Case&) { return products(3.0); }},
  };
}

}  // namespace heddle::conformance
