"""Tests of the limits on time, memory and output of chat templates, which are untrusted."""

import sys

import pytest

import tokjax
from tokjax.encoding.chat.chat_template import ChatTemplate
from tokjax.encoding.chat.template_limits import WORK_PER_CHARACTER, Budget

MESSAGES = [{"role": "user", "content": ""}]
GROWN = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = "
NESTED = "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
TUPLES = NESTED.replace("[1]", "(1,)").replace("[ns.x, ns.x]", "(ns.x, ns.x)")
DEEP = "{% set ns = namespace(x=[1] * 1000) %}{% for i in range(60) %}{% set ns.x = [ns.x] %}{% endfor %}"
LOOP = "{% for i in range(1000) %}{% set y = "
LONG = "{% set x = 'a' * 5000 %}"
NUMBERS = "{% set r = range(10000) %}"


def render_text(template, **options):
    return tokjax.encode_chat(tokjax.byte_level(), MESSAGES, template, mask=False, **options).text


@pytest.mark.parametrize(
    "template",
    [
        # integers
        "{{ 10**(10**9) }}",
        "{{ 9 ** 2000 * 9 ** 2000 }}",
        "{{ ('f' * 4000) | int(base=16) % 2 }}",
        LOOP + "3 ** 4900 %}{% endfor %}",
        "{% set a = 3 ** 4900 %}{% set b = 3 ** 2400 %}" + LOOP + "a // b %}{% endfor %}",
        # copies
        "{{ 'a' * 10**10 }}",
        "{% set f = '%' * 300000 %}{{ f % 1 }}",
        "{{ ('}}' * 100000).format() }}",
        "{{ ('\"' * 300000) | e }}",
        "{{ [0] * 10**10 }}",
        GROWN + "ns.x ~ ns.x %}{% endfor %}",
        GROWN + "ns.x + ns.x %}{% endfor %}",
        GROWN.removesuffix("= ") + "%}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
        LONG + LOOP + "x[1:] %}{% endfor %}",
        # lists that are small in memory, but large as text
        NESTED + "{{ ns.x }}",
        NESTED + "{{ ns.x ~ 1 }}",
        NESTED + "{{ ns.x | tojson }}",
        NESTED + "{{ ns.x == ns.x[1:] }}",
        NESTED + "{{ [1] in ns.x }}",
        NESTED + "{{ '%s' % ns.x }}",
        NESTED + "{{ '{}'.format(ns.x) }}",
        NESTED + "{{ raise_exception(ns.x) }}",
        NESTED + "{{ [{'a': ns.x}] | sort(attribute='a') }}",
        TUPLES + "{{ {}.get(ns.x) }}",
        TUPLES + "{{ {}[ns.x] }}",
        TUPLES + "{{ ns.x in {} }}",
        # products
        LONG + "{{ range(10000) | map('string') | join(x) }}",
        LONG + "{{ x | indent(10**9) }}",
        LONG + "{{ x | replace('a', x) }}",
        LONG + "{% set f = '%s' * 5000 %}{{ f % ([x] * 5000) }}",
        LONG + "{{ ('{0}' * 5000).format(x) }}",
        LONG + "{{ [x] | sort(attribute='0,' * 1000) }}",
        DEEP + "{{ ns.x | tojson(indent=16) }}",
        "{{ strftime_now('%c' * 10000) }}",
        # searches
        LONG + LOOP + "x.rfind('b' + x) %}{% endfor %}",
        LONG + LOOP + "'ab' in x %}{% endfor %}",
        LONG + LOOP + "x.split('a') %}{% endfor %}",
        LONG + LOOP + "x | trim(x) %}{% endfor %}",
        # reading
        LONG + LOOP + "x | upper %}{% endfor %}",
        LONG + LOOP + "x == x %}{% endfor %}",
        LONG + LOOP + "x | title %}{% endfor %}",
        NUMBERS + LOOP + "r | list %}{% endfor %}",
        NUMBERS + LOOP + "i in r %}{% endfor %}",
        NUMBERS + LOOP + "loop.cycle(*r) %}{% endfor %}",
        # statements
        NUMBERS + "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        NUMBERS + "{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}",
        LOOP + "1 %}" + "text " * 1000 + "{% endfor %}",
        LOOP + "[" + "q, " * 1000 + "] %}{% endfor %}",
        LOOP + "{" + ", ".join(f"{i}: 1" for i in range(300)) + "} %}{% endfor %}",
        "{% macro f() %}" + "{% set y = 1 %}" * 1000 + "{% endmacro %}" + LOOP + "f() %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        "{% set x = [-(10**15)] | map(' step') | list %}{{ 'a' * 10**10 }}",
    ],
)
def test_work_is_bounded(template):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="does more work than is allowed"):
        render_text(template, max_characters=40_000)


@pytest.mark.parametrize("start", [NESTED, TUPLES, LONG, NUMBERS, DEEP])
def test_attacks_begin_within_the_limit(start):
    render_text(start + LOOP + "1 %}{% endfor %}", max_characters=40_000)


def test_lists_that_share_elements_are_read_once():
    shared = (
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
    )
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="keys of mappings are .*, not a list"):
        render_text(shared + "{{ {ns.x: 1} }}")
    shared += "{{ messages[0].content }}{% set y = ns.x * messages[0].content.count('h') %}"
    messages = [{"role": "user", "content": "hi"}]
    assert tokjax.encode_chat(tokjax.byte_level(), messages, shared).text == "hi"


def test_renderings_of_a_conversation_share_a_budget():
    """A mask needs many renderings of shorter conversations if all turns begin with different texts."""
    template = (
        "{% for m in messages %}<{{ loop.index }}>{{ m.content }}{% endfor %}" + LOOP + "1 %}{% endfor %}"
    )
    messages = [{"role": role, "content": "hi"} for role in ("user", "assistant") * 9]
    for options in ({"mask": False, "max_characters": 18_000}, {"max_characters": 150_000}):
        assert tokjax.encode_chat(tokjax.byte_level(), messages, template, **options).text
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="does more work than is allowed"):
        tokjax.encode_chat(tokjax.byte_level(), messages, template, max_characters=18_000)


def test_long_conversations_without_prompts_are_rendered_a_few_times(monkeypatch):
    """The generation prompt of a template that has none is rendered once, and not for each answer."""
    rendered = []
    render = ChatTemplate.render
    monkeypatch.setattr(ChatTemplate, "render", lambda *args: rendered.append(1) or render(*args))
    messages = [{"role": role, "content": "hi"} for role in ("user", "assistant") * 100]
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    tokjax.encode_chat(tokjax.byte_level(), messages, template)
    assert len(rendered) < 10


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
    """A thousand turns of a kilobyte take less than an eighth of the default budget."""
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
    assert sum(spent) / 2 < WORK_PER_CHARACTER * 2**22 / 8  # it is rendered twice


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ 'a' | urlize }}", "No filter named 'urlize'.*has: count, d, .*unique"),
        ("{{ 'a' is odd2 }}", "No test named 'odd2'.*has: boolean, "),
        ("{{ [1] | map('center') }}", "No filter named 'center'"),
        ("{{ 'a'.encode() }}", "str has no 'encode' that a chat template may use; the methods are: items, "),
        ("{{ [].append(1) }}", "list has no 'append'"),
        ("{{ dict.fromkeys([1]) }}", "function object' has no attribute 'fromkeys'"),
        ("{{ (1).to_bytes(9) }}", "int has no 'to_bytes'"),
        ("{{ dict([(1, 2)]) }}", r"need a mapping, or values with names, such as dict\(a=1\)"),
        ("{{ {65536: 1} }}", "keys of mappings are strings, or integers below 65,536, not 65536"),
        ("{{ {(1,): 1} }}", r"keys of mappings are strings, .* not a tuple"),
        ("{{ [1] | unique }}", "unique needs a list of strings"),
        ("{{ '%9999d' % 1 }}", "widths of the operator % and the filter 'format' have at most three digits"),
        ("{{ '%*d' | format(1, 1) }}", "have at most three digits"),
        ("{{ '{:>4}'.format(1) }}", "str.format has fields such as {}, .* and no others"),
        ("{{ '%d' is odd }}", "abs, odd, even and divisibleby need numbers"),
        ("{{ namespace() }}", "a _ChatNamespace can't be written, compared or searched"),
        ("{% for a in [1] %}{{ loop | list }}{% endfor %}", "the variable 'loop' is not a list"),
        ("{{ 1 < 2 in [3] }}", "'in' can't be combined with other comparisons"),
        ("{% include 'a' %}", "a chat template can't use the statement 'include'"),
        ("{% block a %}{% endblock %}", "can't use the statement 'block'"),
        ("{% autoescape true %}{% endautoescape %}", "can't use the statement 'autoescape'"),
        ("{{ namespace(__init__=1) }}", "SecurityError: a namespace can't hold '__init__'"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", "SecurityError: a namespace can't hold '_x'"),
        ("{{ " + "(" * 999 + "1" + ")" * 999 + " }}", "is not a valid Jinja template"),
        ("{% for a in [1] %}" * 40 + "{% endfor %}" * 40, "is not a valid Jinja template: too many"),
        ("{{ a }}" * 6000, "more than 12,000 names, operators"),
        ("{{ {}.keys() - [1] }}", "TypeError: the operator - does not make sets; use lists"),
        ("a" * 1_000_001, "has 1000001 characters; templates have at most 1000000"),
    ],
)
def test_removed_features(template, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        render_text(template)


def test_many_branches():
    """The parser of Python 3.11 raises a bare MemoryError; that of newer versions has no such limit."""
    template = "{% if a %}" + "{% elif a %}" * 2900 + "{% endif %}"
    if sys.version_info >= (3, 12):
        assert render_text(template) == ""
    else:
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="an if has too many elif"):
            render_text(template)


def test_sources_have_a_cost():
    """It also bounds the lists of runs that are made of the output."""
    messages = [{"role": "user", "content": "a" * 2000}]
    joined = "{{ '-'.join(messages[0].content) }}"
    assert tokjax.encode_chat(tokjax.byte_level(), messages, joined, max_characters=100_000).text
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="does more work than is allowed"):
        tokjax.encode_chat(tokjax.byte_level(), messages, joined, max_characters=30_000)


def test_errors_do_not_keep_the_values_of_a_template():
    template = "{% set x = 'a' * 1000000 %}{{ raise_exception('no') }}"
    with pytest.raises(tokjax.errors.InvalidArgumentError) as error:
        render_text(template)
    traceback, sizes = error.value.__cause__.__traceback__, []
    while traceback:
        sizes += [len(value) for value in traceback.tb_frame.f_locals.values() if isinstance(value, str)]
        traceback = traceback.tb_next
    assert max(sizes, default=0) < 1000
