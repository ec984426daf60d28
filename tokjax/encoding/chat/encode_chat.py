"""Encoding of conversations with chat templates, with a mask of the assistant's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core import protocol
from tokjax.encoding.chat.chat_template import ChatTemplate, RenderedTemplate, compile_template
from tokjax.encoding.chat.messages import (
    HiddenTokens,
    add_reasoning_aliases,
    check_strings,
    collect_strings,
    copy_json,
    copy_messages,
    encode_with_hidden,
    hide_special_tokens,
    neutralize,
)
from tokjax.encoding.encode import encode_result
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError
from tokjax.offsets import char_to_byte_spans
from tokjax.pretokenize.special_tokens import resolve_special

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
    from tokjax.core.records import TokenizationResult
    from tokjax.encoding.chat.messages import Message

_ASSISTANT = "assistant"
_UNTRUSTED = ("tools", "documents")


class EncodedChat(NamedTuple):
    """A conversation as tokens.

    Attributes:
        result: the tokens of `text`; special tokens of the template are special tokens.
        assistant_mask: 1 on tokens that hold any text of the assistant, `int32`, shape `(n,)`: a `loss_mask`
            for `causal_lm_labels`. `None` with `mask=False`.
        text: the rendered conversation.
    """

    result: TokenizationResult
    assistant_mask: NDArray[np.int32] | None
    text: str


def encode_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    template: str,
    *,
    add_generation_prompt: bool = False,
    mask: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    variables: Mapping[str, Any] | None = None,
    max_characters: int = 1 << 22,
) -> EncodedChat:
    """Encodes a conversation with a chat template, and marks the tokens of the assistant.

    The template is a Jinja template as Hugging Face's libraries have them (`load_chat_template` reads one
    from a model's directory). It runs in Jinja's sandbox, with bounded time and memory. It sees `messages`,
    `add_generation_prompt`, `bos_token`, `eos_token`, `pad_token`, `unk_token` where the tokenizer declares
    them, and `variables`; `tools` and `documents` are `None`, unless they are among them. Keys of messages
    whose value is `None` are left out. `reasoning_content` and `thinking`, of which templates read one or the
    other, fill each other.

    The assistant's tokens are found by their position, not by searching for words: the contents of the
    template's `{% generation %}` blocks, if it has such blocks; otherwise the text that the template adds for
    a message of the assistant after the generation prompt (with its role, if the template writes no such
    prompt).

    Special tokens are recognised where the template writes them. In messages, tools and documents they raise
    an error, since a user could end a turn with them. With `disallowed_special=()` they are ordinary text
    there, and special tokens still where the template writes them; with `allowed_special` they are recognised
    there, too. Messages from whose parts a template makes special tokens (`"<|im_" + "end|>"`) raise an error
    unless those are allowed. Other `variables` are trusted.

    Args:
        tokenizer: any registered tokenizer; with a mask, one that gives offsets.
        messages: each with a `"role"` and mostly a `"content"`; whatever the template asks for.
        template: the Jinja template.
        add_generation_prompt: end with the prompt for the assistant's answer.
        mask: whether to give `assistant_mask`. Without it, templates that rewrite earlier messages can be
            used, too (such as those that drop the reasoning of all turns except the last).
        allowed_special: special tokens that are recognised in messages: names, or `"all"`.
        disallowed_special: special tokens that raise an error in messages: names, or `"all"` for every one
            that is not allowed. One that is neither is encoded as ordinary text.
        variables: what else the template reads, as JSON data: `tools`, say.
        max_characters: how long the text may be that the template writes. The work and the memory of a
            template are bounded in proportion.

    Raises:
        DisallowedSpecialTokenError: a message holds a special token.
        InvalidArgumentError: the template is not valid, raises an error or exceeds its limits; or it writes
            an earlier message otherwise once more is said, so that the tokens of the assistant are not known
            (pass `mask=False`).
        MissingExtraError: Jinja is not installed.
    """
    table = protocol.get_vocabulary(tokenizer)
    allowed, disallowed = resolve_special(table.special_names, allowed_special, disallowed_special)
    unrecognised = frozenset(table.special) - allowed
    talk = copy_messages(messages)
    check_strings(talk, "messages", disallowed)
    template_variables: dict[str, Any] = {"tools": None, "documents": None, **(variables or {})}
    template_variables = {
        name: copy_json(value, f"variables[{name!r}]") for name, value in template_variables.items()
    }
    untrusted = {name: template_variables[name] for name in _UNTRUSTED}
    check_strings(untrusted, "variables", disallowed)
    compiled = compile_template(template)
    literal = unrecognised - disallowed
    texts = collect_strings([talk, untrusted]) if literal else []
    hidden = hide_special_tokens(
        literal, texts, [*collect_strings(template_variables), template] if literal else []
    )

    roles = {f"{role}_token": name for role, name in table.roles.items()}

    def make_renderer(change: Callable[[str], str]) -> _ChatRenderer:
        changed = copy_json(untrusted, "", lambda text, _: change(text)) if hidden.names else {}
        limit = check_int("max_characters", max_characters, minimum=1)
        return _ChatRenderer(compiled, roles | template_variables | changed, limit)

    renderer = make_renderer(hidden.hide)
    shown = copy_json(talk, "", lambda text, _: hidden.hide(text)) if hidden.names else talk
    text, spans = renderer.render_with_spans(shown, add_generation_prompt, mask)
    expected = renderer.render_text(neutralize(shown, {}), add_generation_prompt)
    _check_counts(text, expected, unrecognised)
    full_text = hidden.restore(text)
    if hidden.names:
        _check_unchanged(full_text, make_renderer(str).render_text(talk, add_generation_prompt), hidden)
        result = encode_with_hidden(tokenizer, text, hidden)
    else:
        result = encode_result(tokenizer, text, add_special_tokens=False, allowed_special="all")
    return EncodedChat(
        result, _compute_mask(tokenizer, full_text, result, spans) if mask else None, full_text
    )


class _ChatRenderer:
    """One template, with all that does not change from call to call."""

    def __init__(self, template: ChatTemplate, variables: dict[str, Any], max_characters: int) -> None:
        self._template = template
        self._variables = variables
        self._max_characters = max_characters

    def render_with_spans(self, messages: list[Message], prompt: bool, mask: bool) -> RenderedTemplate:
        """The text, and the character spans of the assistant's text, if there is to be a mask."""
        rendered = self._render(messages, prompt)
        if not mask or self._template.has_generation_blocks:
            return rendered
        spans = [
            self._find_span(rendered.text, messages, i)
            for i, message in enumerate(messages)
            if message.get("role") == _ASSISTANT
        ]
        return RenderedTemplate(rendered.text, spans)

    def _find_span(self, text: str, messages: list[Message], i: int) -> tuple[int, int]:
        """Where message `i` is: the texts without it and up to it are prefixes of the whole text."""
        before = self.render_text(messages[:i], True) if i else self._render_preamble()
        until = self.render_text(messages[: i + 1], False)
        if not (text.startswith(until) and until.startswith(before)):
            raise InvalidArgumentError(
                f"the chat template writes messages[{i}], or an earlier message, otherwise if more messages "
                "follow: which tokens are the assistant's is not known. Pass mask=False to have the ids "
                "without a mask, or put {% generation %} and {% endgeneration %} around the assistant's text "
                "in the template"
            )
        return len(before), len(until)

    def _render_preamble(self) -> str:
        """The text before a first message; nothing if the template needs messages."""
        try:
            return self.render_text([], True)
        except InvalidArgumentError:
            return ""

    def render_text(self, messages: list[Message], prompt: bool) -> str:
        """The text alone."""
        return self._render(messages, prompt).text

    def _render(self, messages: list[Message], prompt: bool) -> RenderedTemplate:
        template_variables = {"messages": add_reasoning_aliases(messages), "add_generation_prompt": prompt}
        return self._template.render(self._variables | template_variables, self._max_characters)


def _check_counts(text: str, expected: str, names: frozenset[str]) -> None:
    """Raise an error if the text has other special tokens than with messages that say nothing."""
    for name in sorted(names):
        if text.count(name) != expected.count(name):
            raise DisallowedSpecialTokenError(
                f"with these messages the chat template writes {name!r} {text.count(name)} times, and "
                f"{expected.count(name)} times with others: their text would become a special token, or "
                f"remove one. If that is meant, pass allowed_special={{{name!r}}}"
            )


def _check_unchanged(text: str, expected: str, hidden: HiddenTokens) -> None:
    """Raise an error if the template treats special tokens in messages other than as text that it copies."""
    if text != expected:
        raise InvalidArgumentError(
            f"the chat template looks for {sorted(hidden.names)} in the messages, or changes their "
            "characters, so that they can't be distinguished from the template's special tokens; leave them "
            "out of the messages, or pass allowed_special= to recognise them"
        )


def _compute_mask(
    tokenizer: Any, text: str, result: TokenizationResult, spans: list[tuple[int, int]]
) -> NDArray[np.int32]:
    """1 on tokens that hold any of the bytes of some character spans."""
    offsets = result.offsets
    if offsets is None:
        raise InvalidArgumentError(
            f"{type(tokenizer).__name__} gives no offsets, and so no mask of the assistant's tokens; pass "
            "mask=False"
        )
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        offsets = protocol.map_offsets_to_input(tokenizer, text, offsets)
    bounds = char_to_byte_spans(text, np.array(sorted(spans), np.int64).reshape(-1, 2))
    last = (
        np.searchsorted(bounds[:, 0], offsets[:, 1], "left") - 1
    )  # the last span that begins before the token ends
    stops = np.append(bounds[:, 1], 0)  # (the last entry, for tokens before the first span)
    return (offsets[:, 0] < stops[last]).astype(np.int32)
