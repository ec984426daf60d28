"""Tests of the limits on time, memory and output of chat templates, which are untrusted."""

import pytest

import tokjax
from tokjax.encoding.chat.template_limits import Budget

MESSAGES = [{"role": "user", "content": ""}]
NESTED = "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
TUPLES = "{% set ns = namespace(x=(1,)) %}{% for i in range(16) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
GROWN = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = "
P = str(2**61 - 1)
KEYS = f"{{% set p = range(0, 200 * {P}, {P}) %}}{{% set d = dict.fromkeys(p) %}}"
HIDDEN = NESTED.replace("x=[1]", "x=[1], t=(1,)").replace(
    "{% endfor", "{% set ns.t = (ns.t, ns.t) %}{% endfor"
)
LOOP = "{% for i in range(1000) %}{% set y = "
DEEP = "{% set ns = namespace(x=[1] * 1000) %}{% for i in range(60) %}{% set ns.x = [ns.x] %}{% endfor %}"
LONG = "{% set x = 'a' * 10000 %}"
NUMBERS = "{% set r = range(10000) %}"


def render_text(template, **options):
    return tokjax.encode_chat(tokjax.byte_level(), MESSAGES, template, mask=False, **options).text


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**10 }}",
        "{{ 10**(10**9) }}",
        "{{ 9 ** 20000 % 2 }}",
        "{{ 9 ** 2000 * 9 ** 2000 }}",
        "{% set x = 9 ** 2000 %}{% for i in range(1000) %}{% set y = x * x %}{% endfor %}",
        "{% set x = 9 ** 2000 %}{% for i in range(1000) %}{% set y = x // (x - 1) %}{% endfor %}",
        "{{ (1).from_bytes(('a' * 2000).encode(), 'big') % 2 }}",
        "{{ ('f' * 4000) | int(base=16) % 2 }}",
        "{{ ([9 ** 2499] * 10000) | sum % 2 }}",
        "{{ 3 | round(-3000) }}",
        "{{ [0] * 10**10 }}",
        GROWN + "ns.x ~ ns.x %}{% endfor %}",
        GROWN + "ns.x + ns.x %}{% endfor %}",
        GROWN.removesuffix("= ") + "%}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
        NESTED + "{{ ns.x }}",
        NESTED + "{{ ns.x | tojson }}",
        NESTED + "{{ ns.x | upper }}",
        NESTED + "{{ ns.x == ns.x[1:] }}",
        NESTED + "{{ '%s' % ns.x }}",
        NESTED + "{{ '{}'.format(ns.x) }}",
        NESTED + "{{ '{0!r}'.format(ns.x) }}",
        NESTED + "{{ ns.x ~ 1 }}",
        NESTED + "{{ raise_exception(ns.x) }}",
        NESTED + "{{ ns.x.count([1]) }}",
        TUPLES + "{{ {ns.x: 1} | length }}",
        TUPLES + "{{ {}[ns.x] }}",
        TUPLES + "{{ {}.get(ns.x) }}",
        TUPLES + "{{ dict([(ns.x, 1)]) | length }}",
        TUPLES + "{{ dict.fromkeys([ns.x]) | length }}",
        TUPLES + "{{ ns.x in {} }}",
        TUPLES + "{{ {} | attr(ns.x) }}",
        "{{ 'a'.center(10**10) }}",
        "{{ 'a' | center(10**10) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '%(a)1000000000s' % {'a': 1} }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 10**9) }}",
        "{{ 'a\n' | indent(10**9) }}",
        "{{ '\t'.expandtabs(10**9) }}",
        "{{ (5).to_bytes(10**9, 'big') }}",
        "{{ 3 | round(-10**9) }}",
        "{{ [1] | batch(10**9, 0) | list }}",
        "{{ [1] | slice(10**9) | list }}",
        LONG + "{{ x.replace('a', x) }}",
        LONG + "{{ x | replace('a', x) }}",
        LONG + "{{ x.join(range(10000) | map('string')) }}",
        LONG + "{{ range(10000) | map('string') | join(x) }}",
        LONG + "{{ x.strip(x) }}",
        LONG + "{{ x.translate({97: x}) }}",
        LONG + "{{ ([1] * 100) | tojson(separators=(x, x)) }}",
        LONG + "{% for i in range(10000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
        LONG + "{% for i in range(10000) %}{% set y = x.find('b') %}{% endfor %}",
        LONG + "{% for i in range(10000) %}{% set y = x[1:] %}{% endfor %}",
        "{% set x = '{0}' * 10000 %}{{ x.format('a' * 10000) }}",
        "{% set x = '%(a)s' * 10000 %}{{ x % {'a': 'b' * 10000} }}",
        "{{ ([[1]] * 10000) | sum(start=[]) }}",
        "{{ strftime_now('%c' * 10000) }}",
        "{% set x = [-(10**15)] | map(' step') | list %}{{ 'a' * 10**10 }}",
        NUMBERS + "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        NUMBERS + "{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}",
        NUMBERS + "{% for a in r %}" + "text " * 1000 + "{% endfor %}",
        "{{ dict.fromkeys(range(0, 4000 * P, P)) }}".replace("P", P),
        "{{ {}.fromkeys(range(0, 4000 * P, P)) }}".replace("P", P),
        "{{ range(0, 4000 * P, P) | unique | length }}".replace("P", P),
        "{{ dict(range(0, 4000 * P, P) | batch(1)) }}".replace("P", P),
        KEYS + LOOP + "d.get(-1) %}{% endfor %}",
        KEYS + LOOP + f"d[900 * {P}] %}}{{% endfor %}}",
        KEYS + LOOP + "-1 in d %}{% endfor %}",
        KEYS + LOOP + "d.keys() == d.keys() %}{% endfor %}",
        KEYS + LOOP + "d.keys().isdisjoint(p) %}{% endfor %}",
        LOOP + "{" + ", ".join(f"{i}: 1" for i in range(300)) + "} %}{% endfor %}",
        HIDDEN + "{{ [ns] | unique(attribute='t') }}",
        HIDDEN + "{{ [ns, ns] | sort(attribute='x') }}",
        HIDDEN + "{{ [ns] | join(attribute='x') }}",
        HIDDEN + "{{ {1: ns.x}.items().isdisjoint({1: [ns.x]}.items()) }}",
        "{% for i in [1] %}" + HIDDEN + "{{ loop.changed(ns.x) }}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ [ns] | map(attribute='a.' * 10000) }}",
        "{% set n = namespace() %}{% set n.a = n %}{% set f = '{0' + '.a' * 10000 + '}' %}{{ f.format(n) }}",
        "{{ ([['a' * 1000]] * 100) | sort(attribute='0,' * 100) }}",
        "{{ ([1] * 1000) | groupby('a', default='a' * 10000) }}",
        *(LONG + LOOP + f"x | {name} %}}{{% endfor %}}" for name in ("max", "unique", "reject", "wordcount")),
        LONG + "{{ x.rfind('ab' + x) }}",
        LONG + "{{ x.encode('punycode') }}",
        LONG + "{{ (x | safe).striptags() }}",
        NUMBERS + LOOP + "loop.cycle(*r) %}{% endfor %}",
        LOOP + "[" + "q, " * 1000 + "] %}{% endfor %}",
        "{% macro f() %}" + "{% set y = 1 %}" * 1000 + "{% endmacro %}" + LOOP + "f() %}{% endfor %}",
        *(DEEP + f"{{{{ ns.x | {name} }}}}" for name in ("tojson(indent=16)", "pprint")),
        "{{ '%1000000000d' is odd }}",
        "{{ '%1000000000d' is divisibleby(3) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    ],
)
def test_work_is_bounded(template):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="does more work than is allowed"):
        render_text(template, max_characters=40_000)


@pytest.mark.parametrize("start", [KEYS, LONG, NUMBERS, DEEP, HIDDEN])
def test_attacks_begin_within_the_limit(start):
    render_text(start + LOOP + "1 %}{% endfor %}", max_characters=40_000)


def test_ordinary_arithmetic():
    assert render_text(
        "{{ 2 ** 5000 % 7 }} {{ 1700000000 | round }} {{ 2.345 | round(2) }} {{ -3 // 2 }}"
    ) == ("4 1700000000 2.35 -2")


def test_limit_can_be_raised():
    template = "{{ 'a' * 1000 }}"
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"writes more than 999 .* pass a larger max_characters"
    ):
        render_text(template, max_characters=999)
    assert render_text(template, max_characters=1000) == "a" * 1000
    for wrong in (0, "x"):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="max_characters must be"):
            render_text(template, max_characters=wrong)


def test_long_conversations_are_far_from_the_limit(monkeypatch):
    """A thousand turns of a kilobyte take less than a tenth of the default budget."""
    spent = []
    spend = Budget.spend
    monkeypatch.setattr(Budget, "spend", lambda self, units: spent.append(units) or spend(self, units))
    template = (
        "{% for m in messages %}{% if loop.index0 != messages | length - 1 and '</think>' in m.content %}"
        "{% set c = m.content.split('</think>')[-1].lstrip('\n') %}{% else %}{% set c = m.content | trim %}"
        "{% endif %}{{ '<' + m.role + '>' + c ~ '\n' }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "a" * 1000}] * 1000
    tokjax.encode_chat(tokjax.byte_level(), messages, template, mask=False)
    assert sum(spent) / 2 < 32 * 2**22 / 10  # it is rendered twice


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ 'a' | urlize }}", "No filter named 'urlize'"),
        ("{{ [[1]] | tojson(indent=17) }}", "tojson indents by at most 16, not 17"),
        ("{{ namespace(__init__=1) }}", "SecurityError: a namespace can't hold '__init__'"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", "SecurityError: a namespace can't hold '_x'"),
        ("{{ " + "(" * 999 + "1" + ")" * 999 + " }}", "is not a valid Jinja template"),
        ("{% for a in [1] %}" * 40 + "{% endfor %}" * 40, "is not a valid Jinja template: too many"),
        ("{{ a }}" * 6000, "more than 12,000 names, operators"),
        ("{% if a %}" + "{% elif a %}" * 2900 + "{% endif %}", "an if has too many elif"),
        (
            "{% for a in b %}"
            + "".join(f"{{% set a{i} = 1 %}}" for i in range(400))
            + "{% include a %}" * 400
            + "{% endfor %}",
            "its Python code has more than 2,000,000 characters",
        ),
        ("{{ {}.keys() - [1] }}", "TypeError: the operator - does not make sets; use lists"),
        (
            "{% for a in [1, 2] %}{{ dict.fromkeys(loop) }}{% endfor %}",
            "TypeError: the variable 'loop' can't",
        ),
        ("{{ 'a' | round(9, 'ceil') }}", "TypeError: round needs a number, not str"),
        ("a" * 1_000_001, "has 1000001 characters; templates have at most 1000000"),
    ],
)
def test_removed_features(template, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        render_text(template)


def test_namespace_repr_hides_its_contents():
    assert render_text("{% set ns = namespace(x=1) %}{% set ns.y = ns %}{{ ns }}{{ ns.x }}") == "<namespace>1"


def test_many_sources_have_a_cost():
    template = (
        "{% set ns = namespace(x='') %}{% for i in range(1000) %}{% set ns.x = ns.x ~ '-' ~ m %}{% endfor %}"
    )
    template = template.replace("m %}", "messages[0].content %}") + "{{ ns.x }}"
    messages = [{"role": "user", "content": "hi"}]
    options = {"max_characters": 200_000}
    assert (
        len(tokjax.encode_chat(tokjax.byte_level(), messages, template, mask=False, **options).text) == 3000
    )
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="does more work than is allowed"):
        tokjax.encode_chat(tokjax.byte_level(), messages, template, **options)
