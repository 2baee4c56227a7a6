// Right values are those of jinja2 3.1.6 in transformers' environment; scripts/compare_jinja.py compares many more.
#include "data/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace heddle {
namespace {

using testing::HasSubstr;

std::string render(std::string_view source, const Json& variables = Json::object(), const jinja::Limits& limits = {}) {
  const jinja::Template parsed(source, "t");
  std::vector<jinja::Passed> passed;
  for (const auto& [key, value] : variables.get_ref<const Json::object_t&>()) passed.push_back({key, &value});
  return parsed.render(passed, limits).text;
}

std::string error_of(std::string_view source, const jinja::Limits& limits = {}) {
  try {
    return "rendered: " + render(source, Json::object(), limits);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(JinjaWhitespace, BlocksTakeTheirLineWithThem) {
  EXPECT_EQ(render("a\n  {% if 1 %}\n  b\n  {% endif %}\n c"), "a\n  b\n c");
  EXPECT_EQ(render("a\n  {%- if 1 %}\n  b\n  {%- endif -%}\n c"), "a  bc");
  EXPECT_EQ(render("a {%+ if 1 %}\n b {%+ endif +%}\n c"), "a  b \n c");
  EXPECT_EQ(render("  {{ 1 }}  \n  {{- 2 -}}  \n  3"), "  123");
  EXPECT_EQ(render("{{ 1 }}\n\n"), "1\n");  // one line break at the end goes
}

TEST(JinjaWhitespace, RawAndCommentsFollowTheSameRules) {
  EXPECT_EQ(render("{% raw %}\n{{ x }} {# z #}\n{% endraw %}\nz"), "\n{{ x }} {# z #}\nz");
  EXPECT_EQ(render(" {# c #} a\n {#+ c +#}\n b"), " a\n \n b");
}

TEST(JinjaExpressions, PrecedenceIsJinjas) {
  EXPECT_EQ(render("{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 ~ 2 * 3 }} {{ 1 < 2 < 3 }} {{ not 1 == 2 }}"),
            "64 4 16 True True");
  EXPECT_EQ(render("{{ -3|abs }} {{ 'a' if 0 else 'b' if 0 else 'c' }} {{ 3 is divisibleby 3 and true }}"), "3 c True");
}

TEST(JinjaExpressions, ValuesPrintAsInPython) {
  EXPECT_EQ(render("{{ [none, true, 1.0, 1e16, 1e-5, 'it\\'s', {'a': (1,)}] }}"),
            "[None, True, 1.0, 1e+16, 1e-05, \"it's\", {'a': (1,)}]");
  EXPECT_EQ(render("{{ 7 // -2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 0.1 + 0.2 }} {{ 2 ** -1 }}"),
            "-4 2 3.5 0.30000000000000004 0.5");
}

TEST(JinjaExpressions, TextsAreCodePoints) {
  const Json variables = {{"t", "e\u0301日本"}};
  EXPECT_EQ(render("{{ t|length }}|{{ t[-1] }}|{{ t[::-1] }}|{{ t.find('本') }}", variables), "4|本|本日\u0301e|3");
  EXPECT_EQ(render("{{ 'straße ΑΣ'.upper() }} {{ 'ΑΣ Σ'.lower() }}"), "STRASSE ΑΣ ας σ");
}

TEST(JinjaExpressions, SlicesWorkAsInPython) {
  EXPECT_EQ(render("{{ [1,2,3,4][::2] }}{{ 'abcd'[-3:-1] }}{{ (1,2,3)[::-1] }}{{ [1][5:] }}"), "[1, 3]bc(3, 2, 1)[]");
}

TEST(JinjaExpressions, WholeNumbersBeyond64BitsAreRefused) {
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(error_of("{{ 2 ** 64 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(error_of("{{ 9223372036854775808 }}"), HasSubstr("beyond 64 bits"));
}

TEST(JinjaScopes, LoopsKeepTheirVariablesAndIfsDoNot) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}"), "21");
  EXPECT_EQ(render("{% set x = 1 %}{% if 1 %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = 2 %}{% endfor %}{{ n.x }}"), "2");
}

TEST(JinjaScopes, ANameSetLaterIsTheTemplatesOwn) {
  const Json variables = {{"w", "given"}};
  EXPECT_EQ(render("{% for i in [1] %}{{ w }}{% endfor %}{% set w = 1 %}", variables), "");
  EXPECT_EQ(render("{% if 0 %}{% set w = 1 %}{% endif %}{{ w }}", variables), "given");
}

TEST(JinjaLoops, LoopKnowsItsPlace) {
  EXPECT_EQ(render("{% for x in 'abc' %}{{ loop.index }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}"
                   "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle(1, 2) }} {% endfor %}"),
            "13TrueFalseb1 22FalseFalseac2 31FalseTrueb1 ");
  EXPECT_EQ(
      render("{% for n in [1, [2, [3]]] recursive %}{{ loop(n) if n is sequence else n }}{{ loop.depth }}{% endfor %}"),
      "11223321");
}

TEST(JinjaLoops, ConditionsSeeWhatTheBodyDid) {
  EXPECT_EQ(
      render("{% set n = namespace(v=0) %}{% for x in [3, 1, 2, 5] if x > n.v %}{% set n.v = x %}{{ x }}{% endfor %}"),
      "35");
}

TEST(JinjaLoops, ElseRunsWhereNoTurnCameToItsEnd) {
  EXPECT_EQ(render("{% for x in [1] %}{% break %}{% else %}e{% endfor %}"), "e");
  EXPECT_EQ(render("{% for x in [1] %}{% else %}e{% endfor %}"), "");
}

TEST(JinjaMacros, TakeArgumentsAsFunctionsDo) {
  EXPECT_EQ(
      render(
          "{% macro m(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, x=4) }}"),
      "11(){}12(3,){'x': 4}");
  EXPECT_EQ(render("{% macro m() %}<{{ caller(2) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}"), "<2>");
}

TEST(JinjaUndefined, FailsWhereItIsUsed) {
  EXPECT_EQ(render("{{ x }}{{ x is defined }}{{ x|default('d') }}{{ x|length }}"), "Falsed0");
  EXPECT_EQ(error_of("\n{{ x.y }}"), "t:2: 'x' is undefined");
  EXPECT_EQ(error_of("{{ {}.a.b }}"), "t:1: 'dict object' has no attribute 'a'");
  EXPECT_EQ(error_of("{{ [].append(1) }}"), "t:1: access to attribute 'append' of 'list' object is unsafe.");
}

TEST(JinjaFilters, GeneratorsAreReadOnceAndAreTrue) {
  EXPECT_EQ(render("{% set g = [1]|select('string') %}{{ 'yes' if g else 'no' }}{{ g|list }}"), "yes[]");
  EXPECT_EQ(render("{% set g = 'ab'|map('upper') %}{{ g|list }}{{ g|list }}"), "['A', 'B'][]");
}

TEST(JinjaFilters, TojsonIsJsonDumps) {
  const Json variables = {{"v", {{"b", {1, 2.5, nullptr, true}}, {"a", "é\"\n</s>"}}}};
  EXPECT_EQ(render("{{ v|tojson }}", variables), "{\"b\": [1, 2.5, null, true], \"a\": \"é\\\"\\n</s>\"}");
  EXPECT_EQ(render("{{ v.b|tojson(indent=2) }}", variables), "[\n  1,\n  2.5,\n  null,\n  true\n]");
  EXPECT_EQ(render("{{ v|tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}", variables),
            "{\"a\":\"\\u00e9\\\"\\n</s>\",\"b\":[1,2.5,null,true]}");
}

TEST(JinjaFilters, MarkupEscapesWhatIsAddedToIt) {
  EXPECT_EQ(render("{{ ('<b>'|safe) + '<' }} {{ ('<b>'|safe) ~ '<' }} {{ '<'|e|e }}"), "<b>&lt; <b>< &lt;");
}

TEST(JinjaErrors, SyntaxErrorsHaveTheirLine) {
  EXPECT_EQ(error_of("a\n{% nope %}"), "t:2: Encountered unknown tag 'nope'. ");
  EXPECT_EQ(error_of("a\n\n{{ 1 + }}"), "t:3: unexpected 'end of print statement'");
  EXPECT_EQ(error_of("{{ 1|nope }}"), "t:1: No filter named 'nope'.");
  EXPECT_EQ(error_of("{% break %}"), "t:1: 'break' outside loop");
}

TEST(JinjaErrors, RaisedTextsComeThrough) {
  EXPECT_EQ(error_of("{{ raise_exception('no <b> & ä') }}"), "t:1: no <b> & ä");
}

TEST(JinjaSandbox, NoTemplateHangsOrFillsTheMachine) {
  jinja::Limits limits;
  limits.steps = 2'000'000;
  limits.memory = std::size_t{8} << 20;
  limits.output = std::size_t{1} << 20;
  EXPECT_THAT(error_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", limits),
              HasSubstr("steps"));
  EXPECT_THAT(error_of("{{ range(10 ** 9) }}", limits), HasSubstr("Range too big"));
  EXPECT_THAT(error_of("{{ 'a' * 10 ** 9 }}", limits), HasSubstr("steps"));
  EXPECT_THAT(error_of("{{ 'a' * 10 ** 7 }}", limits), HasSubstr("of memory"));
  EXPECT_THAT(error_of("{{ [1] * 10 ** 18 }}", limits), HasSubstr("too long"));
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", limits), HasSubstr("nests more than"));
  EXPECT_THAT(error_of("{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}", limits), HasSubstr("longer than"));
  EXPECT_THAT(
      error_of("{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
               limits),
      HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ "
                       "n.l == [n.l[0], n.l[1]] + [] }}{{ n.l|tojson }}",
                       limits),
              testing::AnyOf(HasSubstr("bytes"), HasSubstr("steps")));
  EXPECT_THAT(error_of("{{ '{:1000000000}'.format(1) }}", limits), HasSubstr("Too many decimal digits"));
  EXPECT_THAT(error_of("{{ " + std::string(10000, '(') + std::string(10000, ')') + " }}", limits),
              HasSubstr("nested more than"));
  EXPECT_THAT(error_of(
                  "{{ 1" +
                      [] {
                        std::string s;
                        for (int i = 0; i < 10000; ++i) s += "+1";
                        return s;
                      }() +
                      " }}",
                  limits),
              HasSubstr("nested more than"));
}

TEST(JinjaTemplate, RendersOnManyThreadsAtOnce) {
  const jinja::Template parsed("{% for m in messages %}{{ m.upper() }}{{ loop.index }}{% endfor %}", "t");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      const Json messages = {"a", "b" + std::to_string(i)};
      const std::vector<jinja::Passed> passed = {{"messages", &messages}};
      for (int turn = 0; turn < 200; ++turn) texts[i] = parsed.render(passed).text;
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], "A1B" + std::to_string(i) + "2");
}

}  // namespace
}  // namespace heddle
