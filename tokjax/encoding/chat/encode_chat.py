r"""Encoding of conversations with chat templates, with a mask of the assistant's tokens.

The assistant's text is located by position, not by searching for it. If the template has no
`{% generation %}` blocks, it is rendered for prefixes of the conversation. For a message of the assistant at
index 1 these are

    before     messages[:1] with the generation prompt     "U: hi\nA:"
    until      messages[:2] without it                     "U: hi\nA: low.\n"
    text       the whole conversation                      "U: hi\nA: low.\nU: ok\n"

Each must be a prefix of the next one. The span of the message is from `len(before)` to `len(until)`,
which is `" low.\n"`. The tokens that overlap this span have mask 1.
"""

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
    replace_with_placeholders,
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
"""Variables that are checked like messages, because they often contain text of third parties."""


class EncodedChat(NamedTuple):
    """Tokens of a conversation.

    Attributes:
        result: the encoded `text`. Special tokens that the template writes are recognized.
        assistant_mask: 1 for tokens that contain text of the assistant, otherwise 0, `int32`, shape
            `(num_tokens,)`; the `loss_mask` of `causal_lm_labels`. `None` with `mask=False`.
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
    """Encodes a conversation with a chat template, and masks the tokens of the assistant.

    Templates are Jinja templates in the format of Hugging Face's libraries (`load_chat_template` reads one
    from a model's directory). A template runs in Jinja's sandbox with bounded time and memory. Its variables
    are `messages`, `add_generation_prompt`, the declared ones of `bos_token`, `eos_token`, `pad_token` and
    `unk_token`, and `variables`. `tools` and `documents` are `None` unless they are in `variables`. Keys of
    messages whose value is `None` are omitted. `reasoning_content` and `thinking` are aliases: templates read
    one or the other.

    The assistant's tokens are located by position: the contents of `{% generation %}` blocks if the template
    has such blocks. Otherwise they are the text that the template adds for a message of the assistant after
    the generation prompt. (If the template has no generation prompt, this includes the role.)

    Special tokens that the template writes are always recognized. In messages, `tools` and `documents` they
    raise an error by default, because a user could end a turn with them. With `disallowed_special=()` they
    are ordinary text there; with `allowed_special` they are recognized there, too. If a template concatenates
    texts of messages to a special token (`"<|im_" + "end|>"`), this raises an error unless the token is
    allowed. Other `variables` are trusted.

    Args:
        tokenizer: any registered tokenizer. With `mask=True` it must compute offsets.
        messages: the messages, each with a `"role"`, usually a `"content"`, and other keys that the template
            reads.
        template: the Jinja template.
        add_generation_prompt: whether to end with the prompt for an answer of the assistant.
        mask: whether to compute `assistant_mask`. `False` supports templates that rewrite earlier messages,
            such as those that drop the reasoning of all turns except the last.
        allowed_special: special tokens that are recognized in messages: names, or `"all"`.
        disallowed_special: special tokens that raise an error in messages: names, or `"all"` for every one
            that is not allowed. A special token in neither set is encoded as ordinary text.
        variables: other variables of the template, for example `tools`, as JSON data.
        max_characters: maximum length of the rendered text in characters. The work and the memory of the
            template are limited in proportion to it.

    Raises:
        DisallowedSpecialTokenError: a message contains a disallowed special token, or the template makes one
            of the texts of messages.
        InvalidArgumentError: the template is invalid, raises an error or exceeds its limits; or it renders an
            earlier message differently when more messages follow, so that the assistant's tokens can't be
            located (pass `mask=False`).
        MissingExtraError: Jinja is not installed.
    """
    vocabulary = protocol.get_vocabulary(tokenizer)
    allowed, disallowed = resolve_special(vocabulary.special_names, allowed_special, disallowed_special)
    not_allowed = frozenset(vocabulary.special) - allowed
    conversation = copy_messages(messages)
    check_strings(conversation, "messages", disallowed)
    template_variables: dict[str, Any] = {"tools": None, "documents": None, **(variables or {})}
    template_variables = {
        name: copy_json(value, f"variables[{name!r}]") for name, value in template_variables.items()
    }
    untrusted = {name: template_variables[name] for name in _UNTRUSTED}
    check_strings(untrusted, "variables", disallowed)
    compiled = compile_template(template)
    literal = not_allowed - disallowed  # ordinary text in messages, special tokens in the template
    texts = collect_strings([conversation, untrusted]) if literal else []
    hidden = hide_special_tokens(
        literal, texts, [*collect_strings(template_variables), template] if literal else []
    )

    roles = {f"{role}_token": name for role, name in vocabulary.roles.items()}

    def make_renderer(change: Callable[[str], str]) -> _ChatRenderer:
        changed = copy_json(untrusted, "", lambda text, _: change(text)) if hidden.names else {}
        limit = check_int("max_characters", max_characters, minimum=1)
        return _ChatRenderer(compiled, roles | template_variables | changed, limit)

    renderer = make_renderer(hidden.hide)
    rendered_messages = conversation
    if hidden.names:
        rendered_messages = copy_json(conversation, "", lambda text, _: hidden.hide(text))
    text, spans = renderer.render_with_spans(rendered_messages, add_generation_prompt, mask)
    # Special tokens that the template itself writes are the same for any messages, so they are counted with
    # placeholders. Any other number means that the template made or removed one with texts of messages.
    expected = renderer.render_text(replace_with_placeholders(rendered_messages, {}), add_generation_prompt)
    _check_counts(text, expected, not_allowed)
    full_text = hidden.restore(text)
    if hidden.names:
        visible_text = make_renderer(str).render_text(conversation, add_generation_prompt)
        _check_unchanged(full_text, visible_text, hidden)
        result = encode_with_hidden(tokenizer, text, hidden)
    else:
        result = encode_result(tokenizer, text, add_special_tokens=False, allowed_special="all")
    return EncodedChat(
        result, _compute_mask(tokenizer, full_text, result, spans) if mask else None, full_text
    )


class _ChatRenderer:
    """A compiled template with its variables, which renders different lists of messages."""

    def __init__(self, template: ChatTemplate, variables: dict[str, Any], max_characters: int) -> None:
        self._template = template
        self._variables = variables
        self._max_characters = max_characters

    def render_with_spans(self, messages: list[Message], prompt: bool, mask: bool) -> RenderedTemplate:
        """Renders messages; with `mask`, also locates the character spans of the assistant's text."""
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
        """Returns the character span of message `i`, as the difference of two prefixes of the text.

        Raises:
            InvalidArgumentError: these texts are not prefixes of the whole text.
        """
        before = self.render_text(messages[:i], True) if i else self._render_preamble()
        until = self.render_text(messages[: i + 1], False)
        if not (text.startswith(until) and until.startswith(before)):
            raise InvalidArgumentError(
                f"the chat template writes messages[{i}], or an earlier message, differently if more "
                "messages follow, so the assistant's tokens can't be located. Pass mask=False to get the ids "
                "without a mask, or put {% generation %} and {% endgeneration %} around the assistant's text "
                "in the template"
            )
        return len(before), len(until)

    def _render_preamble(self) -> str:
        """Returns the text before the first message; empty if the template fails without messages."""
        try:
            return self.render_text([], True)
        except InvalidArgumentError:
            return ""

    def render_text(self, messages: list[Message], prompt: bool) -> str:
        """Renders messages and returns only the text."""
        return self._render(messages, prompt).text

    def _render(self, messages: list[Message], prompt: bool) -> RenderedTemplate:
        template_variables = {"messages": add_reasoning_aliases(messages), "add_generation_prompt": prompt}
        return self._template.render(self._variables | template_variables, self._max_characters)


def _check_counts(text: str, expected: str, names: frozenset[str]) -> None:
    """Checks that messages do not change the number of special tokens.

    Args:
        text: the rendered text.
        expected: the text with placeholders for the texts of messages.
        names: the special tokens that are not allowed in messages.

    Raises:
        DisallowedSpecialTokenError: the number of one of them differs between the two texts.
    """
    for name in sorted(names):
        if text.count(name) != expected.count(name):
            raise DisallowedSpecialTokenError(
                f"with these messages the chat template writes {name!r} {text.count(name)} times, and "
                f"{expected.count(name)} times with placeholders for their texts: a text would become a "
                f"special token, or remove one. If this is intended, pass allowed_special={{{name!r}}}"
            )


def _check_unchanged(text: str, expected: str, hidden: HiddenTokens) -> None:
    """Raises `InvalidArgumentError` unless the template copies hidden special tokens like any other text.

    Args:
        text: the text that was rendered with replacements, and restored.
        expected: the text rendered without replacements.
        hidden: the replacements.
    """
    if text != expected:
        raise InvalidArgumentError(
            f"the chat template looks for {sorted(hidden.names)} in the messages, or changes their "
            "characters, so that they can't be distinguished from the template's special tokens; remove them "
            "from the messages, or pass allowed_special= to recognize them"
        )


def _compute_mask(
    tokenizer: Any, text: str, result: TokenizationResult, spans: list[tuple[int, int]]
) -> NDArray[np.int32]:
    """Returns a mask with 1 for tokens that overlap any of the spans.

    Args:
        tokenizer: the tokenizer that encoded the text.
        text: the encoded text.
        result: its tokens.
        spans: disjoint character spans `(start, stop)`, 0-based and half-open.

    Returns:
        `int32`, shape `(num_tokens,)`.
    """
    offsets = result.offsets
    if offsets is None:
        raise InvalidArgumentError(
            f"{type(tokenizer).__name__} does not compute offsets, which the mask of the assistant's tokens "
            "needs; pass mask=False"
        )
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        offsets = protocol.map_offsets_to_input(tokenizer, text, offsets)
    bounds = char_to_byte_spans(text, np.array(sorted(spans), np.int64).reshape(-1, 2))
    # A token overlaps a span only if it overlaps the last span that begins before the token ends. Tokens
    # before the first span have index -1, which is the appended entry, so that they overlap nothing.
    last = np.searchsorted(bounds[:, 0], offsets[:, 1], "left") - 1
    stops = np.append(bounds[:, 1], 0)
    return (offsets[:, 0] < stops[last]).astype(np.int32)
