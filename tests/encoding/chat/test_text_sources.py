"""Tests that `SourcedText` behaves as `str` does, and gives each character the source that it had."""

import json
from functools import partial

import jinja2.filters
import pytest
from hypothesis import given, strategies as st

from tokjax.encoding.chat.text_sources import (
    Source,
    SourcedText,
    Tracker,
    attach,
    concatenate,
    format_percent,
    indent,
    mark,
    to_json,
    to_text,
    tracker_var,
)

CHARACTERS = "aab  \n\r\t\u2003ßé中👍"
TRACKER = Tracker()
texts = st.text(CHARACTERS, max_size=12)
short_texts = st.text(CHARACTERS, min_size=1, max_size=2)
limits = st.integers(-1, 4)
positions = st.integers(-14, 14) | st.none()


@pytest.fixture(scope="module", autouse=True)
def tracker():
    token = tracker_var.set(TRACKER)
    yield TRACKER
    tracker_var.reset(token)


def make_text(text, i):
    """Gives a text the source of a message."""
    return attach(text, TRACKER.get_code(Source(i, "content")))


def number(text, first=0):
    """Gives each character its own source: its position."""
    numbered = make_text("", first)
    for i, char in enumerate(text):
        numbered += make_text(char, first + i)
    return numbered


def get_numbers(text):
    """Returns the source of each character as a number."""
    return [source.message for start, stop, source in TRACKER.list_runs(text) for _ in range(start, stop)]


def get_errors(text):
    return {source.lost_by for *_, source in TRACKER.list_runs(text)}


def check_parts(parts, text, spans):
    """Checks that parts of a numbered text are at these spans."""
    assert [str.__str__(part) for part in parts] == [text[start:stop] for start, stop in spans]
    assert [get_numbers(part) for part in parts] == [list(range(start, stop)) for start, stop in spans]


def find_parts(text, sep, maxsplit):
    """Returns the spans of `text.split(sep, maxsplit)`, found one character at a time."""
    spans, start, i = [], 0, 0
    if sep is not None:
        while i <= len(text) - len(sep) and maxsplit != len(spans):
            if text[i : i + len(sep)] == sep:
                spans.append((start, i))
                start = i = i + len(sep)
            else:
                i += 1
        return [*spans, (start, len(text))]
    while i < len(text):
        if text[i].isspace():
            i += 1
        elif len(spans) == maxsplit:
            return [*spans, (i, len(text))]
        else:
            start = i
            while i < len(text) and not text[i].isspace():
                i += 1
            spans.append((start, i))
    return spans


def find_stripped(text, chars, left=True, right=True):
    start, stop = 0, len(text)
    while left and start < stop and (text[start].isspace() if chars is None else text[start] in chars):
        start += 1
    while right and start < stop and (text[stop - 1].isspace() if chars is None else text[stop - 1] in chars):
        stop -= 1
    return start, stop


@given(text=texts, start=positions, stop=positions, step=st.integers(-3, 3).filter(bool) | st.none())
def test_slices(text, start, stop, step):
    key = slice(start, stop, step)
    sliced = number(text)[key]
    assert sliced == text[key]
    assert get_numbers(sliced) == list(range(len(text)))[key]


@given(text=texts)
def test_characters(text):
    spans = [(i, i + 1) for i in range(len(text))]
    check_parts(list(number(text)), text, spans)
    check_parts([number(text)[i - len(text)] for i in range(len(text))], text, spans)


@given(text=texts, chars=st.none() | short_texts)
def test_strip(text, chars):
    numbered = number(text)
    for name, left, right in (("strip", True, True), ("lstrip", True, False), ("rstrip", False, True)):
        assert getattr(numbered, name)(chars) == getattr(text, name)(chars)
        check_parts([getattr(numbered, name)(chars)], text, [find_stripped(text, chars, left, right)])


@given(text=texts.filter(bool), sep=st.none() | short_texts, maxsplit=limits)
def test_split(text, sep, maxsplit):
    parts = number(text).split(sep, maxsplit)
    assert parts == text.split(sep, maxsplit)
    check_parts(parts, text, find_parts(text, sep, maxsplit))
    # From the right, it is the same with everything reversed.
    parts = number(text).rsplit(sep, maxsplit)
    assert parts == text.rsplit(sep, maxsplit)
    spans = find_parts(text[::-1], sep and sep[::-1], maxsplit)
    check_parts(parts, text, [(len(text) - stop, len(text) - start) for start, stop in reversed(spans)])


@given(text=texts.filter(bool), sep=short_texts, keepends=st.booleans())
def test_partitions_and_lines(text, sep, keepends):
    for name in ("partition", "rpartition"):
        parts = getattr(number(text), name)(sep)
        assert parts == getattr(text, name)(sep)
        bounds = [0, len(parts[0]), len(parts[0]) + len(parts[1]), len(text)]
        check_parts(parts, text, list(zip(bounds, bounds[1:], strict=False)))
    lines = number(text).splitlines(keepends)
    assert lines == text.splitlines(keepends)
    starts = [0]
    for line in text.splitlines(True):
        starts.append(starts[-1] + len(line))
    check_parts(lines, text, [(start, start + len(line)) for start, line in zip(starts, lines, strict=False)])


@given(text=texts.filter(bool), old=short_texts, new=texts, count=limits)
def test_replace(text, old, new, count):
    spans = find_parts(text, old, count)
    for replacement in (new, number(new, 100)):
        replaced = number(text).replace(old, replacement, count)
        assert replaced == text.replace(old, new, count)
        expected = list(range(*spans[0]))
        for (_, end), (start, stop) in zip(spans, spans[1:], strict=False):
            is_sourced = isinstance(replacement, SourcedText)
            expected += [100 + i if is_sourced else end for i in range(len(new))]
            expected += range(start, stop)
        assert get_numbers(replaced) == expected


@given(text=texts.filter(bool), prefix=short_texts)
def test_prefixes(text, prefix):
    for name in ("removeprefix", "removesuffix"):
        cut = getattr(text, name)(prefix)
        start = len(text) - len(cut) if name == "removeprefix" else 0
        assert getattr(number(text), name)(prefix) == cut
        check_parts([getattr(number(text), name)(prefix)], text, [(start, start + len(cut))])


@given(first=texts, second=texts, count=st.integers(-1, 3))
def test_concatenation(first, second, count):
    a, b = number(first), number(second, 100)
    numbers = get_numbers(a), get_numbers(b)
    assert a + b == first + second
    assert get_numbers(a + b) == [*numbers[0], *numbers[1]]
    assert a * count == count * a == first * count
    assert get_numbers(a * count) == numbers[0] * max(count, 0)
    joined = a.join([second, b, b])
    assert joined == first.join([second] * 3)
    assert get_numbers(joined) == [*[-1] * len(second), *numbers[0], *numbers[1], *numbers[0], *numbers[1]]
    assert get_numbers(second + a) == [*[-1] * len(second), *numbers[0]]


@given(text=texts.filter(bool))
def test_changed_characters(text):
    for name in ("lower", "upper", "title", "capitalize"):
        changed, uniform = (getattr(made, name)() for made in (number(text), make_text(text, 7)))
        expected = getattr(text, name)()
        assert changed == uniform == expected
        assert set(get_numbers(uniform)) == {7}
        if len(expected) == len(text):
            assert get_numbers(changed) == list(range(len(text)))
        elif len(text) > 1:
            assert get_errors(changed) == {f"the method {name!r}"}


@given(
    text=st.text(CHARACTERS + "\x0b\u2028", max_size=9),
    width=st.integers(-1, 3) | st.just("ab"),
    first=st.booleans(),
    blank=st.booleans(),
)
def test_indent(text, width, first, blank):
    expected = jinja2.filters.do_indent(text, width, first, blank)
    made = indent(number(text), width, first, blank)
    assert indent(text, width, first, blank) == made == expected
    numbers = [one for one in get_numbers(made) if one >= 0]
    assert numbers == sorted(numbers)


values = st.recursive(
    st.text(CHARACTERS + '"\\/', max_size=4)
    | st.integers(-5, 5)
    | st.booleans()
    | st.none()
    | st.floats(-2, 2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abé", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=values, other=values, is_ascii=st.booleans(), width=st.none() | st.integers(0, 2))
def test_json(value, other, is_ascii, width):
    dump = partial(json.dumps, ensure_ascii=is_ascii, indent=width)
    (message,) = TRACKER.add_sources([{"role": "assistant", "content": value, "tool_calls": other}])
    for copy in (message, message["content"], message["tool_calls"]):
        assert to_json(copy, dump) == dump(copy)
    made = to_json({"x": message["content"], "y": [message["tool_calls"], "text"]}, dump)
    assert made == dump({"x": value, "y": [other, "text"]})
    assert get_errors(made) == {""}


def test_json_of_several_sources():
    made = to_json({"k": [make_text('é"', 1), make_text("👍", 2), make_text(7, 3)]}, json.dumps)
    assert made == r'{"k": ["\u00e9\"", "\ud83d\udc4d", 7]}'
    assert [(made[start:stop], source.message) for start, stop, source in TRACKER.list_runs(made)] == [
        ('{"k": ["', -1),
        (r"\u00e9\"", 1),
        ('", "', -1),
        (r"\ud83d\udc4d", 2),
        ('", ', -1),
        ("7", 3),
        ("]}", -1),
    ]


def test_percent_formats():
    a = make_text("a", 1)
    assert get_numbers(format_percent("<%s%%%s>", (a, 3))) == [-1, 1, -1, -1, -1]
    assert format_percent("%3s|%d", (a, 3)) == "  a|3"
    assert get_numbers(format_percent("%3s", a)) == [1, 1, 1]
    with pytest.raises(TypeError):
        format_percent("%s%s", (a,))


def test_numbers_and_lists():
    (message,) = TRACKER.add_sources([{"role": "tool", "content": [1, 2.5, True, {"text": "a"}]}])
    one, half, flag, part = message["content"]
    assert (str(one), str(half), flag) == ("1", "2.5", True)
    assert {source.field for *_, source in TRACKER.list_runs(str(half))} == {"tool_result"}
    assert get_numbers(to_text([part["text"]])) == [0] * len("['a']")
    assert get_errors(to_text([part["text"], make_text("b", 3)])) == {"the text of a list or mapping"}


def test_plain_text_without_a_tracker():
    token = tracker_var.set(None)
    assert type(concatenate(["a", "b"])) is str
    assert type(mark("ab", make_text("a", 0), "f")) is str
    tracker_var.reset(token)
