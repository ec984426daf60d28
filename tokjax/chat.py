"""Conversations to tokens, as a model's chat template has them, with a mask of what the assistant said."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from tokjax import protocol
from tokjax._optional import import_optional
from tokjax.encoding import encode_result
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError
from tokjax.offsets import char_to_byte_spans
from tokjax.text.special import refuse_special, resolve_special

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tokjax.protocol import Special
    from tokjax.records import TokenizationResult

    Message = Mapping[str, Any]

_WORD = re.compile(r"[\w -]*")
_KEPT = ("['role']", "['type']")
_ERRORS_OF_TEMPLATES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
_ASSISTANT = "assistant"


class EncodedChat(NamedTuple):
    """A conversation as tokens.

    Attributes:
        result: the tokens of `text`; special tokens of the template are special tokens.
        assistant_mask: 1 on tokens that hold any of what the assistant said, `int32`, shape `(n,)`: a
            `loss_mask` for `causal_lm_labels`.
        text: what the template made of the messages.
    """

    result: TokenizationResult
    assistant_mask: NDArray[np.int32]
    text: str


def encode_chat(
    tokenizer: Any,
    messages: Sequence[Message],
    template: str,
    *,
    add_generation_prompt: bool = False,
    allowed_special: Special = (),
    variables: Mapping[str, Any] | None = None,
) -> EncodedChat:
    """Encode a conversation.

    The template is a Jinja template as Hugging Face's libraries have them (`load_chat_template` reads one
    from a model's directory). It runs in Jinja's sandbox. It sees `messages`, `add_generation_prompt`,
    `bos_token`, `eos_token`, `pad_token`, `unk_token` as far as they are declared, and `variables` (`tools`
    and `documents` are none, unless they are among them).

    What the assistant said is known by its place, not by its words. If the template has `{% generation %}`
    blocks, it is what stands in them. Otherwise a message of the assistant is what the template adds for it
    behind the prompt for it; with its role, if the template knows no such prompt.

    Special tokens are recognised where the template writes them. In messages they are refused: a user could
    end a turn with them. So are messages of which a template makes more or fewer special tokens than of
    others with the same roles. `variables` are taken as they are.

    Args:
        tokenizer: any registered tokenizer that gives offsets.
        messages: each with a `"role"` and mostly a `"content"`; whatever the template asks for.
        template: the Jinja template.
        add_generation_prompt: end with what makes the model answer.
        allowed_special: special tokens that messages may hold: names, or `"all"`.
        variables: what else the template asks for: `tools`, say.

    Raises:
        DisallowedSpecialTokenError: a message holds a special token.
        InvalidArgumentError: the template is none, can't do with the messages, or writes what the assistant
            said otherwise once more is said, so that its place is not known.
        MissingExtraError: Jinja is not installed.
    """
    table = protocol.vocabulary_of(tokenizer)
    _, disallowed = resolve_special(table.special_names, allowed_special, "all")
    _check_messages(messages, disallowed)
    roles = {f"{role}_token": name for role, name in table.roles.items()}
    rendering = _Rendering(
        _writer(template), {"tools": None, "documents": None, **roles, **(variables or {})}
    )
    text, spans = rendering.whole(list(messages), add_generation_prompt)
    neutral = rendering.text(list(map(_neutral, messages)), add_generation_prompt)
    for name in disallowed:
        if text.count(name) != neutral.count(name):
            raise DisallowedSpecialTokenError(
                f"with these messages the chat template writes {name!r} {text.count(name)} times, and "
                f"{neutral.count(name)} times with others: what they hold would become a special token, or "
                f"take one away. If that is meant, pass allowed_special={{{name!r}}}"
            )
    result = encode_result(tokenizer, text, add_special_tokens=False, allowed_special="all")
    return EncodedChat(result, _mask_of(tokenizer, text, result, spans), text)


class _Rendering:
    """One template, with all that does not change from call to call."""

    def __init__(self, writer: _Writer, variables: dict[str, Any]) -> None:
        self._writer = writer
        self._variables = variables

    def whole(self, messages: list[Message], prompt: bool) -> tuple[str, list[tuple[int, int]]]:
        """The text, and the character spans of what the assistant said."""
        if self._writer.marks_generation:
            return self._written(messages, prompt)
        text = self.text(messages, prompt)
        spans = [
            self._span(text, messages, i)
            for i, message in enumerate(messages)
            if message.get("role") == _ASSISTANT
        ]
        return text, spans

    def _span(self, text: str, messages: list[Message], i: int) -> tuple[int, int]:
        """Where the message stands: what comes before it, and what is there with it, begin the text alike."""
        before = self.text(messages[:i], True) if i else self._before_all()
        until = self.text(messages[: i + 1], False)
        if not (text.startswith(until) and until.startswith(before)):
            raise InvalidArgumentError(
                f"the chat template writes messages[{i}], or what is before it, otherwise if there are more: "
                "the place of what the assistant said is not known; put {% generation %} and "
                "{% endgeneration %} around it in the template"
            )
        return len(before), len(until)

    def _before_all(self) -> str:
        """What is written before a first message: nothing, if the template can't do without messages."""
        try:
            return self.text([], True)
        except InvalidArgumentError:
            return ""

    def text(self, messages: list[Message], prompt: bool) -> str:
        """The text alone."""
        return self._written(messages, prompt)[0]

    def _written(self, messages: list[Message], prompt: bool) -> tuple[str, list[tuple[int, int]]]:
        given = {"messages": messages, "add_generation_prompt": prompt}
        return self._writer.write(self._variables | given)


class _Writer(NamedTuple):
    """A compiled template.

    Attributes:
        write: gives the text, and the character spans of `{% generation %}` blocks.
        marks_generation: whether the template has such blocks.
    """

    write: Callable[[dict[str, Any]], tuple[str, list[tuple[int, int]]]]
    marks_generation: bool


@lru_cache(maxsize=16)
def _writer(template: str) -> _Writer:
    jinja2 = import_optional("jinja2", extra="chat", purpose="encode_chat")
    sandbox = import_optional("jinja2.sandbox", extra="chat", purpose="encode_chat")
    if not isinstance(template, str):
        raise InvalidArgumentError(f"template must be a Jinja template, not {type(template).__name__}")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _generation_blocks()],
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise, strftime_now=_now)
    begin, end = (f"\ue000{secrets.token_hex(16)}\ue001" for _ in range(2))  # (no text holds them by chance)
    environment.tokjax_marks, environment.tokjax_has_blocks = (begin, end), False
    try:
        compiled = environment.from_string(template)
    except (jinja2.TemplateError, RecursionError) as error:
        raise InvalidArgumentError(f"the chat template is no Jinja template: {error}") from error

    def write(variables: dict[str, Any]) -> tuple[str, list[tuple[int, int]]]:
        try:
            return _without_marks(compiled.render(variables), begin, end)
        except (*_ERRORS_OF_TEMPLATES, jinja2.TemplateError) as error:
            raise InvalidArgumentError(
                f"the chat template can't do with these messages: {type(error).__name__}: {error}"
            ) from error

    return _Writer(write, environment.tokjax_has_blocks)


def _without_marks(marked: str, begin: str, end: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without the marks of `{% generation %}` blocks, and the character spans between them."""
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for i, part in enumerate(marked.split(begin)):
        said, closed, rest = part.partition(end) if i else ("", end, part)
        if not closed or end in rest:
            raise ValueError("{% generation %} blocks stand in one another, or a filter cut one")
        if i:
            spans.append((length, length + len(said)))
        pieces += [said, rest]
        length += len(said) + len(rest)
    return "".join(pieces), spans


@lru_cache(maxsize=1)
def _generation_blocks() -> Any:
    """Jinja's extension for `{% generation %}` blocks, which marks what was written in them."""
    nodes = import_optional("jinja2.nodes", extra="chat", purpose="encode_chat")
    base: Any = import_optional("jinja2.ext", extra="chat", purpose="encode_chat").Extension

    class GenerationBlocks(base):  # type: ignore[misc]
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            self.environment.tokjax_has_blocks = True
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

        def _write(self, caller: Callable[[], str]) -> str:
            begin, end = self.environment.tokjax_marks
            return f"{begin}{caller()}{end}"

    return GenerationBlocks


def _check_messages(messages: Sequence[Message], disallowed: frozenset[str]) -> None:
    """Refuse what is no conversation, and special tokens in it."""
    given: object = messages
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InvalidArgumentError(f"messages must be a list of messages, not {messages!r:.80}")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidArgumentError(f"messages[{i}] must map 'role' and 'content', not be {message!r:.80}")
        for where, text in _strings_in(message, f"messages[{i}]"):
            refuse_special(text, disallowed, where)
            if where.endswith(_KEPT) and not _WORD.fullmatch(text):
                raise InvalidArgumentError(f"{where} is {text!r}; roles and types are words")


def _neutral(value: Any, key: str = "") -> Any:
    """A message whose texts, but for roles and types, say nothing."""
    if isinstance(value, str):
        return value if f"[{key!r}]" in _KEPT else "x" * bool(value)
    if isinstance(value, Mapping):
        return {name: _neutral(inner, name) for name, inner in value.items()}
    return [_neutral(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _mask_of(
    tokenizer: Any, text: str, result: TokenizationResult, spans: list[tuple[int, int]]
) -> NDArray[np.int32]:
    """1 on tokens that hold any of the bytes of some character spans."""
    offsets = result.offsets
    if offsets is None:
        raise InvalidArgumentError(
            f"{type(tokenizer).__name__} gives no offsets, and so no mask of what the assistant said"
        )
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        offsets = protocol.map_offsets_to_input(tokenizer, text, offsets)
    bounds = char_to_byte_spans(text, np.array(sorted(spans), np.int64).reshape(-1, 2))
    last = np.searchsorted(bounds[:, 0], offsets[:, 1], "left") - 1  # that begins before the token ends
    stops = np.append(bounds[:, 1], 0)  # (its last is what stands before the first)
    return (offsets[:, 0] < stops[last]).astype(np.int32)


def _strings_in(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """All strings in a message, keys too, and what to call their places.

    Raises:
        InvalidArgumentError: there is something else than JSON in it.
    """
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings_in(key, f"a key of {where}")
            yield from _strings_in(inner, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _strings_in(inner, f"{where}[{i}]")
    elif not isinstance(value, (int, float, NoneType)):
        raise InvalidArgumentError(f"{where} is a {type(value).__name__}; messages hold what JSON does")


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise(message: str) -> NoReturn:
    raise ValueError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
