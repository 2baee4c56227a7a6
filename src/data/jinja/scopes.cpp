// Follows jinja2/idtracking.py and what jinja2/compiler.py makes of it: a scope that only reads a name uses the
// variable around it; one that sets it starts with a copy.
#include "data/jinja/scopes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "base/error.h"

namespace heddle::jinja {
namespace {

/// A variable of a function.
struct Variable {
  int function = 0, depth = 0;
  std::uint16_t index = 0;
};

struct Load {
  enum class From : std::uint8_t { parameter, context, outer, nothing } from;
  Variable outer;
};

/// What becomes a function of its own: its frame, and how many functions lie around it.
struct Function {
  int depth = 0;
  std::uint16_t size = 0;
};

/// The names of one scope. Branches of an `if` work on copies that share the variables.
struct Symbols {
  const Symbols* parent = nullptr;
  Function* function = nullptr;
  std::shared_ptr<std::map<std::string_view, Variable>> variables;
  std::map<std::string_view, Variable> refs;
  std::map<std::string_view, Load> loads;
  std::set<std::string_view> stores;

  Symbols(const Symbols* p, Function& f)
      : parent(p), function(&f), variables(std::make_shared<std::map<std::string_view, Variable>>()) {}

  const Variable* find(std::string_view name) const {
    for (const Symbols* s = this; s != nullptr; s = s->parent) {
      if (const auto at = s->refs.find(name); at != s->refs.end()) return &at->second;
    }
    return nullptr;
  }

  const Variable& define(std::string_view name, const Load& load) {
    const auto [at, is_new] = variables->try_emplace(name);
    if (is_new) {
      if (function->size == UINT16_MAX) fail("the template has more than {} variables", UINT16_MAX);
      at->second = {0, function->depth, function->size++};
    }
    loads.insert_or_assign(name, load);
    return refs.insert_or_assign(name, at->second).first->second;
  }

  void store(std::string_view name) {
    stores.insert(name);
    if (refs.count(name) > 0) return;
    const Variable* outer = parent != nullptr ? parent->find(name) : nullptr;
    define(name, outer != nullptr ? Load{Load::From::outer, *outer} : Load{Load::From::nothing, {}});
  }
  const Variable& declare(std::string_view name) {
    stores.insert(name);
    return define(name, {Load::From::parameter, {}});
  }
  void load(std::string_view name) {
    if (find(name) == nullptr) define(name, {Load::From::context, {}});
  }

  void join(const std::vector<Symbols>& branches) {
    std::set<std::string_view> stored;
    for (const Symbols& branch : branches) stored.insert(branch.stores.begin(), branch.stores.end());
    for (const auto name : stores) stored.erase(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, ref] : branch.refs) refs.insert_or_assign(name, ref);
      for (const auto& [name, load] : branch.loads) loads.insert_or_assign(name, load);
      stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (const auto name : stored) {
      const Variable* outer = parent != nullptr ? parent->find(name) : nullptr;
      loads.insert_or_assign(name, outer != nullptr ? Load{Load::From::outer, *outer} : Load{Load::From::context, {}});
    }
  }
};

// What a scope reads and sets, in order; scopes inside are left to themselves.

void analyze(Symbols& symbols, const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::name: symbols.load(expression.text); return;
    default: break;
  }
  for (const auto& operand : expression.operands) {
    if (operand) analyze(symbols, *operand);
  }
  for (const auto& keyword : expression.keywords) analyze(symbols, *keyword.value);
  if (expression.star) analyze(symbols, *expression.star);
  if (expression.double_star) analyze(symbols, *expression.double_star);
}

void analyze_target(Symbols& symbols, const Expression& target, bool is_parameter) {
  if (target.kind == ExpressionKind::name) {
    is_parameter ? static_cast<void>(symbols.declare(target.text)) : symbols.store(target.text);
  } else if (target.kind == ExpressionKind::namespace_member) {
    symbols.load(target.operands[0]->text);
  } else {
    for (const auto& element : target.operands) analyze_target(symbols, *element, is_parameter);
  }
}

void analyze(Symbols& symbols, const Body& body);

void analyze_branches(Symbols& symbols, const Statement& statement, std::size_t first) {
  analyze(symbols, *statement.branches[first].condition);
  std::vector<Symbols> branches;
  branches.reserve(3);  // references stay
  analyze(branches.emplace_back(symbols), statement.branches[first].body);
  // The branches behind `elif` are one after the other in a copy, each with copies of its own.
  Symbols& elifs = branches.emplace_back(symbols);
  for (std::size_t i = first + 1; first == 0 && i < statement.branches.size(); ++i)
    analyze_branches(elifs, statement, i);
  Symbols& otherwise = branches.emplace_back(symbols);
  if (first == 0) analyze(otherwise, statement.otherwise);
  symbols.join(branches);
}

void analyze(Symbols& symbols, const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::output:
      for (const auto& value : statement.values) analyze(symbols, *value);
      break;
    case StatementKind::branch: analyze_branches(symbols, statement, 0); break;
    case StatementKind::loop:
    case StatementKind::filter_block:
    case StatementKind::call_block: analyze(symbols, *statement.value); break;
    case StatementKind::assign:
      analyze(symbols, *statement.value);
      analyze_target(symbols, *statement.target, false);
      break;
    case StatementKind::assign_block: analyze_target(symbols, *statement.target, false); break;
    case StatementKind::macro: symbols.store(statement.text); break;
    case StatementKind::with:
      for (const auto& value : statement.values) analyze(symbols, *value);
      break;
    case StatementKind::load:
      analyze(symbols, *statement.value);
      for (const auto& target : statement.targets) symbols.store(target->text);
      break;
    case StatementKind::text:
    case StatementKind::scope:
    case StatementKind::block:
    case StatementKind::generation:
    case StatementKind::break_loop:
    case StatementKind::continue_loop: break;
  }
}

void analyze(Symbols& symbols, const Body& body) {
  for (const auto& statement : body) analyze(symbols, *statement);
}

/// Which of some names are read anywhere in a tree before they are set there.
class Undeclared {
 public:
  explicit Undeclared(std::set<std::string_view> names) : names_(std::move(names)) {}

  void visit(const Body& body) {
    for (const auto& statement : body) visit(*statement);
  }
  bool has(std::string_view name) const { return found_.count(name) > 0; }

 private:
  void visit(const Expression& expression) {
    if (expression.kind == ExpressionKind::name && names_.count(expression.text) > 0) found_.insert(expression.text);
    for (const auto& operand : expression.operands) {
      if (operand) visit(*operand);
    }
    for (const auto& keyword : expression.keywords) visit(*keyword.value);
    if (expression.star) visit(*expression.star);
    if (expression.double_star) visit(*expression.double_star);
  }
  void visit_target(const Expression& target) {
    if (target.kind == ExpressionKind::name) names_.erase(target.text);
    for (const auto& element : target.operands) visit_target(*element);
  }
  void visit(const Statement& statement) {
    if (statement.kind == StatementKind::block) return;
    if (statement.signature) {
      for (const auto name : statement.signature->names) names_.erase(name);
      for (const auto& value : statement.signature->defaults) visit(*value);
    }
    // Jinja visits fields in the order of its nodes: targets first.
    if (statement.target && statement.kind != StatementKind::macro) visit_target(*statement.target);
    for (const auto& target : statement.targets) visit_target(*target);
    if (statement.value) visit(*statement.value);
    for (const auto& value : statement.values) visit(*value);
    for (const auto& branch : statement.branches) {
      visit(*branch.condition);
      visit(branch.body);
    }
    visit(statement.body);
    visit(statement.otherwise);
    if (statement.condition) visit(*statement.condition);
  }

  std::set<std::string_view> names_, found_;
};

class Resolver {
 public:
  explicit Resolver(Place& place) : place_(place) {}

  ResolvedTemplate run(Body body) {
    Function root;
    Symbols symbols(nullptr, root);
    analyze(symbols, body);
    root_ = &symbols;
    resolve(symbols, body, false);
    ResolvedTemplate result;
    result.scope = entries(symbols);
    result.frame_size = root.size;
    result.body = std::move(body);
    result.marks_generation = marks_generation_;
    return result;
  }

 private:
  static Slot slot_of(const Symbols& symbols, const Variable& variable) {
    return {static_cast<std::uint16_t>(symbols.function->depth - variable.depth), variable.index};
  }
  static Slot slot_of(const Symbols& symbols, std::string_view name) {
    const Variable* variable = symbols.find(name);
    if (variable == nullptr) fail("internal: the variable '{}' was not analyzed", name);
    return slot_of(symbols, *variable);
  }

  /// How the variables of a scope begin.
  static Scope entries(const Symbols& symbols) {
    Scope scope;
    for (const auto& [name, load] : symbols.loads) {
      if (load.from == Load::From::parameter) continue;
      ScopeEntry entry;
      entry.index = symbols.refs.at(name).index;
      entry.name = name;
      if (load.from == Load::From::context) entry.from = ScopeEntry::From::context;
      if (load.from == Load::From::outer) {
        entry.from = ScopeEntry::From::outer;
        entry.outer = slot_of(symbols, load.outer);
      }
      scope.push_back(entry);
    }
    return scope;
  }

  void resolve(const Symbols& symbols, Expression& expression, bool is_soft) {
    if (expression.kind == ExpressionKind::name) expression.slot = slot_of(symbols, expression.text);
    const bool is_filter = expression.kind == ExpressionKind::filter;
    if (!is_soft && ((is_filter && expression.filter == nullptr) ||
                     (expression.kind == ExpressionKind::test && expression.test == nullptr))) {
      place_.line = expression.line;
      fail("No {} named '{}'.", is_filter ? "filter" : "test", expression.text);
    }
    const bool is_inner_soft = is_soft || expression.kind == ExpressionKind::choice;
    for (const auto& operand : expression.operands) {
      if (operand) resolve(symbols, *operand, is_inner_soft);
    }
    for (const auto& keyword : expression.keywords) resolve(symbols, *keyword.value, is_inner_soft);
    if (expression.star) resolve(symbols, *expression.star, is_inner_soft);
    if (expression.double_star) resolve(symbols, *expression.double_star, is_inner_soft);
  }

  void resolve_target(const Symbols& symbols, Expression& target) {
    if (target.kind == ExpressionKind::name) target.slot = slot_of(symbols, target.text);
    for (const auto& element : target.operands) resolve_target(symbols, *element);
  }

  void resolve(const Symbols& symbols, const Body& body, bool is_soft) {
    for (const auto& statement : body) resolve(symbols, *statement, is_soft);
  }

  void resolve_inner(const Symbols& symbols, Statement& statement) {
    Symbols inner(&symbols, *symbols.function);
    analyze(inner, statement.body);
    resolve(inner, statement.body, false);
    statement.scope = entries(inner);
  }

  void resolve(const Symbols& symbols, Statement& statement, bool is_soft) {
    switch (statement.kind) {
      case StatementKind::output:
        for (const auto& value : statement.values) resolve(symbols, *value, is_soft);
        break;
      case StatementKind::branch:
        for (const auto& branch : statement.branches) {
          resolve(symbols, *branch.condition, true);
          resolve(symbols, branch.body, true);
        }
        resolve(symbols, statement.otherwise, true);
        break;
      case StatementKind::loop: resolve_loop(symbols, statement, is_soft); break;
      case StatementKind::assign:
        resolve(symbols, *statement.value, is_soft);
        resolve_target(symbols, *statement.target);
        break;
      case StatementKind::assign_block:
      case StatementKind::filter_block: resolve_captured(symbols, statement); break;
      case StatementKind::macro:
        statement.slot = slot_of(symbols, statement.text);
        resolve_function(symbols, statement);
        break;
      case StatementKind::call_block:
        resolve_function(symbols, statement);
        resolve(symbols, *statement.value, is_soft);
        break;
      case StatementKind::with: resolve_with(symbols, statement, is_soft); break;
      case StatementKind::generation: marks_generation_ = true; [[fallthrough]];
      case StatementKind::scope: resolve_inner(symbols, statement); break;
      case StatementKind::block: resolve_block(symbols, statement); break;
      case StatementKind::load:
        resolve(symbols, *statement.value, is_soft);
        for (const auto& target : statement.targets) resolve_target(symbols, *target);
        break;
      case StatementKind::text:
      case StatementKind::break_loop:
      case StatementKind::continue_loop: break;
    }
  }

  void resolve_captured(const Symbols& symbols, Statement& statement) {
    Symbols inner(&symbols, *symbols.function);
    analyze(inner, *statement.value);
    analyze(inner, statement.body);
    resolve(inner, statement.body, false);
    resolve(inner, *statement.value, false);
    if (statement.target) resolve_target(symbols, *statement.target);
    statement.scope = entries(inner);
  }

  void resolve_with(const Symbols& symbols, Statement& statement, bool is_soft) {
    Symbols inner(&symbols, *symbols.function);
    for (const auto& target : statement.targets) analyze_target(inner, *target, true);
    analyze(inner, statement.body);
    for (std::size_t i = 0; i < statement.targets.size(); ++i) {
      resolve_target(inner, *statement.targets[i]);
      resolve(symbols, *statement.values[i], is_soft);
    }
    resolve(inner, statement.body, false);
    statement.scope = entries(inner);
  }

  void resolve_loop(const Symbols& symbols, Statement& loop, bool is_soft) {
    resolve(symbols, *loop.value, is_soft);
    Function own;
    own.depth = symbols.function->depth + 1;
    Function& function = loop.is_recursive ? own : *symbols.function;

    Undeclared undeclared({"loop"});
    undeclared.visit(loop.body);
    loop.uses_loop = loop.is_recursive || undeclared.has("loop");
    Symbols inner(&symbols, function);
    if (loop.uses_loop) loop.slot = slot_of(inner, inner.declare("loop"));
    check_loop_target(*loop.target);
    check_loop_targets(loop.body);
    check_loop_targets(loop.otherwise);
    analyze_target(inner, *loop.target, true);
    analyze(inner, loop.body);
    resolve_target(inner, *loop.target);
    resolve(inner, loop.body, false);
    loop.scope = entries(inner);

    if (loop.condition) {
      Symbols test(&symbols, function);
      analyze_target(test, *loop.condition_target, true);
      analyze(test, *loop.condition);
      resolve_target(test, *loop.condition_target);
      resolve(test, *loop.condition, false);
      loop.condition_scope = entries(test);
    }
    Symbols otherwise(&symbols, function);
    analyze(otherwise, loop.otherwise);
    resolve(otherwise, loop.otherwise, false);
    loop.otherwise_scope = entries(otherwise);
    loop.frame_size = own.size;
  }

  /// Nothing in a loop may set `loop`.
  void check_loop_target(const Expression& target) {
    if (target.kind == ExpressionKind::name && target.text == "loop") {
      place_.line = target.line;
      fail("Can't assign to special loop variable in for-loop target");
    }
    for (const auto& element : target.operands) check_loop_target(*element);
  }
  void check_loop_targets(const Body& body) {
    for (const auto& statement : body) {
      const bool sets = statement->kind == StatementKind::loop || statement->kind == StatementKind::assign ||
                        statement->kind == StatementKind::assign_block;
      if (sets) check_loop_target(*statement->target);
      for (const auto& branch : statement->branches) check_loop_targets(branch.body);
      check_loop_targets(statement->body);
      check_loop_targets(statement->otherwise);
    }
  }

  void resolve_function(const Symbols& symbols, Statement& statement) {
    Signature& signature = *statement.signature;
    Function function;
    function.depth = symbols.function->depth + 1;
    Symbols inner(&symbols, function);
    for (const auto name : signature.names) signature.indices.push_back(inner.declare(name).index);

    Undeclared undeclared({"caller", "kwargs", "varargs"});
    undeclared.visit(statement.body);
    const auto takes = [&](std::string_view name, std::uint16_t& index) {
      const auto at = std::find(signature.names.begin(), signature.names.end(), name);
      if (!undeclared.has(name)) return false;
      if (at != signature.names.end()) {
        const auto from_end = static_cast<std::size_t>(signature.names.end() - at);
        if (name == "caller" && from_end > signature.defaults.size()) {
          place_.line = statement.line;
          fail(
              "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a "
              "default.");
        }
        return false;
      }
      index = inner.declare(name).index;
      return true;
    };
    signature.takes_caller = takes("caller", signature.caller);
    signature.takes_kwargs = takes("kwargs", signature.kwargs);
    signature.takes_varargs = takes("varargs", signature.varargs);

    for (const auto& value : signature.defaults) analyze(inner, *value);
    analyze(inner, statement.body);
    for (const auto& value : signature.defaults) resolve(inner, *value, false);
    resolve(inner, statement.body, false);
    statement.scope = entries(inner);
    statement.frame_size = function.size;
  }

  /// A block sees the outermost variables alone, and with `scoped` what is set around it.
  void resolve_block(const Symbols& symbols, Statement& block) {
    Function function;
    function.depth = symbols.function->depth + 1;
    Symbols inner(nullptr, function);
    analyze(inner, block.body);
    resolve(inner, block.body, false);
    block.scope = entries(inner);
    block.frame_size = function.size;
    for (ScopeEntry& entry : block.scope) {
      if (entry.from != ScopeEntry::From::context) continue;
      const Variable* outer = block.is_scoped ? symbols.find(entry.name) : root_->find(entry.name);
      if (outer == nullptr) continue;
      entry.outer = slot_of(inner, *outer);
      entry.from = ScopeEntry::From::outer_or_context;
    }
  }

  Place& place_;
  const Symbols* root_ = nullptr;
  bool marks_generation_ = false;
};

}  // namespace

ResolvedTemplate resolve(Body body, Place& place) { return Resolver(place).run(std::move(body)); }

}  // namespace heddle::jinja
