"""Small Jinja templates that between them use every operator, filter, test, method and statement, for compare_jinja.py."""
import itertools
import json
import random

# What a template is given, besides what it writes itself.
VARIABLES = {
    "word": "Hello, World", "text": "  the quick  brown\tfox\n jumps over\r\nthe lazy dog. \n", "uni": "Straße ÉCOLE naïve ΣΑΣ ǆ 日本語 👩‍👩‍👧 e\u0301\u00a0x",
    "html": "<a href='x'>\"R&D\"</a>", "empty": "", "digits": "-0042", "csv": "a,b,,c", "json": "{\"a\": [1, 2.50, null]}",
    "numbers": [3, 1, 2, 3, -7, 0], "mixed": [1, "1", 1.0, True, None, [1], {"a": 1}], "words": ["b", "A", "c", "a", "B"],
    "floats": [0.1, -2.5, 1e16, 1e-5, 123456789.123456789, 0.5, 1.5, 2.675, 1e22, -0.0, 5e-324], "nested": [[1, [2, [3]]], {"k": {"k": "v"}}],
    "users": [{"name": "Bob", "age": 31, "tags": ["x", "y"], "city": {"zip": "10"}}, {"name": "alice", "age": 7, "tags": [], "city": {"zip": "9"}},
              {"name": "Carl", "age": 31, "city": {"zip": "10"}}, {"name": "bob", "age": None, "tags": ["z"], "city": {}}],
    "dict": {"b": 1, "a": "2", "C": [3], "items": "shadow", "d e": None}, "flag": True, "off": False, "zero": 0, "one": 1, "big": 9007199254740993, "pi": 3.14159,
}

VALUES = ["0", "1", "-3", "7", "2.5", "-0.5", "1e3", "true", "false", "none", "missing", "''", "'a'", "'ab c'", "word", "uni", "[]", "[1,2,3]", "words", "(1,2)", "()", "{}",
          "dict", "range(4)", "'<b>'|safe", "dict.items()", "dict.keys()", "numbers|map('string')|list", "namespace(a=1)", "big"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "boolean", "true", "false", "integer", "float", "number", "sequence", "iterable", "callable", "escaped", "odd",
         "even", "lower", "upper", "filter", "test"]
TESTS_OF_ONE = ["divisibleby", "sameas", "in", "==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan", ">=", "ge"]
# (filters, what they are used on); arguments that make sense and some that do not.
STRINGS = ["word", "text", "uni", "html", "empty", "digits", "csv", "'a-b (c) [d]{e}<f'", "html|safe", "42", "none", "missing", "[1,'a']", "true", "2.5"]
LISTS = ["numbers", "words", "mixed", "users", "nested", "floats", "dict", "dict.items()", "range(5)", "word", "empty", "()", "missing", "none", "3", "words|map('upper')", "(1,'x')"]
STRING_FILTERS = ["capitalize", "center", "center(20)", "center(width=31)", "default('x')", "e", "escape", "forceescape", "format", "indent", "indent(2)", "indent(2, true)",
                  "indent(2, blank=true)", "indent('> ', first=true)", "indent(0)", "length", "count", "list", "lower", "upper", "replace('l', 'L')", "replace('o', '', 1)", "replace('', '-')",
                  "replace('', '-', 3)", "replace('&', '<b>'|safe)", "reverse", "safe", "string", "title", "tojson", "trim", "trim('H,d')", "trim(chars=' \\n')", "truncate(9)", "truncate(9, true)", "truncate(11, false, '..', 0)",
                  "truncate(5, end='')", "truncate(2)", "urlencode", "wordcount", "first", "last", "join('-')", "join", "int", "int(7)", "int(default=-1, base=16)", "float", "float(1.5)", "d", "unique|list", "batch(3)|list", "slice(3)|list",
                  "replace('a')", "upper(1)", "e|e", "safe|e", "forceescape|forceescape"]
LIST_FILTERS = ["length", "list", "first", "last", "reverse|list", "join(', ')", "join('/', attribute='name')", "join(d='|', attribute='age')", "sort", "sort(reverse=true)", "sort(true, true)", "sort(case_sensitive=true)",
                "sort(attribute='age')", "sort(attribute='city.zip,name')", "sort(attribute=0)", "unique|list", "unique(true)|list", "unique(attribute='age')|list", "min", "max", "min(true)", "max(case_sensitive=true)",
                "min(attribute='age')", "max(attribute='name')", "sum", "sum(start=10)", "sum(attribute='age')", "sum('age', 5)", "map('upper')|list", "map(attribute='name')|list", "map(attribute='age', default=5)|list",
                "map(attribute='city.zip', default='?')|list", "map(attribute='tags.0')|list", "map('default', 'x')|list", "map('int')|sum", "map('string')|join", "map|list", "map('nope')|list", "map('replace', 'a', 'b')|list", "select|list",
                "select('string')|list", "select('odd')|list", "select('divisibleby', 3)|list", "select('in', [1, 3, 'a'])|list", "select('>', 1)|list", "reject|list", "reject('string')|list", "reject('none')|list", "selectattr('tags')|list",
                "selectattr('age', 'eq', 31)|list", "selectattr('age', 'none')|list", "selectattr('city.zip', 'equalto', '10')|map(attribute='name')|join", "rejectattr('tags')|list", "rejectattr('age', 'defined')|list", "rejectattr('age', '==', 31)|list",
                "batch(2)|list", "batch(4, 'x')|list", "batch(linecount=3, fill_with=0)|list", "slice(2)|list", "slice(4, 'x')|list", "groupby('age')|list", "groupby('city.zip', default='none')|list", "groupby('name', case_sensitive=true)|list", "groupby('name')|map(attribute='grouper')|list",
                "groupby(0)|list", "dictsort", "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)", "dictsort(by='x')", "items|list", "tojson", "tojson(indent=2)", "tojson(indent='\\t')", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)",
                "tojson(ensure_ascii=true)", "tojson(indent=1, separators=('; ', '='))", "tojson(indent=0)", "string", "default([], true)", "e", "upper", "title", "urlencode", "xmlattr", "xmlattr(false)", "length > 2", "attr('keys') is defined", "select('nope')|list", "selectattr|list",
                "map('map', 'string')|map('list')|list", "map('length')|list", "map('first')|list", "map(attribute=0)|list", "map('attr', 'real')|list|length", "abs", "round", "int", "float", "count", "wordcount", "trim", "replace(1, 2)", "indent", "filesizeformat"]
NUMBERS = ["0", "1", "-1", "7", "15", "25", "-15", "1234567", "2.5", "-2.5", "3.5", "0.125", "2.675", "1e3", "1e16", "123456789.987654321", "true", "none", "missing", "'3'", "' -12 '", "'3.7'", "'1e3'", "'x'", "'0x1f'", "'1_000'", "'inf'", "[]", "1e-7", "0.1 + 0.2", "1/3", "2**62"]
NUMBER_FILTERS = ["abs", "int", "int(5)", "int(base=16)", "int(0, 0)", "float", "float(9)", "round", "round(1)", "round(2)", "round(-1)", "round(-2)", "round(0, 'ceil')", "round(1, 'floor')", "round(method='ceil')", "round(1, 'x')", "filesizeformat", "filesizeformat(true)", "string", "tojson", "list", "length", "default(3, true)",
                  "format(1)", "upper", "e", "center(9)", "trim"]
# %s: what a method is called on.
STRING_METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()", "strip('H d')", "lstrip('-0')", "rstrip('.\\n ')", "strip(none)", "strip(1)", "split()", "split(',')", "split(', ', 1)", "split(none, 2)", "split(sep='o')", "split(maxsplit=1)",
                  "split('')", "rsplit()", "rsplit(' ', 1)", "rsplit(none, 1)", "splitlines()", "splitlines(true)", "partition(', ')", "partition('o')", "rpartition('o')", "partition('')", "find('o')", "find('o', 5)", "find('o', 5, -2)", "find('', 3)", "find('zz')", "rfind('o')", "rfind('', 0, 2)", "index('o')", "index('zz')", "rindex('l')",
                  "count('l')", "count('')", "count('o', 1, 7)", "count('ll')", "startswith('H')", "startswith(('x', '  '))", "startswith('e', 1)", "startswith(1)", "startswith('', 50)", "endswith('d')", "endswith(('d', ' \\n'))", "endswith('l', 0, -1)", "replace('l', 'L')", "replace('l', 'L', 1)", "replace('', '.')", "replace('o', '', -1)", "replace(1, 2)",
                  "join(['a', 'b', 'c'])", "join(words)", "join('xyz')", "join([1])", "join({'p': 1, 'q': 2})", "center(20)", "center(21, '*')", "ljust(20, '.')", "rjust(20)", "zfill(20)", "zfill(0)", "center(20, '**')", "expandtabs()", "expandtabs(4)", "isalpha()", "isalnum()", "isdigit()", "isdecimal()", "isnumeric()", "isspace()", "isascii()",
                  "isprintable()", "isupper()", "islower()", "istitle()", "isidentifier()", "removeprefix('He')", "removesuffix('ld')", "format(1, 2)", "format_map(dict)", "nope()", "nope", "__class__", "__len__()", "upper(1)", "upper", "removeprefix()", "mro()"]
LIST_METHODS = ["index(1)", "index('a')", "index(3, 1)", "index(3, 1, 2)", "index(99)", "count(1)", "count(3)", "count('A')", "copy()", "append(1)", "pop()", "sort()", "insert(0, 1)", "extend([1])", "clear()", "remove(1)", "reverse()", "nope", "0", "length", "__class__"]
DICT_METHODS = ["get('a')", "get('x')", "get('x', 5)", "get('x', default=5)", "get(1)", "get([])", "keys()", "values()", "items()", "keys()|list", "values()|list", "items()|list", "items()|first", "copy()", "pop('a')", "update(x=1)", "setdefault('x', 1)", "clear()", "popitem()", "fromkeys(['a'], 1)", "a", "x", "items", "keys is callable", "__class__", "keys()|length", "keys()|sort",
                "keys() | reverse | list", "keys()[0]", "values() == values()", "items() == items()", "keys() == keys()"]
SLICES = ["[0]", "[-1]", "[99]", "[1:]", "[:2]", "[-2:]", "[::2]", "[::-1]", "[1:-1]", "[5:1]", "[5:1:-2]", "[:]", "[-99:99]", "[none:2]", "[::0]", "['a']", "['name']", "[1.0]", "[true]", "[none]", "[1, 2]", "[2:][0]", "[1::3]", "[-1:-4:-1]", "['x':]", ".0", ".1.0"]
PERCENT = ["'%s' % 1", "'%s %s' % (1, 'a')", "'%d|%5d|%-5d|%05d|%+d|% d' % (3, 3, 3, 3, 3, 3)", "'%5.2f|%e|%g|%G|%.0f|%#.0f' % (3.14159, 31415.9, 1e-7, 1e20, 2.5, 2.5)", "'%x %X %o %#x %#o' % (255, 255, 8, 255, 8)", "'%c%c' % (65, 'b')", "'%r %s' % ('a', none)", "'%%' % ()", "'%(a)s %(b)05d' % {'a': 'x', 'b': 7}",
           "'%s' % [1, 2]", "'%s' % (1, 2)", "'%s %s' % 1", "'%d' % 'a'", "'%d' % 3.99", "'%.3s|%5s|%-5s|' % ('abcdef', 'ab', 'ab')", "'%*d' % (5, 42)", "'%.*f' % (2, 3.14159)", "'%z' % 1", "'%' % 1", "'%(a)s' % 1", "'%(x)s' % {}", "'no' % 1", "'no' % []", "'no' % {}", "'%s' % missing", "'%d' % true", "'%i' % -7", "'%u' % 7", "'%s' % uni",
           "'%.2d' % 7", "'%+.1e' % 12345", "'%-10s|' % 'ß'", "'%a' % 'x'", "('%s'|safe) % '<'", "'%s' % ('<b>'|safe)", "'%08.3f' % -3.14159", "'%g' % 100000", "'%g' % 1000000", "'%#g' % 1.0", "'%f' % missing", "'%s%s' % 'a'", "'%.100s' % 'a'", "'%x' % 1.5", "'%c' % 128512", "'%ld' % 4"]
BRACES = ["'{} {}'.format(1, 'a')", "'{0} {1} {0}'.format(1, 'a')", "'{a} {b}'.format(a=1, b='x')", "'{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 2, 3, 'x')", "'{:05d} {:+d} {: d} {:,} {:_}'.format(42, 42, 42, 1234567, 1234567)", "'{:.2f} {:e} {:g} {:%} {:.1%}'.format(3.14159, 31415.9, 1e-7, 0.25, 0.256)",
          "'{:x} {:X} {:o} {:b} {:#x} {:#b} {:c}'.format(255, 255, 8, 5, 255, 5, 65)", "'{{}} {}'.format(1)", "'{!r} {!s}'.format('a', 'a')", "'{0[a]} {0[b]}'.format({'a': 1, 'b': 2})", "'{0.name}'.format(users[0])", "'{a[0]}'.format(a=[1])", "'{:{}}|'.format('x', 5)", "'{:{w}.{p}f}'.format(3.14159, w=8, p=2)", "'{} {0}'.format(1)",
          "'{'.format()", "'}'.format()", "'{}'.format()", "'{x}'.format()", "'{:d}'.format('a')", "'{:s}'.format(1)", "'{:5}|{:5}|'.format('a', 1)", "'{:.3}'.format('abcdef')", "'{:.3}'.format(3.14159)", "'{:10.3}|'.format(2.0)", "'{}'.format(none)", "'{:5}'.format(none)", "'{}'.format(true)", "'{:5}'.format(true)", "'{:d}'.format(true)", "'{}'.format([1, 'a'])",
          "'{:,.2f}'.format(1234567.891)", "'{:010,}'.format(1234567)", "'{:+.3e}'.format(0)", "'{:n}'.format(1234)", "'{:g}'.format(1e10)", "'{:}'.format(1.0)", "'{:.0f}'.format(0.5)", "'{:<08}|'.format(3)", "'{:=+6}'.format(3)", "'{:>6}'.format(1.5)", "'{0!x}'.format(1)", "'{0.upper}'.format('a')|length > 3", "'{a.__class__}'.format(a=1)", "('{}'|safe).format('<')", "'{:é>4}'.format('a')", "'{:x}'.format(1.5)",
          "'{:.1}'.format(0.25)", "'{:e}'.format(5)", "'{:#.3g}'.format(1.0)", "'{:1.1f}'.format(-0.04)", "'{:_x}'.format(1048576)", "'{:.5}'.format(100000.0)", "'{:.6}'.format(100000.0)", "'{:.2}'.format(12345.0)"]
LITERALS = ["1", "1_000", "0x1F", "0b101", "0o17", "00", "1.5", "1e5", "1.5e-3", "1_0.2_5", ".5", "1.", "'a\\nb'", "'\\x41\\u00e9\\U0001F600\\101'", "'\\d\\''", "\"it's\"", "'a' 'b'", "'a\"b'", "[1, 2,]", "(1,)", "1, 2", "{'a': 1,}", "{1: 2, 'x': [3]}", "{1: 'a', true: 'b', 1.0: 'c'}", "{[]: 1}", "True", "None", "False", "none is none",
            "9223372036854775807", "-9223372036854775807", "[none, true, 1.0, 'é\\x00\\u200b\\'']", "{'k': ('a', [])}", "\"a'b\\\"\"", "'\\\\'", "1.0", "100000000000000000000.0", "1e16", "1e15", "123456789012345680.0", "0.0001", "0.00001", "1e300*1e10", "-1e300*1e10", "(1e300*1e10) - (1e300*1e10)", "1e-320", "'a\tb'", "'\u2028'", "'\ud7ff'", "[1e22, 1e21]"]
EXPRESSIONS = ["1 + 2 * 3 ** 2", "2 ** 3 ** 2", "-2 ** 2", "(-2) ** 2", "2 ** -1", "7 // 2", "-7 // 2", "7 % -3", "-7 % 3", "7.5 // 2", "-7.5 % 2", "7 / 2", "6 / 3", "1 / 0", "1 // 0", "1 % 0", "1.0 / 0", "0 ** 0", "0 ** -1", "1 < 2 < 3", "1 < 2 > 3", "3 > 2 > 1 == 1", "1 == 1.0 == true", "not 1 == 2", "not (1 or 0)", "1 and 0 or 2",
               "'' or none or []", "1 if true", "1 if false", "1 if false else 2", "(1 if false) is defined", "1 if 0 else 2 if 0 else 3", "'a' ~ 1 ~ none ~ missing ~ 2.0", "1 ~ 2 + 3", "1 + 2 ~ 3", "'a' * 3", "[1] * 2 + [2]", "(1,) + (2,)", "'ab' < 'b'", "[1, 2] < [1, 3]", "(1, 'a') < (1, 2)", "[] < [1]", "'a' < 1", "none < 1", "missing < 1", "missing == missing2", "missing == none", "missing + 1", "1 + missing",
               "missing.x", "missing['x']", "missing.x is defined", "users.nope", "users[0].nope", "users[0].nope.x", "none.x", "none.x.y", "5 .x", "'a'.x", "users['x']", "dict.nope", "dict['nope'].x", "missing()", "none()", "5()", "'a'()", "users[0]()", "word.upper", "missing|upper", "missing|list", "missing|length", "missing|int", "missing|float", "missing|abs", "missing ~ ''", "missing in [1]", "1 in missing", "missing|first",
               "1 in 1", "'a' in 'abc'", "1 in 'abc'", "'a' in dict", "1 in [1.0]", "[1] in [[1]]", "none in [none]", "'x' not in 'abc'", "1 in range(3)", "5 in range(3)", "1.0 in range(3)", "2 in (1, 2)", "'a' in words|map('lower')", "range(3)", "range(1, 10, 3)|list", "range(5, 0, -2)|list", "range(0)|list", "range(3)[1]", "range(10)[2:5]", "range(10)[::-1]|list", "range(1, 2, 0)", "range('a')", "range(100001)", "range()", "range(3) == range(0, 3)", "range(3).stop",
               "dict(a=1, b=2)", "dict([('a', 1), ['b', 2]])", "dict({'a': 1}, b=2)", "dict(**{'x': 1})", "dict(1)", "dict.fromkeys('ab', 1)", "namespace(a=1).a", "namespace(a=1, b='x')", "namespace({'a': 1}).a", "namespace(_a=1)", "namespace().x", "namespace(a=1)['a']", "namespace(a=namespace(b=2)).a.b", "cycler(1, 2).next()", "cycler()", "joiner('; ')()", "word|length + 1", "-word|length", "(-3)|abs", "-3|abs", "'%s'|format('a')", "'%(a)s'|format(a=1)",
               "1 is odd and 2 is even", "3 is divisibleby 3", "3 is divisibleby(2)", "3 is not divisibleby 2", "1 is sameas 1", "none is sameas none", "[] is sameas []", "5 is in [5]", "5 is in([5])", "'upper' is filter", "'nope' is filter", "'odd' is test", "1 is nope", "1|nope", "true is 1", "1 is eq 1", "1 is lt 2", "'a' is string is true", "word is string and not flag", "users|selectattr('age')|list|length", "users | map(attribute='name') | map('lower') | sort | join(',')", "(users|groupby('age'))[0].grouper",
               "(users|groupby('city.zip'))[0].list|length", "numbers|sort|first", "numbers|sum / numbers|length", "[1,2,3][1]", "'abc'[1]", "uni[0:6]", "uni[::-1]", "uni|length", "'👩‍👩‍👧'|length", "uni[-3:]", "uni.find('ΣΑΣ')", "uni.upper()", "uni.lower()", "uni.title()", "uni.swapcase()", "uni.casefold()", "'ŉ ﬁ İ ß ǰ'.upper()", "'ŉ ﬁ ß ǆ'.title()", "'İI'.lower()", "'ΑΣ ΑΣΑ Σ'.lower()", "uni|tojson", "uni|string|e", "[uni]", "{'k': uni}",
               "[html|safe]", "html|safe ~ html", "(html|safe) + '<'", "'<' + (html|safe)", "(html|safe) * 2", "(html|safe)|upper", "(html|safe).split('=')", "(html|safe)|replace('R', '<')", "(html|safe).replace('R', '<')", "(html|safe) == html", "(html|safe)|tojson", "(html|safe).join(['<', '>'|safe])", "(html|e) is escaped", "(html|safe)[2:5]", "('a'|safe).center(5, '<')", "html|e|length", "html|e|upper", "[html|e]|join", "html|urlencode", "{'a': 'x y', 'b&': '/?'}|urlencode", "[('a', 1)]|urlencode",
               "users[0]|tojson", "users|tojson(indent=4)", "[1.0, 1e16, 1e-7, 0.1, -0.0]|tojson", "(1, [2, (3,)])|tojson", "{1: 2, none: 3, true: 4, 1.5: 5}|tojson", "missing|tojson", "range(3)|tojson", "dict.items()|tojson", "namespace()|tojson", "'\\u2028\\x7f\\x1f</script>'|tojson", "'\\u2028\\x7fé😀'|tojson(ensure_ascii=true)", "[]|tojson(indent=2)", "{}|tojson(indent=2)", "{'a': [], 'b': {}}|tojson(indent=2)", "[[1], {'a': {}}]|tojson(indent=2)", "(1e300*1e10)|tojson", "true|tojson", "none|tojson", "tojson",
               "users|map(attribute='name', default='x', y=1)|list", "(words|map('upper'))|length", "(words|map('upper'))[0]", "words|map('upper')|first", "words|select|last", "words|reverse|first", "words|map('upper') is iterable", "words|map('upper') is sequence", "(words|select('string')) is true", "1 if words|select('none') else 2", "raise_exception('no <b>')", "raise_exception()", "raise_exception(5)", "word.upper().lower().title()", "word.split(',')[1].strip()|length", "word.__class__", "word['upper']()", "dict['get']('a')", "users.append(1)", "users.append",
               "dict.update is defined", "users.append is defined", "users.append ~ ''", "word.format is callable", "[1, 2, 3]|batch(2)|map('list')|list", "dict|dictsort|map('first')|list", "dict|list", "dict|length", "dict|first", "dict|last", "word|list|sort|join", "(1, 2)|last", "floats", "floats|map('round', 1)|list", "floats|map('string')|list", "floats|tojson", "floats|sort", "2 ** 62", "2 ** 0.5", "10 ** 15", "10.0 ** 16", "1e16 + 1", "big + 1", "big / 3", "big * 2.0", "5 % 3.0", "-5 // 3.0", "3.0 == 3", "true + true", "true * 'a'", "false ~ true", "+5", "+'a'", "-'a'", "- -5", "not none", "+true", "-missing",
               "word.count('l') + word.count('o')", "word[word.index('W'):]", "'a,b;c'.replace(';', ',').split(',')", "'x' if missing else 'y'", "missing if missing is defined else 'd'", "missing|default('a')|upper", "missing|default", "none|default('a')", "none|default('a', true)", "''|default('a', boolean=true)", "0|d(1, true)", "users[0]['tags'][0]", "users[0].tags.0", "users.0.name", "dict['d e']", "dict.items", "dict.items()", "nested.0.1.1.0", "nested[1].k.k", "users[-1].name", "users[9]", "users[9] is defined", "users[9].name", "strftime_now('%Y') | length", "strftime_now('%d %b %Y')", "strftime_now('')", "strftime_now('%%')", "('a', 'b') | join", "{}.get('x')", "{'a': none}.get('a', 1)", "[[1, 2], [3]] | sum(start=[])", "['a', 'b'] | sum(start='')", "1.5|int", "'1.5'|int", "-1.5|int", "'a'|int", "none|int", "true|int", "'12abc'|int(9)", "1e30|int"]

# Whole templates.
STATEMENTS = [
    # white space
    "a\n  {% if 1 %}\n  b\n  {% endif %}\n c", "a\n  {%- if 1 %}\n  b\n  {%- endif -%}\n c", "a {%+ if 1 %}\n b {%+ endif +%}\n c", "  {{ 1 }}  \n  {{- 2 -}}  \n  3", "a\n\n", "a\n\n\n", "\n{% if 1 %}\n\n{% endif %}\n", "\r\na\r{% if 1 %}\r\nb{% endif %}\r\n", "{# c #}\na", "{#- c -#}\n a", " {# c #} a\n {#+ c +#}\n b", "a {# multi\nline #}\nb", "{% raw %}\n{{ x }} {% y %}{# z #}\n{% endraw %}\nz", "a {%- raw -%} \n {{ x }} {%- endraw -%} \n b", "  {% raw %} x {% endraw %}  \n y",
    "{%if 1%}x{%endif%}", "{{'a'}}{{-'b'}}", "{{ '}}' }} {{ '{{' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a':{}} }}", "{% set x = '%}' %}{{ x }}", "a{% set x = 1 %}\n b", "   {% set x = 1 %}   \n b", "\t{% if 1 -%}\n\n x\n{% endif %}", "{% if 1 %}{% endif %}\n\nx", "x{% if 1 %} y {% endif %} z", "{{ 1 }}\n", "{{ 1 }}\n\n", "{{ 1 -}}\n\n x", "{ {% if 1 %}{{% endif %}", "{%- if 1 -%}\n{{ 1 }}\n{%- else -%}\n{%- endif +%}\n", "{{+1}}{{-1}}{{ - 1 }}", "\u00a0{%- if 1 %}a{% endif -%}\u00a0b", " \u2003{% if 1 %}a{% endif %}", "{%\nif\n1\n%}\nx\n{%\nendif\n%}\n", "#}{% if 1 %}#}{% endif %}", "{#{{#}}", "{#-#}x", "{% raw %}{% raw %}{% endraw %}", "{%- raw %} a{% endraw -%} \n b",
    # for
    "{% for x in [1,2,3] %}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}", "{% for x in [1] %}a{% else %}b{% endfor %}", "{% for a, b in dict.items() %}{{ a }}={{ b }};{% endfor %}", "{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}", "{% for a, b in [(1,2,3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for c in 'añb' %}[{{ c }}]{% endfor %}", "{% for k in dict %}{{ k }}{% endfor %}",
    "{% for x in numbers if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}", "{% for x in numbers if x > 100 %}{{ x }}{% else %}none{% endfor %}", "{% for x in range(6) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}", "{% for x in 'abc' %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in 'abc' %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for x in 'abcd' %}{{ loop.cycle('o', 'e') }}{% endfor %}", "{% for x in [1,1,2,2,1] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed() }}{% endfor %}", "{% for x in [1,2] %}{{ loop }}{% endfor %}", "{% for x in words|map('upper') %}{{ loop.index }}{{ loop.last }}{{ x }}{% endfor %}", "{% for x in words|map('upper') %}{{ loop.length }}{{ x }}{% endfor %}", "{% for x in words|select %}{{ loop.revindex }}{{ loop.nextitem }}{% endfor %}",
    "{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in [1,2] %}{% break %}{% else %}e{% endfor %}", "{% for x in [1,2] %}{% continue %}{% else %}e{% endfor %}", "{% for x in [1,2] %}{% for y in 'ab' %}{% if y == 'b' %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% break %}", "{% if 1 %}{% continue %}{% endif %}", "{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in [] %}{% else %}{% break %}{% endfor %}", "{% for n in nested recursive %}[{% if n is iterable and n is not string and n is not mapping %}{{ loop(n) }}{% else %}{{ n }}{% endif %}{{ loop.depth }}]{% endfor %}", "{% for n in [1, [2, [3]]] recursive %}{{ loop(n) if n is sequence else n }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "{% for n in [1] recursive %}{{ loop() }}{% endfor %}",
    "{% for loop in [1] %}{% endfor %}", "{% for x in [1] %}{% set loop = 1 %}{% endfor %}", "{% for x in [1,2] %}{% for y in [3,4] if loop.index == 1 %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% set ns = namespace(v=0) %}{% for x in numbers if x > ns.v %}{% set ns.v = x %}{{ x }} {% endfor %}", "{% set ns = namespace(v=0) %}{% for x in numbers if x > ns.v %}{{ loop.last }}{% set ns.v = x %}{{ x }} {% endfor %}", "{% for x in [1] %}{{ loop.nope }}{{ loop.nope.x }}{% endfor %}", "{% for x, y in [[1, 2], [3, 4]] if x > 1 %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}", "{% for x in [3,4] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% for i in range(3) %}{{ i }}{% endfor %}{{ i is defined }}{{ loop is defined }}", "{% for x in 'ab' %}{{ caller is defined }}{{ varargs is defined }}{% endfor %}",
    # set and scopes
    "{% set x = 1 %}{{ x }}{% if 1 %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "{% for i in [1,2] %}{% if i == 1 %}{% set y = i %}{% endif %}{{ y }}{% endfor %}{{ y }}", "{% if 0 %}{% set word = 1 %}{% endif %}{{ word }}", "{% if 1 %}{% set word = 1 %}{% endif %}{{ word }}", "{% for i in [1] %}{{ word }}{% endfor %}{% set word = 1 %}", "{{ word }}{% set word = 1 %}{{ word }}", "{% set word = word + '!' %}{{ word }}", "{% for i in [1,2] %}{% set word = word + '!' %}{{ word }}{% endfor %}{{ word }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b), c = (1, 2), 3 %}{{ a }}{{ b }}{{ c }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = 1 %}", "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns }}", "{% set ns = namespace(x=1) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set word.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns }}", "{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]", "{% set x | upper %}a{{ word }}{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}a{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}", "{% set ns = namespace() %}{% set ns.t %}abc{% endset %}{{ ns.t }}", "{% set none = 1 %}", "{% set x == 1 %}", "{% set 1 = 2 %}", "{% set x.y.z = 1 %}", "{% set x[0] = 1 %}", "{% set x = %}",
    "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with word = 1 %}{{ word }}{% endwith %}{{ word }}", "{% with a %}{% endwith %}", "{% if a is defined %}x{% endif %}{% set a = 1 %}{% if a is defined %}y{% endif %}", "{% if 0 %}{% elif 1 %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif 1 %}{% set q = 1 %}{% endif %}{{ q }}", "{% if missing %}a{% else %}b{% endif %}", "{% if missing.x %}{% endif %}", "{% if 1, %}a{% endif %}", "{% if not users %}a{% endif %}", "{% if 1|nope %}{% endif %}", "{% if 0 %}{{ 1|nope }}{% endif %}x", "{% if 0 %}{% for x in [1] %}{{ 1|nope }}{% endfor %}{% endif %}x", "{{ (1|nope) if 0 else 2 }}", "{{ 1 if 1 is nope else 2 }}", "{{ 1 is nope }}", "{% if 1 is nope %}{% endif %}", "{% print 1, 'a' %}", "{% if 1: %}x{% endif %}", "{% for x in [1]: %}x{% endfor %}",
    # macros
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=1, a=4) }}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}", "{% macro m() %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}", "{% macro m(a=word) %}{{ a }}{% endmacro %}{% set word = 'w' %}{{ m() }}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}", "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}", "{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}", "{% macro m() %}a{% endmacro %}{{ m() ~ m() }}{{ m()|upper }}{{ m }}{{ m.name }}{{ m.arguments }}", "{% macro m(x, y) %}{% endmacro %}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}{{ m.nope }}",
    "{% macro outer() %}{% macro inner() %}i{{ x }}{% endmacro %}{% set x = 1 %}{{ inner() }}{% endmacro %}{{ outer() }}", "{% for x in [1,2] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(caller) %}{{ caller() }}{% endmacro %}", "{% macro m(caller=none) %}{{ caller() if caller else 'none' }}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}", "{% macro m() %}{{ kwargs.x }}{% endmacro %}{{ m(x=1) }}", "{% macro m() %}{{ varargs|join }}{% endmacro %}{{ m(1,2) }}{{ m(*[3,4]) }}", "{% macro m(a,b) %}{{ a }}{{ b }}{% endmacro %}{{ m(**{'a': 1, 'b': 2}) }}{{ m(*[1], **{'b': 3}) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*5) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**5) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(t) %}<{{ caller(t) }}>{% endmacro %}{% for i in [1,2] %}{% call(x) m(i) %}{{ x }}{{ i }}{{ loop.index }}{% endcall %}{% endfor %}", "{% call word() %}{% endcall %}", "{% call word %}{% endcall %}", "{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{% call a() %}[{{ caller() }}]{% endcall %}{% endmacro %}{% call b() %}x{% endcall %}", "{% macro _p() %}x{% endmacro %}{{ _p() }}", "{% macro m(x) %}{{ x is defined }}{{ x.y }}{% endmacro %}{{ m() }}", "{% set f = word.upper %}{{ f() }}", "{% macro m() %}\n  a\n{% endmacro %}\n[{{ m() }}]", "{%- macro m(a) -%}\n  {{- a -}}\n{%- endmacro -%}\n{{ m('x') }}",
    "{% filter upper %}a{{ word }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aa{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter nope %}{% endfilter %}", "{% filter trim %}  {% set q = 1 %}{{ q }} {% endfilter %}{{ q }}", "{% for x in 'ab' %}{% filter upper %}{{ x }}{{ loop.index }}{% if x == 'b' %}{% break %}{% endif %}{% endfilter %}{% endfor %}", "{% for x in 'abc' %}{% set y %}{{ x }}{% if x == 'b' %}{% continue %}{% endif %}{% endset %}{{ y }}{% endfor %}",
    "{% block a %}x{{ word }}{% endblock %}", "{% set v = 1 %}{% block a %}{{ v }}{% endblock %}", "{% for i in [1,2] %}{% block a %}{{ i }}{% endblock %}{% endfor %}", "{% for i in [1,2] %}{% block a scoped %}{{ i }}{% endblock %}{% endfor %}", "{% block a %}{% endblock %}{% block a %}{% endblock %}", "{% block a %}{% set q = 1 %}{{ q }}{% endblock a %}{{ q }}", "{% block a-b %}{% endblock %}", "{% generation %}a{{ word }}{% endgeneration %}b", "{% for m in [1,2] %}{% generation %}{{ m }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% set x %}{% generation %}q{% endgeneration %}{% endset %}{{ x }}{{ x }}", "{%- generation -%}\n x {%- endgeneration -%}\n y", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% autoescape false %}{{ html }}{% endautoescape %}",
    # refused
    "{% include 'x' %}", "{% include 'x' ignore missing %}", "{% import 'x' as y %}", "{% from 'x' import y, z as w with context %}", "{% extends 'x' %}", "{% do 1 %}", "{% trans %}a{% endtrans %}", "{% nope %}", "{% endif %}", "{% if 1 %}", "{% if 1 %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for in [] %}{% endfor %}", "{{ }}", "{{ 1 2 }}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ 'a }}", "{{ a b }}", "{{ @ }}", "{{ a$ }}", "{# a", "{% raw %}a", "{% 1 %}", "{{ 'a' 'b' 1 }}", "{{ x is }}", "{{ x| }}", "{{ x. }}", "{{ x.1.2 }}", "{{ {1} }}", "{{ {1:} }}", "{{ f(a=1, 2) }}", "{{ f(*a, b) }}", "{{ f(**a, *b) }}", "{{ f(a=1, a=2) }}", "{{ f(,) }}", "{{ f(1,) }}", "{{ not }}", "{{ 1 if }}", "{{ 1 is not }}", "{{ a.b.c() }}", "{% else %}", "{% elif 1 %}", "{% set %}", "{% macro %}", "{% macro m %}{% endmacro %}", "{{ 1 is string is none }}", "{{ a!b }}", "{{ 1 === 2 }}", "{{ 1 <> 2 }}", "{{ ; }}", "{{ 'a'; 'b' }}", "{{ x[1:2, 3] }}", "{{ [1,2,3][1,] }}", "{% if %}{% endif %}", "{% for x in [1] recursive if x %}{% endfor %}", "{% call() m %}{% endcall %}", "}} %} #}", "{{ '{%' }}", "a { b } c {", "{{ \"\\u12\" }}", "{{ '\\N{DASH}' }}", "{{ [][ }}", "{{ x[] }}", "{{ 1if 1else 2 }}", "{{ 0x }}", "{{ 1__0 }}", "{{ äöü }}{{ 日本 }}", "{{ 1.e5 }}", "{{ 1e }}", "{{ users[0].name.upper()[::-1][0:2]|lower }}", "{{ - }}", "{{ a = 1 }}", "{{ (a, b) }}", "{{ () }}", "{{ (1, ) }}", "{{ 5 is divisibleby }}", "{{ 5 is divisibleby 5 6 }}", "{{ 'x' is in 'xy' and true }}", "{{ not not 1 }}", "{{ not 1 in [2] }}", "{{ 1 not in [2] }}", "{{ 1 in [1] in [[1]] }}", "{{ -1 ** 2 }}", "{{ 2 ** -1 }}", "{{ 'a' if 1 else }}", "{{ 1 or }}", "{{ a.0b }}", "{{ loop }}", "{{ self }}", "{{ caller }}", "{{ super }}", "{{ true.x }}", "{{ True is true }}", "{{ none is None }}",
]


def expressions():
    """Expressions, each of which is a case of its own."""
    yield from LITERALS
    yield from PERCENT
    yield from BRACES
    yield from EXPRESSIONS
    for a, op, b in itertools.product(VALUES, BINARY, VALUES):
        is_set = op in ("-", "<", "<=", ">", ">=") and "dict." in a + b  # keys() and items() are sets too; not here
        is_endless = op == "**" and "big" in (a, b) or op == "*" and "big" in (a, b)  # to Python, whose numbers grow
        is_complex = op == "**" and "." in b and a[0] == "-"
        if not is_set and not is_endless and not is_complex:
            yield "(%s) %s (%s)" % (a, op, b)
    for value in VALUES + STRINGS + LISTS:
        yield "-(%s)" % value
        yield "+(%s)" % value
        yield "not (%s)" % value
        yield "(%s)|string" % value
        yield "[%s]" % value
        for test in TESTS:
            yield "(%s) is %s" % (value, test)
    for value, test, other in itertools.product(VALUES, TESTS_OF_ONE, VALUES[::3]):
        if test == "sameas" and ("." in value or "e" in value or "safe" in value):  # which object it is
            continue
        if test[0].isalpha():
            yield "(%s) is %s (%s)" % (value, test, other)
        yield "[%s]|select('%s', (%s))|list|length" % (value, test, other)
    for value, f in itertools.product(STRINGS, STRING_FILTERS):
        yield "(%s)|%s" % (value, f)
    for value, f in itertools.product(LISTS, LIST_FILTERS):
        if "|map(" not in value or f != "wordcount":  # an address has words
            yield "(%s)|%s" % (value, f)
    for value, f in itertools.product(NUMBERS, NUMBER_FILTERS):
        yield "(%s)|%s" % (value, f)
    for value, m in itertools.product(STRINGS[:9] + ["5", "missing"], STRING_METHODS):
        if (value, m) != ("missing", "__class__"):
            yield "(%s).%s" % (value, m)
    for value, m in itertools.product(["numbers", "words", "mixed", "(1, 'a', 1)", "[]"], LIST_METHODS):
        yield "(%s).%s" % (value, m)
    for value, m in itertools.product(["dict", "{}", "users[0]", "{1: 2, 'a': 'b'}", "namespace(a=1)"], DICT_METHODS):
        yield "(%s).%s" % (value, m)
    # Jinja folds constants by other rules than it runs by: none[1:] is undefined, and a variable that is none fails.
    for value, s in itertools.product([v for v in LISTS if v not in ("none", "3", "()", "(1,'x')")] + ["uni", "html|safe", "big", "users[3].age"], SLICES):
        yield "(%s)%s" % (value, s)


class RandomTemplate:
    """Statements in each other that set and read a few names, so that every rule of scopes comes up."""
    NAMES = ["a", "b", "c", "word"]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.macros = 0

    def value(self):
        r = self.random
        name = r.choice(self.NAMES)
        return r.choice(["1", "'x'", name, name + " ~ 1", "%s if %s else 2" % (name, r.choice(self.NAMES)), "%s|default('d')" % name, "ns.v", "loop.index"])

    def body(self, depth, in_loop):
        return "".join(self.statement(depth, in_loop) for _ in range(self.random.randint(1, 4)))

    def statement(self, depth, in_loop):
        r = self.random
        name, kind = r.choice(self.NAMES), r.randrange(16 if depth > 0 else 5)
        if kind < 3:
            return "{{ %s }},{{ %s is defined }};" % (name, r.choice(self.NAMES))
        if kind == 3:
            return "{%% set %s = %s %%}" % (name, self.value())
        if kind == 4:
            return r.choice(["{%% set ns.v = %s %%}" % self.value(), "{{ ns.v }}", "{% if loop is defined %}{{ loop.index }}{% endif %}", "{% if a %}{% break %}{% endif %}" if in_loop else "", "{% if b %}{% continue %}{% endif %}" if in_loop else ""])
        inner = self.body(depth - 1, in_loop or kind in (5, 6))
        if kind == 5:
            return "{%% for %s in %s%s %%}%s{%% endfor %%}" % (name, r.choice(["[1,2]", "'xy'", "[]", "range(2)"]), r.choice(["", " if %s != 1" % r.choice(self.NAMES)]), inner)
        if kind == 6:
            return "{%% for %s in [1,2] %%}%s{%% else %%}%s{%% endfor %%}" % (name, inner, self.body(depth - 1, in_loop))
        if kind in (7, 8):
            return "{%% if %s %%}%s{%% endif %%}" % (self.value(), inner)
        if kind == 9:
            return "{%% if %s %%}%s{%% elif %s %%}%s{%% else %%}%s{%% endif %%}" % (self.value(), inner, self.value(), self.body(depth - 1, in_loop), self.body(depth - 1, in_loop))
        if kind == 10:
            return "{%% with %s = %s %%}%s{%% endwith %%}" % (name, self.value(), inner)
        if kind == 11:
            return "{%% set %s %%}%s{%% endset %%}" % (name, inner)
        if kind == 12:
            return "{%% filter upper %%}%s{%% endfilter %%}" % inner
        self.macros += 1
        inner = self.body(depth - 1, False)
        if kind == 13:
            return "{%% macro m%d(%s, p=%s) %%}%s{{ p }}{%% endmacro %%}{{ m%d(%s) }}" % (self.macros, name, self.value(), inner, self.macros, self.value())
        if kind == 14:
            return "{%% macro m%d() %%}%s{{ caller(%s) }}{%% endmacro %%}{%% call(%s) m%d() %%}%s{%% endcall %%}" % (self.macros, inner, self.value(), name, self.macros, self.body(depth - 1, False))
        return "{%% generation %%}%s{%% endgeneration %%}" % inner

    def text(self):
        return "{% set ns = namespace(v=0) %}" + self.body(3, False)


def templates(count, seed):
    yield from STATEMENTS
    for i in range(count):
        yield RandomTemplate(seed * 100000 + i).text()


def rows_variables():
    return json.loads(json.dumps(VARIABLES))
