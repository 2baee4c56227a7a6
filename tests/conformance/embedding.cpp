#include "operation.h"

namespace heddle::conformance {
namespace {

/// Where the element of column h for an id lies in a table: [V, H], or [H, V] where it is transposed.
std::int64_t place_of(const Case& c, const Shape& table, std::int64_t id, std::int64_t h) {
  return c.attributes.integer("transposed") != 0 ? h * table[1] + id : id * table[1] + h;
}

/// The row that stands for an id's; -1: none.
std::int64_t row_of(const Case& c, double id) {
  const auto ids = c.attributes.list("row_ids"), places = c.attributes.list("row_places");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == id) return static_cast<std::int64_t>(places[i]);
  }
  return -1;
}

Outputs embedding_reference(const Case& c) {
  const std::int64_t hidden = c.out[0].shape[1];
  return {elements(c.out[0].shape.elements(), [&](std::int64_t i) {
    if (const std::int64_t row = row_of(c, c.in[0][i / hidden]); row >= 0)
      return Real(c.in[2][row * hidden + i % hidden]);
    return Real(c.in[1][place_of(c, c.in[1].shape, static_cast<std::int64_t>(c.in[0][i / hidden]), i % hidden)]);
  })};
}

Outputs embedding_backward_reference(const Case& c) {
  const std::int64_t hidden = c.in[1].shape[1], tokens = c.in[1].shape[0];
  const auto padding = static_cast<double>(c.attributes.integer("padding_id", -1));
  const std::int64_t columns = c.out[0].shape[1];
  const bool is_transposed = c.attributes.integer("transposed") != 0;
  const bool has_rows = !c.attributes.list("row_ids").empty();
  return {elements(c.out[0].shape.elements(), [&](std::int64_t i) {
    if (has_rows) {
      return initial(c, 0, i) + sum(tokens, [&](std::int64_t t) {
               return row_of(c, c.in[0][t]) == i / columns ? c.in[1][t * hidden + i % columns] : 0.0;
             });
    }
    const auto id = static_cast<double>(is_transposed ? i % columns : i / columns);
    const std::int64_t h = is_transposed ? i / columns : i % columns;
    return initial(c, 0, i) + sum(tokens, [&](std::int64_t t) {
             return c.in[0][t] == id && id != padding ? c.in[1][t * hidden + h] : 0.0;
           });
  })};
}

double embedding_objective(const Case& c) {
  const bool has_rows = !c.attributes.list("row_ids").empty();
  const Operand table = has_rows ? random(DType::f64, {40, c.in[1].shape[1]}, 6) : c.unseen[0];
  const Case forward{.name = "",
                     .in = {c.in[0], table, c.unseen[0]},
                     .out = {output(DType::f64, c.in[1].shape)},
                     .attributes = c.attributes,
                     .scalars = {}};
  Operand dy = c.in[1];  // without what padding would pass on
  for (std::int64_t i = 0; i < dy.shape.elements(); ++i) {
    if (c.in[0][i / dy.shape[1]] == static_cast<double>(c.attributes.integer("padding_id", -1)))
      dy.values[static_cast<std::size_t>(i)] = 0.0;
  }
  return inner_product(dy, embedding_reference(forward)[0]);
}

Case embedding_case(Precision p, std::int64_t tokens, std::int64_t vocabulary, std::int64_t hidden) {
  return {.name = fmt::format("T {} V {} H {}", tokens, vocabulary, hidden),
          .in = {random_ids({tokens}, vocabulary, 1), random(p.activation, {vocabulary, hidden}, 2)},
          .out = {output(p.activation, {tokens, hidden})},
          .attributes = {},
          .scalars = {.tokens = tokens}};
}

Case transposed_case(Precision p, std::int64_t tokens, std::int64_t vocabulary, std::int64_t hidden) {
  Case c = embedding_case(p, tokens, vocabulary, hidden);
  c.name += " transposed";
  c.in[1] = random(p.activation, {hidden, vocabulary}, 2);
  c.attributes.set("transposed", std::int64_t{1});
  return c;
}

Case quantized_case(Precision p, DType type) {
  Case c = embedding_case(p, 13, 11, 64);
  c.name += fmt::format(" weight {}", torch_name(type));
  c.in[1] = random_quantized(type, c.in[1].shape, 2);
  return c;
}

Attributes with_row_ids(Attributes attributes) {
  attributes.set("row_ids", std::vector<double>{0, 4, 9});
  attributes.set("row_places", std::vector<double>{1, 2, 0});
  return attributes;
}

/// The same with rows that stand for three of the table's.
Case with_rows(Precision p, Case c) {
  c.name += " rows";
  c.in.push_back(random(p.activation, {3, c.out[0].shape[1]}, 5));
  c.attributes = with_row_ids(c.attributes);
  return c;
}

Case columns_case(Precision p, std::int64_t vocabulary) {
  return {.name = fmt::format("V {}", vocabulary),
          .in = {random(p.activation, {1, 3}, 1)},
          .out = {random(p.single, {1, vocabulary}, 2)},
          .attributes = with_row_ids({}),
          .scalars = {.tokens = 1}};
}

Outputs columns_reference(const Case& c) {
  return {elements(c.out[0].shape.elements(), [&](std::int64_t v) {
    const std::int64_t row = row_of(c, static_cast<double>(v));
    return Real(row >= 0 ? c.in[0][row] : c.out[0][v]);
  })};
}

Case embedding_backward_case(Precision p, std::int64_t tokens, std::int64_t vocabulary, std::int64_t hidden,
                             Accumulate mode, bool first, std::int64_t padding_id = -1) {
  return {.name = fmt::format("T {} V {} H {} accumulate {} padding {}", tokens, vocabulary, hidden,
                              static_cast<int>(mode), padding_id),
          .in = {random_ids({tokens}, vocabulary, 1), random(p.activation, {tokens, hidden}, 2)},
          .out = {gradient_output(p, {vocabulary, hidden}, mode, first, 3)},
          .attributes = {{"accumulate", static_cast<std::int64_t>(mode)}, {"padding_id", padding_id}},
          .scalars = {.tokens = tokens, .first_micro_batch = first},
          .unseen = {random(p.activation, {vocabulary, hidden}, 4)}};
}

/// The gradient of rows that stand for three of the table's.
Case rows_backward_case(Precision p, std::int64_t tokens, std::int64_t hidden, Accumulate mode) {
  Case c = embedding_backward_case(p, tokens, 11, hidden, mode, true);
  c.name += " rows";
  c.out = {gradient_output(p, {3, hidden}, mode, true, 3)};
  c.unseen = {random(p.activation, {3, hidden}, 4)};
  c.attributes = with_row_ids(c.attributes);
  return c;
}

Case transposed_backward_case(Precision p, std::int64_t tokens, std::int64_t vocabulary, std::int64_t hidden,
                              Accumulate mode, std::int64_t padding_id = -1) {
  Case c = embedding_backward_case(p, tokens, vocabulary, hidden, mode, true, padding_id);
  c.name += " transposed";
  c.out = {gradient_output(p, {hidden, vocabulary}, mode, true, 3)};
  c.unseen = {random(p.activation, {hidden, vocabulary}, 4)};
  c.attributes.set("transposed", std::int64_t{1});
  return c;
}

Outputs neftune_reference(const Case& c) {
  const std::int64_t hidden = c.in[0].shape[1], quads = (hidden + 3) / 4;
  const auto stream = static_cast<std::uint64_t>(c.attributes.integer("stream"));
  return {elements(c.in[0].shape.elements(), [&](std::int64_t i) {
    const std::int64_t t = i / hidden, column = i % hidden;
    std::int64_t document = 0;
    while (c.in[1][document + 1] <= static_cast<double>(t)) ++document;
    const double length = c.in[1][document + 1] - c.in[1][document];
    const double magnitude = c.attributes.real("alpha") / std::sqrt(length * static_cast<double>(hidden));
    const auto words = philox(c.scalars.seed, static_cast<std::uint64_t>(t * quads + column / 4),
                              (stream << 40) ^ c.scalars.micro_batch);
    const double u = uniform_from(words[static_cast<std::size_t>(column % 4)]);
    return c.in[0][i] + stored(DType::f32, magnitude) * Real(2.0 * u - 1.0);
  })};
}

/// Documents of those lengths, and room for more of them.
Case neftune_case(Precision p, const std::vector<double>& lengths, std::int64_t hidden) {
  std::vector<double> starts = {0.0};
  for (const double length : lengths) starts.push_back(starts.back() + length);
  const auto tokens = static_cast<std::int64_t>(starts.back());
  starts.insert(starts.end(), 3, 0.0);
  const auto documents = static_cast<std::int64_t>(lengths.size());
  return {.name = fmt::format("documents {} T {} H {}", documents, tokens, hidden),
          .in = {random(p.activation, {tokens, hidden}, 1), given(DType::i32, {documents + 4}, starts)},
          .out = {output(p.activation, {tokens, hidden})},
          .attributes = {{"alpha", 5.0}, {"stream", (std::int64_t{1} << 24) - 1}},
          .scalars = {.tokens = tokens, .documents = documents, .seed = 77, .micro_batch = 12}};
}

/// Of `count` matrices [T, H]: rows of the table that no token names stay untouched.
double rows_bytes(const Case& c, double count) {
  return count * static_cast<double>(c.in[0].shape[0] * c.in[1].shape[1]) *
         static_cast<double>(dtype_bytes(c.in[1].dtype));
}

}  // namespace

std::vector<Operation> embedding_operations() {
  return {
      {.name = "embedding",
       .cases = [](Precision p) -> std::vector<Case> {
         std::vector<Case> cases = {embedding_case(p, 1, 1, 1), embedding_case(p, 130, 11, 33),
                                    embedding_case(p, 5, 300, 256), transposed_case(p, 130, 11, 8)};
         for (const DType type : kQuantized) cases.push_back(quantized_case(p, type));
         cases.push_back(with_rows(p, embedding_case(p, 130, 11, 33)));
         cases.push_back(with_rows(p, quantized_case(p, DType::q8_0)));
         return cases;
       },
       .reference = embedding_reference,
       .large = [](Precision p) { return embedding_case(p, 8192, 32768, 2048); },
       .bytes = [](const Case& c) { return rows_bytes(c, 2.0); }},
      {.name = "embedding_backward",
       .cases = [](Precision p) -> std::vector<Case> {
         return {embedding_backward_case(p, 1, 1, 1, Accumulate::overwrite, true),
                 embedding_backward_case(p, 130, 11, 33, Accumulate::add, true, 7),
                 embedding_backward_case(p, 40, 30, 300, Accumulate::add_after_first, true),
                 embedding_backward_case(p, 40, 30, 129, Accumulate::add_after_first, false),
                 rows_backward_case(p, 130, 33, Accumulate::overwrite),
                 rows_backward_case(p, 40, 130, Accumulate::add),
                 transposed_backward_case(p, 130, 11, 8, Accumulate::overwrite),
                 transposed_backward_case(p, 40, 30, 3, Accumulate::add, 7)};
       },
       .reference = embedding_backward_reference,
       .objective = embedding_objective,
       .derivatives = {{.output = 0, .input = 2}},
       .large = [](Precision p) { return embedding_backward_case(p, 8192, 32768, 2048, Accumulate::add, true); },
       .bytes = [](const Case& c) { return rows_bytes(c, 1.0) + 8.0 * static_cast<double>(c.in[1].shape.elements()); }},
      {.name = "replace_columns",
       .cases = [](Precision p) -> std::vector<Case> {
         return {columns_case(p, 10), columns_case(p, 37)};
       },
       .reference = columns_reference},
      {.name = "neftune",
       .cases = [](Precision p) -> std::vector<Case> {
         return {neftune_case(p, {1}, 1), neftune_case(p, {3, 20, 1}, 37), neftune_case(p, {130, 7}, 256)};
       },
       .reference = neftune_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .large =
           [](Precision p) {
             return neftune_case(p, {4096, 4096}, 2048);
           }},
  };
}

}  // namespace heddle::conformance
