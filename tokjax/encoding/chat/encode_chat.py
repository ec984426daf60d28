"""Encoding of conversations with chat templates, with the role and the field of each token.

The assistant's text is located by its source, not by searching for it. The conversation is rendered with
texts that know which message they are from (`text_sources`), and each token gets a role and a field
(`token_sources`). Renderings of the messages before and up to an answer show where its turn begins and ends
(`turns`).
"""

from __future__ import annotations

import datetime
import secrets
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import short_repr
from tokjax._util.imports import import_optional
from tokjax.core import protocol
from tokjax.core.encode_options import accept_options
from tokjax.encoding.chat.messages import (
    ControlTokens,
    add_reasoning_aliases,
    change_texts,
    check_strings,
    copy_json,
    copy_messages,
    encode_with_literals,
    find_control_tokens,
    find_unwritten_messages,
    mark_end,
    pop_weights,
)
from tokjax.encoding.chat.template_limits import Budget
from tokjax.encoding.chat.text_sources import Tracker
from tokjax.encoding.chat.token_sources import compute_token_sources, find_sources
from tokjax.encoding.chat.turns import find_prompt, find_turns
from tokjax.encoding.encode import encode_batch_result, encode_result
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError
from tokjax.objectives.losses import CHAT_ROLES, chat_loss_mask
from tokjax.offsets import char_to_byte_spans
from tokjax.pretokenize.special_tokens import compile_matcher

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.encode_options import Special
    from tokjax.core.records import TokenizationResult
    from tokjax.encoding.chat.chat_template import ChatTemplate, RenderedTemplate
    from tokjax.encoding.chat.messages import Message
    from tokjax.encoding.chat.text_sources import Source, SourceRun
    from tokjax.encoding.chat.token_sources import TokenSources

_ASSISTANT = "assistant"
_MAX_CHARACTERS = 1 << 22
_TEXT_OPTIONS: dict[str, Any] = {"add_special_tokens": False, "allowed_special": "all"}
_INSTRUCTIONS = ("system", "developer")
RESERVED_VARIABLES = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
"""Variables of templates that are arguments of `encode_chat`."""
_ANOTHER_TEXT = "the chat template writes another text for the same messages when their origin is followed"
_UNTRUSTED = ("tools", "documents")
"""Variables that are checked like messages, because they often contain text of third parties."""


@short_repr
class EncodedChat(NamedTuple):
    """Tokens of a conversation.

    Attributes:
        result: the encoded `text`. Special tokens that the template writes are recognized.
        assistant_mask: 1 for tokens of the assistant's turns, except those of the weight 0, otherwise 0;
            `int32`, shape `(num_tokens,)`; the `loss_mask` of `causal_lm_labels`. `None` with `mask=False`.
        text: the rendered conversation.
        sources: the role and the field of each token, for `tokjax.objectives.chat_loss_mask`; `int8`, shape
            `(num_tokens,)`. `None` with `mask=False`.
        message_indices: the index of the message of each token, -1 for text outside the messages; `int32`,
            shape `(num_tokens,)`. `None` with `mask=False`.
    """

    result: TokenizationResult
    assistant_mask: NDArray[np.int32] | None
    text: str
    sources: NDArray[np.int8] | None = None
    message_indices: NDArray[np.int32] | None = None


@accept_options()
def encode_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    template: str,
    *,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    mask: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    trust_answers: bool = True,
    variables: Mapping[str, Any] | None = None,
    date: datetime.date | str | None = None,
    max_characters: int = _MAX_CHARACTERS,
) -> EncodedChat:
    """Encodes a conversation with a chat template, and finds the role and the field of each token.

    Templates are Jinja templates in the format of Hugging Face's libraries (`load_chat_template` reads one
    from a model's directory). A template runs in Jinja's sandbox with bounded time and memory. Its variables
    are `messages`, `add_generation_prompt`, the declared ones of `bos_token`, `eos_token`, `pad_token` and
    `unk_token`, and `variables`. `tools` and `documents` are `None` unless they are in `variables`. Templates
    read the messages as they are, with these exceptions: `reasoning_content` and `thinking` are aliases,
    because templates read one or the other. Messages in ShareGPT's format, `{"from": "human", "value": ...}`,
    become messages with `role` and `content`; the roles `human` and `gpt` become `user` and `assistant`.

    Each token gets the role and the field of the text that it is from, which is followed through the
    template: content, reasoning, tool calls and tool results of the messages; the scaffold, which the
    template writes for a message; the header of an answer, which is the part of the scaffold that the
    generation prompt provides; and the generation prompt at the end. `tokjax.objectives.chat_loss_mask` makes
    loss masks of them. A token with text of several sources belongs to the answer, if one of them does.

    The assistant's tokens are the contents of `{% generation %}` blocks if the template has such blocks.
    Otherwise they are the turns of the assistant. A turn begins where the text of the messages before it with
    a generation prompt ends. (If the template has no generation prompt, it includes the role.) It ends with
    the text that the template writes for its end, also where that is in front of the next message. A message
    of the assistant with `"weight": 0` or `"train": False` has no tokens in `assistant_mask`, and its tokens
    have the role `other` in `sources`. With 1, `True`, `None` or neither key it counts.

    Special tokens that the template writes are always recognized. In messages, `tools` and `documents` they
    raise an error by default, because a user could end a turn with them. With `disallowed_special=()` they
    are ordinary text there; with `allowed_special` they are recognized there, too. If a template concatenates
    texts of messages to a special token (`"<|im_" + "end|>"`), this raises an error unless the token is
    allowed. So do names, keys and numbers of messages that it completes. Other `variables` are trusted.

    The same holds for control tokens that are not special, but that a tokenizer matches in any text: added
    tokens such as Qwen's `<think>` and `<tool_call>`, and user-defined symbols of a SentencePiece model. They
    are those that look like markers, or that the template writes. In contents and reasoning of the assistant
    they are recognized, since the model writes them, unless `trust_answers` is `False`.

    Args:
        tokenizer: any registered tokenizer. With `mask=True` it must compute offsets.
        messages: the messages, each with a `"role"`, usually a `"content"`, and other keys that the template
            reads.
        template: the Jinja template.
        add_generation_prompt: whether to end with the prompt for an answer of the assistant.
        continue_final_message: whether to end within the last message, after its content, so that a model
            continues it.
        mask: whether to compute `assistant_mask`, `sources` and `message_indices`.
        allowed_special: special tokens that are recognized in messages: names, or `"all"`.
        disallowed_special: special tokens that raise an error in messages: names, or `"all"` for every one
            that is not allowed. A special token in neither set is encoded as ordinary text.
        trust_answers: whether control tokens that are not special are recognized in contents and reasoning of
            the assistant.
        variables: other variables of the template, for example `tools`, as JSON data.
        date: the date, or the time, that `strftime_now` formats, or a date as text, such as `"2026-11-27"`.
            `None` for the current local time.
        max_characters: maximum length of the rendered text in characters. The work and the memory of the
            template are limited in proportion to it.

    Raises:
        DisallowedSpecialTokenError: a message contains a disallowed special token, or the template makes one
            of the texts of messages.
        InvalidArgumentError: a message has no role, or an invalid weight; the template is invalid, raises an
            error or exceeds its limits; it writes nothing of a message that has a text, for example of an
            unknown role; or it combines texts of several messages with a function after which their origin
            is unknown, which the error names (pass `mask=False`).
        MissingExtraError: Jinja is not installed.
    """
    steps = _encode_in_steps(
        tokenizer,
        messages,
        template,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        mask=mask,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
        trust_answers=trust_answers,
        variables=variables,
        date=date,
        max_characters=max_characters,
    )
    return _finish(steps, encode_result(tokenizer, next(steps), **_TEXT_OPTIONS))


def encode_chats(
    tokenizer: Any,
    conversations: Iterable[tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]],
    template: str,
    *,
    threads: int | None = None,
    **options: Any,
) -> list[EncodedChat]:
    """Encodes many conversations, as `encode_chat` does. Their texts are encoded together, which is faster.

    Args:
        tokenizer: tokenizer that computes offsets.
        conversations: messages and variables of each conversation.
        template: the Jinja template.
        threads: number of threads that share the work, as in `encode_batch_result`.
        **options: other options of `encode_chat`.
    """
    steps = [
        _encode_in_steps(tokenizer, messages, template, variables=variables, **options)
        for messages, variables in conversations
    ]
    batch = encode_batch_result(tokenizer, [next(each) for each in steps], threads=threads, **_TEXT_OPTIONS)
    return [_finish(each, result) for each, result in zip(steps, batch, strict=True)]


def _finish(
    steps: Generator[str, TokenizationResult, EncodedChat], result: TokenizationResult
) -> EncodedChat:
    """Returns what `_encode_in_steps` returns when it receives the result of its text."""
    try:
        steps.send(result)
    except StopIteration as stop:
        chat: EncodedChat = stop.value
        return chat
    raise AssertionError("it yields one text")


def _encode_in_steps(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    template: str,
    *,
    add_generation_prompt: bool = False,
    continue_final_message: bool = False,
    mask: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    trust_answers: bool = True,
    variables: Mapping[str, Any] | None = None,
    date: datetime.date | str | None = None,
    max_characters: int = _MAX_CHARACTERS,
) -> Generator[str, TokenizationResult, EncodedChat]:
    """Yields the text to encode, receives its result, and returns the conversation. See `encode_chat`."""
    prompt = bool(add_generation_prompt)
    _check_options({} if variables is None else variables, prompt, continue_final_message)
    templates = import_optional("tokjax.encoding.chat.chat_template", extra="chat", purpose="encode_chat")
    compiled: ChatTemplate = templates.compile_template(template)
    control = find_control_tokens(
        tokenizer, template, allowed_special, disallowed_special, trust_answers=trust_answers
    )
    conversation = copy_messages(messages)
    excluded = pop_weights(conversation)
    control.check(conversation)
    template_variables = copy_json({"tools": None, "documents": None, **(variables or {})}, "variables")
    untrusted = {name: template_variables[name] for name in _UNTRUSTED}
    check_strings(untrusted, "variables", control.disallowed)

    now = datetime.datetime.now() if date is None else date
    clock = {"strftime_now": templates.make_clock(now)}  # the same time in all renderings
    tokens = {f"{role}_token": name for role, name in protocol.get_vocabulary(tokenizer).roles.items()}

    budget = Budget(check_int("max_characters", max_characters, minimum=1))

    renderer = _ChatRenderer(
        compiled, clock | tokens | template_variables, budget, conversation, continue_final_message
    )
    text = renderer.render(conversation, prompt).text
    renderer.texts[len(conversation), prompt] = text
    sourced = renderer.render(conversation, prompt, with_sources=True)
    literals, recognized = _find_literals(sourced, text, conversation, control)
    _check_contents(renderer, sourced.runs, template, prompt)
    if literals:
        yield ""
        result = encode_with_literals(tokenizer, text, control.names, literals)
    else:
        result = yield text
    _check_ids(tokenizer, text, result, recognized, control.not_allowed)
    if not mask:
        return EncodedChat(result, None, text)
    offsets = _get_offsets(tokenizer, text, result)
    if sourced.text != text:
        raise InvalidArgumentError(
            f"{_ANOTHER_TEXT}, so that the assistant's tokens can't be determined. It may use the time, "
            "or add text to the result of the filters 'safe' and 'e'. Pass mask=False to get the ids "
            "without a mask"
        )
    has_blocks = compiled.has_generation_blocks
    roles = [message["role"] for message in conversation]
    turns = find_turns(text, sourced.runs, roles, renderer)
    prompt_start = find_prompt(text, sourced.runs, turns, len(roles), renderer)
    characters = find_sources(text, sourced.runs, roles, turns, prompt_start, allow_lost=has_blocks)
    sources = compute_token_sources(characters, text, offsets)
    assistant_mask: Any = (
        _compute_mask(text, offsets, sourced.generated) if has_blocks else chat_loss_mask(sources.codes)
    )
    if excluded:
        assistant_mask, sources = _exclude_messages(excluded, assistant_mask, sources)
    return EncodedChat(result, assistant_mask, text, *sources)


def _find_literals(
    sourced: RenderedTemplate, text: str, messages: list[Message], control: ControlTokens
) -> tuple[dict[int, str], dict[int, str]]:
    """Finds the control tokens in a rendered text that are ordinary text of messages.

    Args:
        sourced: the text with sources.
        text: the text rendered without sources.
        messages: the messages.
        control: the control tokens.

    Returns:
        These tokens by their position, and likewise the others that are not allowed in messages.

    Raises:
        DisallowedSpecialTokenError: text of messages becomes a disallowed token, or a part of a token.
        InvalidArgumentError: the text with sources has other tokens, so that their origin is not known.
    """
    literals: dict[int, str] = {}
    recognized: dict[int, str] = {}
    if not control.not_allowed:
        return literals, recognized
    runs = sourced.runs
    stops = [stop for _, stop, _ in runs]
    matcher = compile_matcher(control.names)
    matches = list(matcher.finditer(sourced.text))

    def is_recognized(source: Source, name: str) -> bool:
        is_text = source.field in ("content", "reasoning") and name in control.trusted
        is_own = is_text and messages[source.message]["role"] == _ASSISTANT
        return (is_own or source.field == "scaffold") and not (source.is_foreign or source.lost_by)

    for match in matches:
        name = match[0]
        if name not in control.not_allowed:
            continue
        parts = runs[bisect_right(stops, match.start()) : bisect_left(stops, match.end()) + 1]
        if all(is_recognized(source, name) for *_, source in parts):
            recognized[match.start()] = name
        elif name in control.disallowed or len(parts) > 1 or parts[0][2].lost_by:
            lost_by = next((f" with {source.lost_by}" for *_, source in parts if source.lost_by), "")
            raise DisallowedSpecialTokenError(
                f"with these messages the chat template makes {name!r} of a text, a name or a key of the "
                f"messages, tools or documents{lost_by}, which would become a special token. If this is "
                f"intended, pass allowed_special={{{name!r}}}"
            )
        else:
            literals[match.start()] = name
    if sourced.text != text and (literals or matcher.findall(text) != [each[0] for each in matches]):
        raise InvalidArgumentError(f"{_ANOTHER_TEXT}, so that special tokens in messages can't be found")
    return literals, recognized


def _check_ids(
    tokenizer: Any, text: str, result: TokenizationResult, recognized: dict[int, str], names: frozenset[str]
) -> None:
    """Checks that a normalizer makes no control token of messages, for example of full-width letters.

    It may also change one that the template writes, together with the text after it, such as an accent.

    Args:
        tokenizer: the tokenizer.
        text: the encoded text.
        result: its tokens.
        recognized: the control tokens that the text has, by their positions.
        names: the tokens that are not allowed in messages. The unknown token is not checked.

    Raises:
        DisallowedSpecialTokenError: the tokens are others, or at other positions.
    """
    vocabulary = protocol.get_vocabulary(tokenizer)
    by_id = {vocabulary.get_id(name): name for name in names - {vocabulary.roles.get("unk")}}
    is_checked = np.zeros(vocabulary.size, bool)
    is_checked[list(by_id)] = True
    found = np.flatnonzero(is_checked.take(result.ids))
    expected = {start: name for start, name in recognized.items() if name in by_id.values()}
    made = [by_id[id_] for id_ in result.ids[found].tolist()]
    others = Counter(made) - Counter(expected.values())
    if result.offsets is None or result.metadata.normalizer is None:
        are_expected = not others
    else:
        starts = np.array(sorted(expected), np.int64)
        spans = _get_offsets(tokenizer, text, result)[found]  # a span may begin with whitespace
        byte_starts = char_to_byte_spans(text, np.stack([starts, starts + 1], axis=1))[:, 0]
        located = [expected[start] for start in starts.tolist()]
        are_expected = made == located and bool(
            ((spans[:, 0] <= byte_starts) & (byte_starts < spans[:, 1])).all()
        )
    if are_expected:
        return
    name = next(iter([*others, *made, *expected.values()]))
    raise DisallowedSpecialTokenError(
        f"the tokenizer normalizes a text of the messages to the control token {name!r}, or changes one; "
        f"remove it, or pass allowed_special={{{name!r}}}"
    )


def _exclude_messages(
    excluded: list[int], mask: NDArray[np.int32], sources: TokenSources
) -> tuple[NDArray[np.int32], TokenSources]:
    """Removes answers from the mask, and gives their tokens the role `other`, which no mask counts.

    Text after all messages, such as an EOS token after a loop, belongs to the last message.

    Raises:
        InvalidArgumentError: a token of the assistant is not known to be of a message.
    """
    messages = sources.messages.copy()
    last = np.flatnonzero(messages >= 0).max(initial=-1)
    messages[last + 1 :] = messages[last] if last >= 0 else -1
    if (mask[messages < 0] > 0).any():
        raise InvalidArgumentError(
            "a message has the weight 0, and the chat template writes text outside of messages in a "
            "{% generation %} block, so that the tokens of the message can't be determined"
        )
    is_excluded = np.isin(messages, excluded)
    others = sources.codes % np.int8(8) + np.int8(8 * CHAT_ROLES.index("other"))
    codes = np.where(is_excluded, others, sources.codes)
    return np.where(is_excluded, np.int32(0), mask), sources._replace(codes=codes)


def _check_options(variables: Mapping[str, Any], prompt: bool, continued: bool) -> None:
    if prompt and continued:
        raise InvalidArgumentError(
            "add_generation_prompt begins another message, and continue_final_message ends within the last "
            "one; pass one of them"
        )
    if not isinstance(variables, Mapping):
        raise InvalidArgumentError(f"variables must map names to values, not be {variables!r:.80}")
    for name in sorted(RESERVED_VARIABLES):
        if name in variables:
            raise InvalidArgumentError(f"variables has {name!r}; pass it as an argument of encode_chat")


class _ChatRenderer:
    """A compiled template with its variables, which renders a conversation, or other messages.

    Args:
        template: the template.
        variables: its variables.
        budget: the budget of all renderings.
        messages: the messages of the conversation.
        continued: whether to end within the last message of the conversation.
    """

    def __init__(
        self,
        template: ChatTemplate,
        variables: dict[str, Any],
        budget: Budget,
        messages: list[Message],
        continued: bool,
    ) -> None:
        self._template = template
        self._variables = variables
        self._budget = budget
        self.messages = messages
        self._continued = continued
        self._marker = f"\ue000{secrets.token_hex(16)}\ue001 "
        self.texts: dict[tuple[int, bool], str | None] = {}

    def render(
        self, messages: list[Message], prompt: bool, *, with_sources: bool = False
    ) -> RenderedTemplate:
        """Renders messages.

        Args:
            messages: the messages.
            prompt: whether to write a generation prompt.
            with_sources: whether to follow the sources of the text.
        """
        is_continued = self._continued and len(messages) == len(self.messages)
        completed = add_reasoning_aliases(mark_end(messages, self._marker) if is_continued else messages)
        variables = self._variables | {"messages": completed, "add_generation_prompt": prompt}
        tracker = None
        if with_sources:
            tracker = Tracker({i for i, message in enumerate(messages) if message["role"] == _ASSISTANT})
            variables |= {name: tracker.copy(variables[name]) for name in _UNTRUSTED}
            variables["messages"] = tracker.add_sources(completed)
        rendered = self._template.render(variables, self._budget, tracker)
        return self._cut(rendered) if is_continued else rendered

    def try_rendering_text(self, messages: list[Message], prompt: bool) -> str | None:
        """Renders messages and returns the text; `None` if the template rejects them."""
        try:
            return self.render(messages, prompt).text
        except InvalidArgumentError:  # for example, it needs a message of the user, or takes no lists
            if self._budget.remaining < 0:  # the limit of work is an error of the template
                raise
            return None

    def get_text(self, num_messages: int, prompt: bool) -> str | None:
        """Renders the first messages of the conversation; `None` if the template rejects them."""
        key = num_messages, prompt
        if key not in self.texts:
            self.texts[key] = self.try_rendering_text(self.messages[:num_messages], prompt)
        return self.texts[key]

    def get_text_after_messages(self, num_messages: int, prompt: bool) -> str:
        """Returns the text after the last text of a message; empty if the template rejects the messages."""
        text = self.get_text(num_messages, prompt)
        if text is None:
            return ""
        runs = self.render(self.messages[:num_messages], prompt, with_sources=True).runs
        return text[max((stop for _, stop, source in runs if source.field != "scaffold"), default=0) :]

    def _cut(self, rendered: RenderedTemplate) -> RenderedTemplate:
        """Removes the marker at the end of the last message, and the text after it."""
        text, spans, runs = rendered
        start = text.rfind(self._marker.strip())
        if start < 0:
            raise InvalidArgumentError(
                "the chat template does not write the end of the last message, where "
                "continue_final_message=True ends"
            )
        is_trimmed = not text.startswith(self._marker, start)
        text = text[:start].rstrip() if is_trimmed else text[:start]
        end = len(text)
        return rendered._replace(
            text=text,
            generated=[(start, min(stop, end)) for start, stop in spans if start < end],
            runs=[(start, min(stop, end), source) for start, stop, source in runs if start < end],
        )


def _check_contents(renderer: _ChatRenderer, runs: Sequence[SourceRun], template: str, prompt: bool) -> None:
    """Checks that the template writes each message that has a text.

    A function can lose the sources of a text. Then other texts give another result.

    Args:
        renderer: the template and the messages.
        runs: the sources of the text that the template writes for them.
        template: the Jinja template, for the error.
        prompt: whether the text ends with a generation prompt.

    Raises:
        InvalidArgumentError: nothing is written of the texts of a message.
    """
    messages, render = renderer.messages, renderer.try_rendering_text

    def is_written(i: int, part: Message, rendered: list[Message], with_prompt: bool = prompt) -> bool:
        changed = rendered[i] | change_texts(part) | {"role": rendered[i]["role"]}
        others = [*rendered[:i], changed, *rendered[i + 1 :]]
        written = render(rendered, with_prompt)
        return written is not None and written != render(others, with_prompt)

    written = {(source.message, source.field) for *_, source in runs}
    for i, part in find_unwritten_messages(messages, written):
        message = messages[i]
        role, content = message["role"], message.get("content")
        # Mistral's templates write instructions with the last question, and only while it has no answer.
        question = next((j for j in range(i, len(messages)) if messages[j]["role"] == "user"), i)
        if is_written(i, part, messages) or (
            role in _INSTRUCTIONS and is_written(i, part, messages[: question + 1], with_prompt=True)
        ):
            continue
        problem = "the template writes lists of parts"
        other: list[Any] | None = [{"type": "text", "text": content}]
        if not content or not str(content).strip():
            problem, other = "the template writes tool calls if it is null", None
        changed = message | {"content": other}
        others = [*messages[:i], changed, *messages[i + 1 :]]
        if isinstance(content, str) and is_written(i, changed if part is message else part, others):
            example = {"role": role, "content": other and [{"type": "text", "text": "..."}]}
            raise InvalidArgumentError(
                f"the chat template {template!r:.60}... drops messages[{i}], because its content is a "
                f"text and {problem}; pass the message as {example}"
            )
        dropped = f"messages[{i}]" if part is message else f"{list(part)} of messages[{i}]"
        raise InvalidArgumentError(
            f"the chat template {template!r:.60}... writes no text of {dropped}, which has the role {role!r} "
            f"and the keys {list(message)[:20]}; pass a role and keys that the template reads, or remove the "
            "message"
        )


def _get_offsets(tokenizer: Any, text: str, result: TokenizationResult) -> NDArray[np.integer[Any]]:
    """Returns the byte spans of tokens in the text that was given."""
    if result.offsets is None:
        raise InvalidArgumentError(
            f"{type(tokenizer).__name__} does not compute offsets, which the mask of the assistant's tokens "
            "needs; pass mask=False"
        )
    offsets: NDArray[np.integer[Any]] = protocol.map_offsets_to_input(tokenizer, text, result).offsets
    return offsets


def _compute_mask(
    text: str, offsets: NDArray[np.integer[Any]], spans: list[tuple[int, int]]
) -> NDArray[np.int32]:
    """Returns a mask with 1 for tokens that overlap any of the spans.

    Args:
        text: the encoded text.
        offsets: byte spans of its tokens.
        spans: disjoint character spans `(start, stop)`, 0-based and half-open.

    Returns:
        `int32`, shape `(num_tokens,)`.
    """
    bounds = char_to_byte_spans(text, np.array(sorted(spans), np.int64).reshape(-1, 2))
    # A token overlaps a span only if it overlaps the last span that begins before the token ends. Tokens
    # before the first span have index -1, which is the appended entry, so that they overlap nothing.
    last = np.searchsorted(bounds[:, 0], offsets[:, 1], "left") - 1
    stops = np.append(bounds[:, 1], 0)
    return (offsets[:, 0] < stops[last]).astype(np.int32)
