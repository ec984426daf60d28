r"""Text that knows which field of which message each of its characters is from.

While a template is rendered, the strings of the messages are `SourcedText`: a `str` with a second string of
the same length, which has the code of a `Source` for each character. Methods and operators do the same with
both strings:

    content                    " low. "      codes "222222"      2: messages[1], content
    content | trim             "low."              "2222"
    "A: " + (content | trim)   "A: low."           "1112222"     1: scaffold

Text that the template itself writes is scaffold. It belongs to the message of the innermost loop over
messages that is running (`Tracker`). Names, keys, and the text of all numbers and of `True`, `False` and
`None` are scaffold, too, but foreign: they are not the template's own. A function that makes a new text of
texts of different sources, such as the filter `title`, loses them: `Source.lost_by` names it.
"""
# ruff: noqa: D102, D105 (the methods of `SourcedText` are those of `str`)

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Collection
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.encoding.chat.messages import (
    OWN_KEYS,
    PLAIN_KEYS,
    REASONING_KEYS,
    ROLES,
    TOOL_CALL_KEYS,
    TOOL_ROLES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_CONVERSION = re.compile(r"%(?:\((.*?)\))?[^a-zA-Z%]*[hlL]?[a-zA-Z%]")
"""Matches a `%` conversion; its group is the key of a mapping."""
_SOURCE = 64
"""Cost of a source, in units of the template's budget."""
_READ = 32
"""Cost of an element of a list whose sources are read."""
_ELEMENT = 2048
"""Cost of an element that is converted to JSON with sources."""
_RUN = 256
"""Cost of a run of characters in the output, of which several lists are made."""
_FIELDS = {
    "content": "content",
    **dict.fromkeys(REASONING_KEYS, "reasoning"),
    **dict.fromkeys(TOOL_CALL_KEYS, "tool_call"),
}
_STRIPPING = ("lstrip", "rstrip", "strip", "removesuffix")
"""Methods that return a part of a text, which is the first such part of it."""
_FOREIGN = "\0"
"""Code of foreign text before it is concatenated to other text, and then belongs to the current message."""
_OUTSIDE = "\1"
"""Code of scaffold outside the messages."""


class Source(NamedTuple):
    """Origin of a character.

    Attributes:
        message: index of the message; -1 for text outside the messages.
        field: `"scaffold"`, `"content"`, `"reasoning"`, `"tool_call"` or `"tool_result"`.
        is_foreign: whether it is, or may be, from names, keys or values of messages, tools or documents.
        lost_by: the function that lost the sources of the text; empty if they are known.
        is_generated: whether it is in a `{% generation %}` block.
    """

    message: int
    field: str
    is_foreign: bool = False
    lost_by: str = ""
    is_generated: bool = False


SourceRun = tuple[int, int, Source]
"""Start and stop of a run of characters, and their source."""


class _Variant(NamedTuple):
    """Scaffold of a step of a loop whose message is not known yet, or a source with other properties.

    Attributes:
        code: code of the scaffold of the loop around it, or of the source.
        is_foreign: whether it is foreign.
        is_generated: whether it is in a `{% generation %}` block.
    """

    code: str
    is_foreign: bool = False
    is_generated: bool = False


class _Loop(NamedTuple):
    """State of a loop: the code of its scaffold, and how the step refers to messages."""

    scaffold: str
    is_in_message: bool = False
    item: int = -1  # of a loop over indices
    has_read_item: bool = False


class Tracker:
    """State of a rendering with sources: the sources, and the messages of the loops that are running.

    Args:
        answers: indices of the messages of the assistant.

    Attributes:
        spend: function that spends units of the template's budget.
        has_markup: whether a filter has made HTML, which escapes the texts that are added to it.
    """

    def __init__(self, answers: Collection[int] = ()) -> None:
        self._answers = answers
        self.spend: Callable[[int], None] = lambda _: None
        self.has_markup = False
        self._sources: list[Source | _Variant] = []
        self._codes: dict[Source | _Variant, str] = {}
        self._add(Source(-1, "scaffold", is_foreign=True))  # _FOREIGN
        self.get_code(Source(-1, "scaffold"))  # _OUTSIDE
        self._loop = _Loop(_OUTSIDE)
        self._outer_loops: list[_Loop] = []
        self._has_calls = False

    @property
    def scaffold(self) -> str:
        """Code of the text that the template itself writes now."""
        return self._loop.scaffold

    def _add(self, source: Source | _Variant) -> str:
        self.spend(_SOURCE)
        self._sources.append(source)
        return chr(len(self._sources) - 1)

    def get_code(self, source: Source | _Variant) -> str:
        """Returns the code of a source."""
        if source not in self._codes:
            self._codes[source] = self._add(source)
        return self._codes[source]

    def get_source(self, code: str) -> Source:
        """Returns the source of a code."""
        source = self._sources[ord(code)]
        if isinstance(source, Source):
            return source
        inner = self.get_source(source.code)
        return inner._replace(
            is_foreign=inner.is_foreign or source.is_foreign,
            is_generated=inner.is_generated or source.is_generated,
        )

    def get_codes(self, text: str) -> str:
        """Returns the codes of a text that is concatenated to others, or written, now."""
        if not isinstance(text, SourcedText):
            return self.scaffold * len(text)
        if text._codes[:1] == _FOREIGN:  # such text has no other codes
            return self.get_code(_Variant(self.scaffold, is_foreign=True)) * len(text)
        return text._codes

    def mark_generated(self, text: str) -> SourcedText:
        """Returns the text of a `{% generation %}` block with sources."""
        codes = self.get_codes(text)
        variants = {ord(code): self.get_code(_Variant(code, is_generated=True)) for code in set(codes)}
        return _make(text, codes.translate(variants))

    def merge(self, codes: set[str], function: str) -> str:
        """Returns the code of a value that a function made of values with these codes, of which it names one.

        Args:
            codes: the codes, at least one.
            function: the function, which loses the sources if there are several.
        """
        if len(codes) == 1:
            return next(iter(codes))
        sources = {self.get_source(code) for code in codes - {_FOREIGN}}
        is_foreign = _FOREIGN in codes or any(source.is_foreign for source in sources)
        first, *others = {source._replace(is_foreign=False) for source in sources}
        lost_by = function if others else first.lost_by
        return self.get_code(first._replace(is_foreign=is_foreign, lost_by=lost_by))

    def enter_loop(self) -> None:
        """Begins a loop."""
        self._outer_loops.append(self._loop)

    def leave_loop(self) -> None:
        """Ends the innermost loop."""
        self._loop = self._outer_loops.pop()

    def step(self, item: Any) -> None:
        """Begins a step of the innermost loop. Its text belongs to `item` if that is a message."""
        if isinstance(item, SourcedMessage):
            self._loop = _Loop(self.get_code(Source(item._index, "scaffold")), is_in_message=True)
        elif type(item) is int:  # a loop over indices of messages
            outer, scaffold = self._outer_loops[-1].scaffold, self.scaffold
            if self.get_source(outer).message < 0:  # `note_access` finds out the message
                scaffold = self._add(_Variant(outer))
            self._loop = _Loop(scaffold, item=item)

    def note_access(self, message: SourcedMessage, key: Any) -> None:
        """Makes a message the current one in a loop over indices, where the template reads `messages[i]`.

        After it, `messages[i + 1].role` is only a condition, but `messages[i + 1].content` is written.
        """
        loop = self._loop
        if not self._outer_loops or loop.is_in_message:
            return
        is_item = message._index == loop.item
        if is_item or not loop.has_read_item or key in OWN_KEYS:
            source = Source(message._index, "scaffold")
            if isinstance(self._sources[ord(loop.scaffold)], _Variant):
                self._sources[ord(loop.scaffold)] = source
            self._loop = loop._replace(scaffold=self.get_code(source), has_read_item=is_item)

    def write(self, text: str) -> SourcedText:
        """Returns a text that the template writes now, with sources.

        Text of a tool call is scaffold where the template writes another message: for example, the name of
        the function in front of the result.
        """
        codes = self.get_codes(text)
        current = self.get_source(self.scaffold).message
        for code in set(codes) if current >= 0 and self._has_calls else ():
            source = self.get_source(code)
            is_call = source.field == "tool_call" and source.message in self._answers
            if is_call and source.message != current and not source.lost_by:
                codes = codes.replace(code, self.get_code(_Variant(self.scaffold, is_foreign=True)))
        return _make(text, codes)

    def list_runs(self, text: str) -> list[SourceRun]:
        """Returns the runs of a text as (start, stop, source), with character positions."""
        runs: list[SourceRun] = []
        for start, stop, code in self._iter_codes(self.get_codes(text)):
            source = self.get_source(code)
            is_same = bool(runs) and runs[-1][2] == source
            runs.append((runs.pop()[0] if is_same else start, stop, source))
        return runs

    def _iter_codes(self, codes: str) -> Iterator[tuple[int, int, str]]:
        """Iterates over the runs of equal codes."""
        numbers = np.frombuffer(codes.encode("utf-32-le", "surrogatepass"), "<u4")
        changes = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        self.spend(_RUN * len(changes))
        bounds = [0, *changes.tolist(), len(codes)] if codes else []
        return ((start, stop, codes[start]) for start, stop in pairwise(bounds))

    def change_runs(self, text: SourcedText, change: Callable[[str], str]) -> SourcedText:
        """Changes each run of a text separately."""
        runs = [
            (change(str.__getitem__(text, slice(start, stop))), code)
            for start, stop, code in self._iter_codes(text._codes)
        ]
        return _make("".join(part for part, _ in runs), "".join(code * len(part) for part, code in runs))

    def find_codes(self, value: Any) -> set[str]:
        """Returns the codes of all texts and numbers in a value. Lists that occur twice are read once.

        Numbers without a source, `None`, `True`, `False` and empty texts of messages count as foreign,
        because messages can decide which of them a value is.

        Args:
            value: strings, numbers, lists, tuples and mappings.
        """
        codes: set[str] = set()
        stack, seen = [value], dict[int, Any]()  # `seen` keeps its values alive, so that ids are not reused
        while stack:
            element = stack.pop()
            if isinstance(element, SourcedText):
                self.spend(len(element))
                codes.update(element._codes or _FOREIGN)
            elif element is None or isinstance(element, (int, float, range, SourcedDict, SourcedList)):
                codes.add(getattr(element, "_code", _FOREIGN))
            elif (
                not isinstance(element, str)  # first, since `Collection` is slow
                and isinstance(element, Collection)
                and id(element) not in seen
            ):
                seen[id(element)] = element
                inner = [*element, *(element.values() if isinstance(element, dict) else ())]
                self.spend(len(element) + _READ * len(inner))
                stack += inner
        return codes

    def add_sources(self, messages: Sequence[dict[str, Any]]) -> list[SourcedMessage]:
        """Copies messages, given as JSON data, and gives their texts sources. Known roles have none."""
        return [self._add_sources(i, message) for i, message in enumerate(messages)]

    def _add_sources(self, index: int, message: dict[str, Any]) -> SourcedMessage:
        copied = SourcedMessage()
        copied._index = index
        for key, value in message.items():
            field = _FIELDS.get(key)
            if field == "content" and message["role"] in TOOL_ROLES:
                field = "tool_result"
            code = self.get_code(Source(index, field)) if field else _FOREIGN
            self._has_calls |= field == "tool_call"
            is_plain = key == "role" and value in ROLES
            copied[attach(key, _FOREIGN)] = value if is_plain else self.copy(value, code)
        return copied

    def copy(self, value: Any, code: str = _FOREIGN, key: Any = None) -> Any:
        """Copies a part of a message, and gives its texts a source. Some parts of a content are reasoning."""
        source = self.get_source(code)
        if key in REASONING_KEYS and source.field == "content":
            code = self.get_code(source._replace(field="reasoning"))
        name_code = code if source.field == "tool_call" else _FOREIGN
        copied: Any
        if isinstance(value, dict):
            copied = SourcedDict(
                (attach(name, name_code), self.copy(inner, code, name)) for name, inner in value.items()
            )
        elif isinstance(value, list):
            copied = SourcedList(self.copy(inner, code) for inner in value)
        else:
            return attach(value, name_code if key in PLAIN_KEYS else code)
        copied._code = code
        return copied


tracker_var: ContextVar[Tracker | None] = ContextVar("tracker", default=None)
"""Tracker of the rendering in progress; `None` for a rendering without sources."""


class SourcedText(str):
    """A string with the code of a source for each character. Make one with `attach` or `concatenate`."""

    __slots__ = ("_codes",)
    _codes: str

    def __str__(self) -> str:
        return self

    def __repr__(self) -> str:
        return mark(str.__repr__(self), self, "the function repr")

    def __add__(self, other: Any) -> str:
        return concatenate((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> str:
        return concatenate((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: Any) -> str:
        return _make(str.__mul__(self, count), self._codes * count)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return format_percent(self, values)

    def __iter__(self) -> Iterator[str]:
        return map(_make, str.__iter__(self), self._codes)

    def __getitem__(self, key: Any) -> str:
        return _make(str.__getitem__(self, key), self._codes[key])

    def removeprefix(self, prefix: str, /) -> str:
        return self[len(self) - len(str.removeprefix(self, prefix)) :]

    def split(self, sep: Any = None, maxsplit: Any = -1) -> list[str]:
        return self._locate(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: Any = None, maxsplit: Any = -1) -> list[str]:
        return self._locate(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines = self._locate(str.splitlines(self, True), "")
        if keepends:
            return lines
        return [line[: len(bare)] for line, bare in zip(lines, str.splitlines(self), strict=True)]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, found, tail = self._locate(str.partition(self, sep), "")
        return head, found, tail

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, found, tail = self._locate(str.rpartition(self, sep), "")
        return head, found, tail

    def replace(self, old: Any, new: Any, count: Any = -1) -> str:
        """Replaces parts. The replacement has the source of the replaced text, unless it has its own."""
        if not old:
            return mark(str.replace(self, old, new, count), (self, new), "the method 'replace'")
        first, *others = self.split(old, count)
        pieces, position = [first], len(first)
        for part in others:
            is_sourced = isinstance(new, SourcedText)
            pieces += [new if is_sourced else attach(new, self._codes[position]), part]
            position += len(old) + len(part)
        return concatenate(pieces)

    def join(self, texts: Iterable[Any], /) -> str:
        pieces: list[Any] = []
        for text in texts:
            pieces += [self, text]
        return concatenate(pieces[1:])

    def _locate(self, pieces: Sequence[str], sep: Any) -> list[str]:
        """Returns consecutive parts of this text with their sources. `None` separates them by whitespace."""
        located: list[str] = []
        position = 0
        for piece in pieces:
            start = str.find(self, piece, position) if sep is None else position
            located.append(self[start : start + len(piece)])
            position = start + len(piece) + len(sep or "")
        return located


def _make_method(name: str) -> Callable[..., str]:
    """Makes a method that returns a part of the text, or changes characters.

    Changed texts of the same length have the same sources.
    """
    method, is_part = getattr(str, name), name in _STRIPPING

    @functools.wraps(method)
    def call(self: SourcedText, *args: Any, **options: Any) -> str:
        text: str = method(self, *args, **options)
        if is_part:
            return self._locate([text], None)[0]
        is_longer = len(text) != len(self)
        return mark(text, (self, args), f"the method {name!r}") if is_longer else _make(text, self._codes)

    return call


for _name in (*_STRIPPING, "lower", "upper", "title", "capitalize"):
    setattr(SourcedText, _name, _make_method(_name))


class SourcedInt(int):
    """An integer whose text has a source."""

    _code: str

    def __str__(self) -> str:
        return to_text(attach(int.__repr__(self), self._code))


class SourcedFloat(float):
    """A number whose text has a source."""

    _code: str

    def __str__(self) -> str:
        return to_text(attach(float.__repr__(self), self._code))


class SourcedDict(dict[Any, Any]):
    """A mapping of a message, for example a tool call. Its text as JSON has the source."""

    _code: str


class SourcedList(list[Any]):
    """A list of a message. Its text as JSON has the source."""

    _code: str


class SourcedMessage(dict[str, Any]):
    """A message whose texts have sources."""

    _index: int


for _kind in (SourcedText, SourcedInt, SourcedFloat, SourcedDict, SourcedList, SourcedMessage):
    _kind.__name__, _kind.__module__ = _kind.__bases__[0].__name__, "builtins"  # in errors of templates


def _make(text: str, codes: str) -> SourcedText:
    if tracker := tracker_var.get():
        tracker.spend(len(codes))
    made = str.__new__(SourcedText, str.__str__(text))
    made._codes = codes
    return made


def attach(value: Any, code: str) -> Any:
    """Returns a text or a number with one source, and other values as they are."""
    if isinstance(value, str):
        return _make(value, code * len(value))
    if value is None or isinstance(value, bool):
        return value
    made: Any = SourcedInt(value) if isinstance(value, int) else SourcedFloat(value)
    made._code = code
    return made


def as_sourced(value: Any) -> Any:
    """Returns a plain string as scaffold of the current message, and other values as they are."""
    tracker = tracker_var.get()
    return attach(value, tracker.scaffold) if tracker and type(value) is str else value


def concatenate(texts: Iterable[str]) -> str:
    """Concatenates texts. The result has sources if one of them has, or if a message is current."""
    pieces = list(texts)
    text = "".join(pieces)
    tracker = tracker_var.get()
    if tracker is None or (
        tracker.scaffold == _OUTSIDE and not any(isinstance(piece, SourcedText) for piece in pieces)
    ):
        return text
    return _make(text, "".join(map(tracker.get_codes, pieces)))


def to_text(value: Any) -> str:
    """Returns `str(value)` with the sources of the value."""
    return str(value) if isinstance(value, str) else mark(str(value), value, "the text of a list or mapping")


def mark(text: str, values: Any, function: str) -> str:
    """Gives a text that a function made of `values` their source.

    Args:
        text: the text. It is returned as it is if it has sources, or if the values have none.
        values: strings, numbers, lists, tuples and mappings.
        function: the function, for error messages. The source is lost if the values have several.
    """
    tracker = tracker_var.get()
    codes = None if tracker is None or isinstance(text, SourcedText) else tracker.find_codes(values)
    return _make(text, tracker.merge(codes, function) * len(text)) if tracker and codes else text


def make_plain(text: str, value: Any, function: str) -> str:
    """Returns a `Markup` that a function made of a value as a text with sources.

    It does not escape the texts that are added to it (`Tracker.has_markup`).
    """
    plain = str.__str__(text)
    is_same = isinstance(value, SourcedText) and str.__eq__(value, plain)
    return value if is_same else mark(plain, value, function)


def format_percent(form: str, values: Any) -> str:
    """Returns `form % values` with sources. `Budget.spend_on_percent` rejects widths of the form `*`."""
    if tracker_var.get() is None:
        text: str = form % values  # a `Markup` escapes the values
        return text
    text = str.__mod__(form, values)
    sourced_form = as_sourced(form)
    arguments = iter(values if isinstance(values, tuple) else (values,))
    pieces: list[str] = []
    position = 0
    for match in _CONVERSION.finditer(str.__str__(form)):
        pieces += [sourced_form[position : match.start()], sourced_form[match.start() : match.end()]]
        position, key = match.end(), match[1]
        if match[0].endswith("%"):
            pieces[-1] = pieces[-1][:1]
        else:
            value = next(arguments, "") if key is None else values[key]
            converted = str.__mod__(match[0], (value,) if key is None else values)
            is_text = match[0] in ("%s", f"%({key})s")
            pieces[-1] = to_text(value) if is_text else mark(converted, value, "the operator %")
    joined = concatenate([*pieces, sourced_form[position:]])
    return joined if str.__eq__(joined, text) else mark(text, (form, values), "the operator %")


def indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indents the lines of a text: the filter `indent`.

    Line breaks and spaces have the source of the line before them.

    Args:
        text: the text.
        width: the number of spaces, or the text, to put before each line.
        first: whether to indent the first line.
        blank: whether to indent empty lines.
    """
    space = width if isinstance(width, str) else " " * width
    line, *others = (text + "\n").splitlines()
    pieces = [space, line] if first else [line]
    for following in others:
        inserted = "\n" + (space if following or blank else "")
        last: Any = next((piece for piece in reversed(pieces) if piece), "")
        if isinstance(last, SourcedText) and not isinstance(inserted, SourcedText):
            inserted = attach(inserted, last._codes[-1])
        pieces += [inserted, following]
    return concatenate(pieces)


def to_json(value: Any, dump: Callable[[Any], str]) -> str:
    """Converts a value to JSON text with sources.

    The text of a tool call has one source, with its punctuation, and so has a value whose only other text is
    foreign. Of other values, the strings and numbers have their sources, and the punctuation is scaffold.

    Args:
        value: JSON data.
        dump: the conversion, without sources.
    """
    text = dump(value)
    tracker = tracker_var.get()
    codes = tracker.find_codes(value) if tracker else set()
    if tracker is None or len(codes) < 2:
        return mark(text, value, "tojson")
    code = tracker.merge(codes, "tojson") if len(codes - {_FOREIGN}) == 1 else ""  # of all other text
    quote = attach('"', code) if code else '"'
    name = secrets.token_hex(16)
    texts: list[str] = []

    def replace(element: Any) -> Any:
        """Puts random names in place of texts and numbers with sources."""
        tracker.spend(_ELEMENT)
        if isinstance(element, dict):
            return {replace(to_text(key)): replace(inner) for key, inner in element.items()}
        if isinstance(element, (list, tuple)):
            return [replace(inner) for inner in element]
        if isinstance(element, SourcedText) and not (code and element._codes[:1] == _FOREIGN):
            escaped = tracker.change_runs(element, lambda part: dump(part)[1:-1])
            texts.append(concatenate((quote, escaped, quote)))
        elif code or isinstance(element, str):
            return element
        else:
            texts.append(mark(dump(element), element, "tojson"))
        return f"{name}{len(texts) - 1};"

    pieces = re.split(rf'"{name}(\d+);"', dump(replace(value)))
    if code:
        pieces[::2] = [attach(piece, code) for piece in pieces[::2]]
    pieces[1::2] = [texts[int(number)] for number in pieces[1::2]]
    joined = concatenate(pieces)
    return joined if str.__eq__(joined, text) else mark(text, value, "tojson with sort_keys")
