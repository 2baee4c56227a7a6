#include "data/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "data/jinja/expression_parser.h"
#include "data/jinja/print.h"

namespace heddle::jinja {
namespace {

constexpr int kMaxNestedStatements = 100;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() {
    Body body = parse_body({});
    if (current().kind != TokenKind::end) fail_here("internal parsing error");
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  static StatementPtr make(StatementKind kind, int line) { return std::make_unique<Statement>(kind, line); }

  /// Statements up to one of the tags `ends`, which is left to read; without any, up to the end of the template.
  Body parse_body(Names ends) {
    if (++nesting_ > kMaxNestedStatements) {
      fail_here("statements are nested more than {} levels deep", kMaxNestedStatements);
    }
    const EndTags outer = ends_;
    if (ends.size() > 0) ends_ = {ends.begin(), ends.end()};
    Body body;
    while (current().kind != TokenKind::end) {
      const Token& token = next();
      if (token.kind == TokenKind::data) {
        body.push_back(make(StatementKind::text, token.line));
        body.back()->text = token.text;
      } else if (token.kind == TokenKind::variable_begin) {
        body.push_back(make(StatementKind::output, token.line));
        body.back()->values.push_back(parse_tuple());
        expect(TokenKind::variable_end);
      } else {
        if (std::any_of(ends.begin(), ends.end(), [this](auto name) { return current().is_name(name); })) break;
        body.push_back(parse_statement());
        expect(TokenKind::block_end);
      }
    }
    if (ends.size() > 0 && current().kind == TokenKind::end) fail_at_end();
    ends_ = outer;
    --nesting_;
    return body;
  }

  /// The rest of a tag and the statements behind it.
  Body parse_statements(Names ends) {
    skip_op(":");
    expect(TokenKind::block_end);
    return parse_body(ends);
  }
  Body parse_statements_to(std::string_view end) {
    Body body = parse_statements({end});
    next();
    return body;
  }

  [[noreturn]] void fail_at_end() { fail_here("Unexpected end of template. {}", open_tags()); }

  std::string open_tags() const {
    std::string text;
    if (!ends_.empty()) {
      text = "Jinja was looking for the following tags: ";
      for (std::size_t i = 0; i < ends_.size(); ++i) {
        text += (i > 0 ? " or '" : "'") + std::string(ends_[i]) + "'";
      }
      text += ".";
    }
    if (!tags_.empty()) text += " The innermost block that needs to be closed is '" + std::string(tags_.back()) + "'.";
    return text;
  }

  StatementPtr parse_statement() {
    const Token& token = current();
    if (token.kind != TokenKind::name) fail_here("tag name expected");
    constexpr std::pair<std::string_view, StatementPtr (Parser::*)()> kStatements[] = {
        {"for", &Parser::parse_for},
        {"if", &Parser::parse_if},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call_block},
        {"filter", &Parser::parse_filter_block},
        {"with", &Parser::parse_with},
        {"block", &Parser::parse_block},
        {"print", &Parser::parse_print},
        {"autoescape", &Parser::parse_autoescape},
        {"generation", &Parser::parse_generation},
        {"break", &Parser::parse_break},
        {"continue", &Parser::parse_continue},
        {"include", &Parser::parse_include},
        {"import", &Parser::parse_import},
        {"from", &Parser::parse_from},
        {"extends", &Parser::parse_extends},
    };
    for (const auto& [name, parse] : kStatements) {
      if (token.text != name) continue;
      tags_.push_back(token.text);
      next();
      line_ = token.line;
      auto statement = (this->*parse)();
      tags_.pop_back();
      return statement;
    }
    fail_here("Encountered unknown tag '{}'. {}", token.text, open_tags());
  }

  StatementPtr parse_for() {
    auto loop = make(StatementKind::loop, line_);
    loop->target = parse_target(false);
    loop->condition_target = copy_target(*loop->target);
    expect_name("in");
    loop->value = parse_tuple(false);
    if (skip_name("if")) loop->condition = parse_expression();
    loop->is_recursive = skip_name("recursive");
    ++loops_;
    loop->body = parse_statements({"endfor", "else"});
    --loops_;
    if (next().text == "else") loop->otherwise = parse_statements_to("endfor");
    return loop;
  }

  /// The names of a target once more: the condition of a loop has variables of its own.
  ExpressionPtr copy_target(const Expression& target) {
    auto copy = std::make_unique<Expression>(target.kind, target.line);
    copy->text = target.text;
    for (const auto& element : target.operands) copy->operands.push_back(copy_target(*element));
    return copy;
  }

  StatementPtr parse_if() {
    auto branch = make(StatementKind::branch, line_);
    for (;;) {
      auto condition = parse_tuple(false);
      branch->branches.push_back({std::move(condition), parse_statements({"elif", "else", "endif"})});
      const std::string_view end = next().text;
      if (end == "else") branch->otherwise = parse_statements_to("endif");
      if (end != "elif") return branch;
    }
  }

  StatementPtr parse_set() {
    const int line = line_;
    auto target = parse_target(true);
    auto statement = make(skip_op("=") ? StatementKind::assign : StatementKind::assign_block, line);
    statement->target = std::move(target);
    if (statement->kind == StatementKind::assign) {
      statement->value = parse_tuple();
    } else {
      statement->value = parse_filters(std::make_unique<Expression>(ExpressionKind::captured, line), false);
      statement->body = parse_statements_to("endset");
    }
    return statement;
  }

  void parse_signature(Signature& signature) {
    expect_op("(");
    while (!current().is_op(")")) {
      if (!signature.names.empty()) expect_op(",");
      const auto name = parse_name_target()->text;
      const auto& names = signature.names;
      if (std::find(names.begin(), names.end(), name) != names.end()) fail_here("two parameters are named '{}'", name);
      signature.names.push_back(name);
      if (skip_op("=")) {
        signature.defaults.push_back(parse_expression());
      } else if (!signature.defaults.empty()) {
        fail_here("non-default argument follows default argument");
      }
    }
    expect_op(")");
  }

  /// The body of a macro or call block: loops around it are none of its own.
  Body parse_function_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse_statements_to(end);
    loops_ = loops;
    return body;
  }

  StatementPtr parse_macro() {
    auto macro = make(StatementKind::macro, line_);
    macro->target = parse_name_target();
    macro->text = macro->target->text;
    macro->signature = std::make_unique<Signature>();
    parse_signature(*macro->signature);
    macro->body = parse_function_body("endmacro");
    return macro;
  }

  StatementPtr parse_call_block() {
    auto call = make(StatementKind::call_block, line_);
    call->signature = std::make_unique<Signature>();
    if (current().is_op("(")) parse_signature(*call->signature);
    call->value = parse_expression();
    if (call->value->kind != ExpressionKind::call) fail_at(call->line, "expected call");
    call->body = parse_function_body("endcall");
    return call;
  }

  StatementPtr parse_filter_block() {
    auto filter = make(StatementKind::filter_block, line_);
    filter->value = parse_filters(std::make_unique<Expression>(ExpressionKind::captured, line_), true);
    filter->body = parse_statements_to("endfilter");
    return filter;
  }

  StatementPtr parse_with() {
    auto with = make(StatementKind::with, line_);
    while (current().kind != TokenKind::block_end) {
      if (!with->targets.empty()) expect_op(",");
      with->targets.push_back(parse_target(false));
      expect_op("=");
      with->values.push_back(parse_expression());
    }
    with->body = parse_statements_to("endwith");
    return with;
  }

  StatementPtr parse_block() {
    auto block = make(StatementKind::block, line_);
    block->text = expect(TokenKind::name).text;
    block->is_scoped = skip_name("scoped");
    const bool is_required = skip_name("required");
    if (current().is_op("-")) {
      fail_here(
          "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use an underscore "
          "instead.");
    }
    if (is_required) fail_at(block->line, "Required block '{}' not found", block->text);
    if (std::find(blocks_.begin(), blocks_.end(), block->text) != blocks_.end()) {
      fail_at(block->line, "block '{}' defined twice", block->text);
    }
    blocks_.push_back(block->text);
    block->body = parse_function_body("endblock");
    skip_name(block->text);
    return block;
  }

  StatementPtr parse_print() {
    auto output = make(StatementKind::output, line_);
    while (current().kind != TokenKind::block_end) {
      if (!output->values.empty()) expect_op(",");
      output->values.push_back(parse_expression());
    }
    return output;
  }

  StatementPtr parse_autoescape() {
    auto scope = make(StatementKind::scope, line_);
    const auto option = parse_expression();
    if (option->kind != ExpressionKind::constant || is_true(option->constant)) {
      fail_at(scope->line, "autoescape is not supported; a chat template is no HTML");
    }
    scope->body = parse_statements_to("endautoescape");
    return scope;
  }

  StatementPtr parse_generation() {
    auto generation = make(StatementKind::generation, line_);
    generation->body = parse_function_body("endgeneration");
    return generation;
  }

  StatementPtr parse_break() { return parse_jump(StatementKind::break_loop, "break"); }
  StatementPtr parse_continue() { return parse_jump(StatementKind::continue_loop, "continue"); }
  StatementPtr parse_jump(StatementKind kind, std::string_view name) {
    if (loops_ == 0) fail_at(line_, "'{}' outside loop", name);
    return make(kind, line_);
  }

  // Templates of other files: the syntax is read, and the statement fails where it is reached.
  StatementPtr parse_include() {
    auto load = make_load();
    if (skip_name("ignore")) expect_name("missing");
    parse_import_context();
    return load;
  }
  StatementPtr parse_import() {
    auto load = make_load();
    expect_name("as");
    load->targets.push_back(parse_name_target());
    parse_import_context();
    return load;
  }
  StatementPtr parse_from() {
    auto load = make_load();
    expect_name("import");
    do {
      if (parse_import_context()) break;
      auto target = parse_name_target();
      if (skip_name("as")) target = parse_name_target();
      load->targets.push_back(std::move(target));
    } while (!parse_import_context() && skip_op(","));
    return load;
  }
  StatementPtr parse_extends() { return make_load(); }
  StatementPtr make_load() {
    auto load = make(StatementKind::load, line_);
    load->value = parse_expression();
    return load;
  }
  bool parse_import_context() {
    if (!(current().is_name("with") || current().is_name("without")) || !look().is_name("context")) return false;
    next();
    next();
    return true;
  }

  using EndTags = std::vector<std::string_view>;
  EndTags ends_, tags_, blocks_;
  int nesting_ = 0, loops_ = 0, line_ = 1;
};

}  // namespace

Body parse(std::string_view source, std::deque<std::string>& texts, Place& place) {
  auto tokens = tokenize(source, texts, place);
  return Parser(std::move(tokens), texts, place).run();
}

}  // namespace heddle::jinja
