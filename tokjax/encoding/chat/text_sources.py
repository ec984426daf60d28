r"""Text that knows which field of which message each of its characters is from.

While a template is rendered, the strings of the messages are `SourcedText`, a `str` that has a `Source` for
each run of characters. Its methods and operators keep the sources:

    content                    " low. "          6 characters from messages[1], content
    content | trim             "low."            4 characters from messages[1], content
    "A: " + (content | trim)   "A: low."         3 characters of scaffold, 4 from messages[1], content

Text that the template itself writes is scaffold. It belongs to the message of the innermost loop over
messages that is running (`Tracker`). A function that makes a new text of texts of different sources, such as
the filter `indent`, loses them: `Source.lost_by` names it.
"""
# ruff: noqa: D102, D105 (the methods of `SourcedText` are those of `str`)

from __future__ import annotations

import functools
import re
import secrets
from bisect import bisect_left, bisect_right
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from tokjax.encoding.chat.messages import (
    NAME_KEYS,
    OWN_KEYS,
    PLAIN_KEYS,
    REASONING_KEYS,
    ROLES,
    TOOL_CALL_KEYS,
    TOOL_ROLES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

_Value = TypeVar("_Value", bound="str | float")
_CONVERSION = re.compile(r"%(?:\((.*?)\))?[^a-zA-Z%]*[hlL]?[a-zA-Z%]")
"""Matches a `%` conversion; its group is the key of a mapping."""
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})
_RUN = 64
"""Cost of a run of characters, in units of the template's budget."""
_FIELDS = {
    "content": "content",
    **dict.fromkeys(REASONING_KEYS, "reasoning"),
    **dict.fromkeys(TOOL_CALL_KEYS, "tool_call"),
}
_CHANGING_METHODS = ("lower", "upper", "title", "capitalize")


class Source(NamedTuple):
    """Origin of a run of characters.

    Attributes:
        message: index of the message; -1 for text outside the messages.
        field: `"scaffold"`, `"content"`, `"reasoning"`, `"tool_call"` or `"tool_result"`.
        lost_by: the function that lost the sources of the text; empty if they are known.
    """

    message: int
    field: str
    lost_by: str = ""


class Tracker:
    """State of a rendering with sources: the messages of the loops that are running.

    Args:
        answers: indices of the messages of the assistant.
    """

    def __init__(self, answers: Collection[int] = ()) -> None:
        self._answers = answers
        self.scaffold = Source(-1, "scaffold")
        """Source of the text that the template itself writes now."""
        self.spend: Callable[[int], None] = lambda _: None
        """Function that spends units of the template's budget."""
        self._loops: list[tuple[Source, bool, int, bool]] = []
        self._is_in_message = False
        self._item = -1  # the item of a loop over indices
        self._has_read_item = False
        # Text before the first access to a message in a step over indices has a negative message, which
        # `resolve` replaces by that message, or else by the one of the loop around it.
        self._unknown: dict[int, int] = {}

    def enter_loop(self) -> None:
        """Begins a loop."""
        self._loops.append((self.scaffold, self._is_in_message, self._item, self._has_read_item))

    def step(self, item: Any) -> None:
        """Begins a step of the innermost loop. Its text belongs to `item` if that is a message."""
        if isinstance(item, SourcedMessage):
            self.scaffold = Source(item._index, "scaffold")
            self._is_in_message = True
        elif type(item) is int:  # a loop over indices of messages
            self._is_in_message = self._has_read_item = False
            self._item = item
            outer = self._loops[-1][0].message
            if outer < 0:
                self.scaffold = Source(-2 - len(self._unknown), "scaffold")
                self._unknown[self.scaffold.message] = outer

    def note_access(self, message: SourcedMessage, key: Any) -> None:
        """Makes a message the current one in a loop over indices, where the template reads `messages[i]`.

        After it, `messages[i + 1].role` is only a condition, but `messages[i + 1].content` is written.
        """
        if not self._loops or self._is_in_message:
            return
        is_item = message._index == self._item
        if is_item or not self._has_read_item or key in OWN_KEYS:
            if self.scaffold.message in self._unknown:
                self._unknown[self.scaffold.message] = message._index
            self.scaffold = Source(message._index, "scaffold")
            self._has_read_item = is_item

    def write(self, text: str) -> str:
        """Returns a text that the template writes now, with sources.

        Text of a tool call is scaffold where the template writes another message: for example, the name of
        the function in front of the result.
        """
        text = concatenate((text,))
        current = self.scaffold
        if (
            current.message < 0
            or not isinstance(text, SourcedText)
            or all(map(self._may_write, text._sources))
        ):
            return text
        return _make(
            text,
            [
                (stop - start, source if self._may_write(source) else current)
                for start, stop, source in get_runs(text)
            ],
        )

    def _may_write(self, source: Source) -> bool:
        is_call = source.field == "tool_call" and source.message in self._answers
        return bool(source.lost_by) or source.message == self.scaffold.message or not is_call

    def resolve(self, text: SourcedText) -> SourcedText:
        """Returns the rendered text with the messages that were not known when it was written."""
        if not self._unknown:
            return text
        runs = []
        for start, stop, source in get_runs(text):
            message = source.message
            while message in self._unknown:
                message = self._unknown[message]
            runs.append((stop - start, source._replace(message=message)))
        return _make(text, runs)

    def leave_loop(self) -> None:
        """Ends the innermost loop."""
        self.scaffold, self._is_in_message, self._item, self._has_read_item = self._loops.pop()


tracker_var: ContextVar[Tracker | None] = ContextVar("tracker", default=None)
"""Tracker of the rendering in progress; `None` for a rendering without sources."""


class SourcedText(str):
    """A string with a source for each run of characters. Create one with `make_text` or `concatenate`."""

    __slots__ = ("_sources", "_stops")
    _stops: Sequence[int]
    _sources: Sequence[Source]

    def __str__(self) -> str:
        return self

    def __repr__(self) -> str:
        return mark(str.__repr__(self), self, "the function repr")

    def __add__(self, other: Any) -> str:
        return concatenate((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> str:
        return concatenate((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: Any) -> str:
        if not isinstance(count, int):
            return NotImplemented
        if tracker := tracker_var.get():
            tracker.spend(_RUN * max(count, 0))
        return concatenate([self] * count)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return format_percent(self, values)

    def __iter__(self) -> Iterator[str]:
        return (self._slice(i, i + 1) for i in range(len(self)))

    def __getitem__(self, key: Any) -> str:
        text = str.__getitem__(self, key)
        if not isinstance(key, slice):
            start = range(len(self))[key]
            return self._slice(start, start + 1)
        indices = range(len(self))[key]
        if indices.step == 1:
            return self._slice(indices.start, max(indices.start, indices.stop))
        if tracker := tracker_var.get():  # before the runs are allocated
            tracker.spend(_RUN * len(indices))
        return _make(text, [(1, self._get_source(i)) for i in indices])

    def lstrip(self, chars: Any = None, /) -> str:
        return self[len(self) - len(str.lstrip(self, chars)) :]

    def rstrip(self, chars: Any = None, /) -> str:
        return self[: len(str.rstrip(self, chars))]

    def strip(self, chars: Any = None, /) -> str:
        return self.lstrip(chars).rstrip(chars)

    def removeprefix(self, prefix: str, /) -> str:
        return self[len(self) - len(str.removeprefix(self, prefix)) :]

    def removesuffix(self, suffix: str, /) -> str:
        return self[: len(str.removesuffix(self, suffix))]

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
        replaced = str.replace(self, old, new, count)
        if not old:
            return mark(replaced, (self, new), "the method 'replace'")
        first, *others = self.split(old, count)
        pieces, position = [first], len(first)
        for part in others:
            is_sourced = isinstance(new, SourcedText)
            pieces += [new if is_sourced else make_text(new, self._get_source(position)), part]
            position += len(old) + len(part)
        return concatenate(pieces)

    def join(self, texts: Iterable[Any], /) -> str:
        pieces: list[Any] = []
        for text in texts:
            pieces += [self, text]
        return concatenate(pieces[1:])

    def translate(self, table: Any, /) -> str:
        if _find_sources(table):
            return mark(str.translate(self, table), (self, table), "the method 'translate'")
        return _change_runs(self, lambda text: str.translate(text, table))

    def _get_source(self, position: int) -> Source:
        return self._sources[bisect_right(self._stops, position)]

    def _slice(self, start: int, stop: int) -> SourcedText:
        text = str.__getitem__(self, slice(start, stop))
        if not text:
            return _make(text, [])
        first, last = bisect_right(self._stops, start), bisect_left(self._stops, stop)
        bounds = [start, *self._stops[first:last], stop]
        lengths = [right - left for left, right in zip(bounds, bounds[1:], strict=False)]
        return _make(text, list(zip(lengths, self._sources[first : last + 1], strict=True)))

    def _locate(self, pieces: Sequence[str], sep: Any) -> list[str]:
        """Returns consecutive parts of this text with their sources. `None` separates them by whitespace."""
        located: list[str] = []
        position = 0
        for piece in pieces:
            start = str.find(self, piece, position) if sep is None else position
            located.append(self._slice(start, start + len(piece)))
            position = start + len(piece) + len(sep or "")
        return located


def _make_changing_method(name: str) -> Callable[..., str]:
    """Makes a method that changes characters. Texts of the same length have the same sources."""
    method = getattr(str, name)

    @functools.wraps(method)
    def change(self: SourcedText, *args: Any, **options: Any) -> str:
        text: str = method(self, *args, **options)
        if len(text) != len(self):
            return mark(text, (self, args), f"the method {name!r}")
        return _make(text, [(stop - start, source) for start, stop, source in get_runs(self)])

    return change


for _name in _CHANGING_METHODS:
    setattr(SourcedText, _name, _make_changing_method(_name))


class SourcedInt(int):
    """An integer whose text has a source."""

    _source: Source

    def __str__(self) -> str:
        return make_text(int.__repr__(self), self._source)


class SourcedFloat(float):
    """A number whose text has a source."""

    _source: Source

    def __str__(self) -> str:
        return make_text(float.__repr__(self), self._source)


SOURCED_NUMBERS = (SourcedInt, SourcedFloat)


class SourcedDict(dict[Any, Any]):
    """A mapping of a message, for example a tool call. Its text as JSON has the source."""

    _source: Source


class SourcedList(list[Any]):
    """A list of a message. Its text as JSON has the source."""

    _source: Source


class SourcedMessage(dict[str, Any]):
    """A message whose texts have sources."""

    _index: int


def add_sources(messages: Sequence[dict[str, Any]], *, mark_names: bool = False) -> list[SourcedMessage]:
    """Copies messages, given as JSON data, and gives their texts sources.

    Args:
        messages: the messages.
        mark_names: whether all other text of the messages gets sources, too: keys, names, types and roles
            that templates do not know have the field `"name"`, and texts of other keys `"other"`.
    """
    sourced = []
    for i, message in enumerate(messages):
        copied = SourcedMessage()
        copied._index = i
        for key, value in message.items():
            field = _FIELDS.get(key, "")
            if field == "content" and message["role"] in TOOL_ROLES:
                field = "tool_result"
            elif not field and mark_names and (key != "role" or value not in ROLES):
                field = "name" if key in NAME_KEYS else "other"
            name = make_text(key, Source(i, "name")) if mark_names else key
            source = Source(i, field)
            copied[name] = copy_with_source(value, source, mark_names=mark_names) if field else value
        sourced.append(copied)
    return sourced


def copy_with_source(value: Any, source: Source, key: Any = None, *, mark_names: bool = False) -> Any:
    """Copies a part of a message, and gives its texts a source. Some parts of a content are reasoning."""
    if key in REASONING_KEYS and source.field == "content":
        source = source._replace(field="reasoning")
    name_source = source._replace(field="name") if mark_names else None
    if source.field == "tool_call":
        name_source = source
    if isinstance(value, str):
        text_source = name_source if key in PLAIN_KEYS else source
        return make_text(value, text_source) if text_source else value
    if value is None or isinstance(value, bool):
        return value
    copied: Any
    if isinstance(value, dict):
        copied = SourcedDict()
        for name, inner in value.items():
            marked = make_text(name, name_source) if name_source and isinstance(name, str) else name
            copied[marked] = copy_with_source(inner, source, name, mark_names=mark_names)
    elif isinstance(value, list):
        copied = SourcedList(copy_with_source(inner, source, mark_names=mark_names) for inner in value)
    else:
        copied = SourcedInt(value) if isinstance(value, int) else SourcedFloat(value)
    copied._source = source
    return copied


def get_runs(text: SourcedText) -> list[tuple[int, int, Source]]:
    """Returns the runs of a text as (start, stop, source), with character positions."""
    return list(zip((0, *text._stops), text._stops, text._sources, strict=False))


def make_text(text: str, source: Source) -> SourcedText:
    """Makes a text with one source."""
    return _make(text, [(len(text), source)])


def _make(text: str, runs: Sequence[tuple[int, Source]]) -> SourcedText:
    """Makes a text of runs (length, source)."""
    if tracker := tracker_var.get():
        tracker.spend(_RUN * len(runs))
    made = str.__new__(SourcedText, str.__str__(text))
    stops: list[int] = []
    sources: list[Source] = []
    position = 0
    for length, source in runs:
        if not length:
            continue
        position += length
        if sources and sources[-1] == source:
            stops[-1] = position
        else:
            stops.append(position)
            sources.append(source)
    made._stops, made._sources = tuple(stops), tuple(sources)
    return made


def _change_runs(text: SourcedText, change: Callable[[str], str]) -> SourcedText:
    """Changes each run of a text separately."""
    runs = [
        (change(str.__getitem__(text, slice(start, stop))), source) for start, stop, source in get_runs(text)
    ]
    return _make(
        "".join(changed for changed, _ in runs), [(len(changed), source) for changed, source in runs]
    )


def as_sourced(value: Any) -> Any:
    """Returns a plain string as scaffold of the current message, and other values as they are."""
    tracker = tracker_var.get()
    return make_text(value, tracker.scaffold) if tracker and type(value) is str else value


def concatenate(texts: Iterable[str]) -> str:
    """Concatenates texts. The result has sources if one of them has, or if a message is current."""
    pieces = list(texts)
    text = "".join(pieces)
    tracker = tracker_var.get()
    if tracker is None:
        return text
    scaffold = tracker.scaffold
    if scaffold.message == -1 and not any(isinstance(piece, SourcedText) for piece in pieces):
        return text
    runs: list[tuple[int, Source]] = []
    for piece in pieces:
        if not isinstance(piece, SourcedText):
            runs.append((len(piece), scaffold))
        elif len(piece._sources) == 1:  # the most frequent case
            runs.append((len(piece), piece._sources[0]))
        else:
            runs += [(stop - start, source) for start, stop, source in get_runs(piece)]
    return _make(text, runs)


def to_text(value: Any) -> str:
    """Returns `str(value)` with the sources of the value."""
    return str(value) if isinstance(value, str) else mark(str(value), value, "the text of a list or mapping")


def mark(result: _Value, values: Any, function: str) -> _Value:
    """Gives a text or a number that a function made of `values` their source.

    Args:
        result: the text or number. It is returned as it is if it has sources, or if the values have none.
        values: strings, numbers, lists, tuples and mappings.
        function: the function, for error messages. The source is lost if the values have several.
    """
    if tracker_var.get() is None or isinstance(result, SourcedText):
        return result
    sources = _find_sources(values)
    if not sources:
        return result
    (source, *others) = sources
    source = source._replace(lost_by=function) if others else source
    return cast("_Value", copy_with_source(result, source))


def _find_sources(value: Any) -> set[Source]:
    """Returns the sources of all texts and numbers in a value. Lists that occur twice are read once."""
    sources: set[Source] = set()
    stack, seen = [value], set[int]()
    while stack:
        element = stack.pop()
        if isinstance(element, SourcedText):
            sources.update(element._sources)
        elif isinstance(element, SOURCED_NUMBERS):
            sources.add(element._source)
        elif isinstance(element, (dict, list, tuple)) and id(element) not in seen:
            seen.add(id(element))
            stack.extend(element)
            stack.extend(element.values() if isinstance(element, dict) else ())
    return sources


def make_plain(text: str, value: Any, function: str) -> str:
    """Returns a `Markup` that a function made of a value as a text with sources.

    It does not escape the texts that are added to it. `encode_chat` finds out if that changes the output.
    """
    plain = str.__str__(text)
    if isinstance(value, SourcedText):
        for same in (value, value.translate(_ESCAPED)):
            if str.__eq__(same, plain):
                return same
    return mark(plain, value, function)


def format_percent(form: str, values: Any) -> str:
    """Returns `form % values` with sources. `Budget.spend_on_percent` rejects widths of the form `*`."""
    if tracker_var.get() is None:
        return cast("str", form % values)  # a `Markup` escapes the values
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
            inserted = make_text(inserted, last._sources[-1])
        pieces += [inserted, following]
    return concatenate(pieces)


def to_json(value: Any, dump: Callable[[Any], str]) -> str:
    """Converts a value to JSON text with sources.

    The text of a tool call has one source, with its punctuation. For other values, the strings have their
    sources, and the punctuation is scaffold.

    Args:
        value: JSON data.
        dump: the conversion, without sources.
    """
    text = dump(value)
    if tracker_var.get() is None:
        return text
    source = getattr(value, "_source", None)
    sources = {source} if source else _find_sources(value)
    if len(sources) < 2:
        return make_text(text, *sources) if sources else text
    name = secrets.token_hex(16)
    texts: list[str] = []

    def replace(element: Any) -> Any:
        """Puts random names in place of texts with sources."""
        if isinstance(element, SourcedText):
            texts.append(_escape(element, dump))
            return f"{name}{len(texts) - 1};"
        if isinstance(element, dict):
            return {replace(key): replace(inner) for key, inner in element.items()}
        return [replace(inner) for inner in element] if isinstance(element, (list, tuple)) else element

    pieces = re.split(rf"{name}(\d+);", dump(replace(value)))
    pieces[1::2] = [texts[int(number)] for number in pieces[1::2]]
    joined = concatenate(pieces)
    return joined if str.__eq__(joined, text) else mark(text, value, "tojson with sort_keys")


def _escape(text: SourcedText, dump: Callable[[Any], str]) -> str:
    """Returns a string as in JSON, without its quotation marks."""
    return _change_runs(text, lambda part: dump(part)[1:-1])
