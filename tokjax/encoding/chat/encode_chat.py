r"""Encoding of conversations with chat templates, with the role and the field of each token.

The assistant's text is located by its source, not by searching for it. Conversations are rendered separately
(`rendering`), so that each character has its role, field and message. Then their texts are encoded together,
and each token gets the columns of one of its characters.

Messages come from users, who could forge a turn with the text `<|im_end|>`. So by default special tokens in
messages raise an error (`ControlTokens.check`). If a caller wants them as ordinary text, they are
distinguished from those that the template writes by the sources of the rendered text:

    message                 "say <|im_end|>"
    rendered                "<|im_start|>user\nsay <|im_end|><|im_end|>"
    sources                  template           message   template
    split                   "<|im_start|>" | "user\nsay <|im_end|>" | "<|im_end|>"

The outer parts are encoded as special tokens, and the middle one as ordinary text, if the separate ids are
those of the whole text. Otherwise this raises an error.
"""

from __future__ import annotations

import datetime
import inspect
from collections import Counter
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from tokjax._util.display import short_repr
from tokjax.core import protocol
from tokjax.core.encode_options import accept_options
from tokjax.core.ragged import COLUMNS, Ragged, make_row_splits
from tokjax.core.records import make_batch_without_copy
from tokjax.core.utf8 import count_bytes, find_character_starts
from tokjax.encoding.chat.messages import copy_messages, exclude_answer
from tokjax.encoding.chat.rendering import RANKS, ChatRenderer
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError, TokjaxError
from tokjax.pretokenize.special_tokens import compile_matcher, has_special

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Unpack

    from numpy.typing import NDArray

    from tokjax.core.encode_options import Special
    from tokjax.core.records import TokenizationBatch, TokenizationResult
    from tokjax.encoding.chat.rendering import CharacterRuns, RenderedChat

_MAX_CHARACTERS = 1 << 22


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


@short_repr
class EncodedChats(NamedTuple):
    """Tokens of many conversations. The columns are those of all of them, one after the other.

    Attributes:
        result: the encoded `texts`; `result.row_splits` has the bounds of each conversation.
        assistant_mask: as in `EncodedChat`, `int32`, shape `(num_tokens,)`, or `None`.
        texts: the rendered conversations.
        sources: as in `EncodedChat`, `int8`, shape `(num_tokens,)`, or `None`.
        message_indices: as in `EncodedChat`, `int32`, shape `(num_tokens,)`, or `None`.
    """

    result: TokenizationBatch
    assistant_mask: NDArray[np.int32] | None
    texts: tuple[str, ...]
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

    The assistant's tokens are the contents of `{% generation %}` blocks if the template has such blocks, and
    a header ends where a block begins. Otherwise they are the turns of the assistant. A turn begins where the
    text of the messages before it with a generation prompt ends. (If the template has no generation prompt,
    it includes the role.) It ends with the text that the template writes for its end, also where that is in
    front of the next message. A message of the assistant with `"weight": 0` or `"train": False` has no tokens
    in `assistant_mask`, and its tokens have the role `other` in `sources`. With 1, `True`, `None` or neither
    key it counts. If the template writes earlier answers otherwise than it did when they were the last
    message, `chat_examples` trains each as it was produced.

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
    chats = encode_chats(
        tokenizer,
        [messages],
        template,
        variables=[variables],
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        mask=mask,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
        trust_answers=trust_answers,
        date=date,
        max_characters=max_characters,
    )
    return EncodedChat(chats.result[0], chats.assistant_mask, chats.texts[0], *chats[3:])


class ChatOptions(TypedDict, total=False):
    """Options of `encode_chat`, which documents them, that other functions of conversations share."""

    add_generation_prompt: bool
    continue_final_message: bool
    mask: bool
    allowed_special: Special
    disallowed_special: Special
    trust_answers: bool
    date: datetime.date | str | None
    max_characters: int


CHAT_DEFAULTS = {
    name: inspect.signature(encode_chat).parameters[name].default for name in ChatOptions.__annotations__
}


@accept_options(ChatOptions, **CHAT_DEFAULTS)
def encode_chats(
    tokenizer: Any,
    conversations: Sequence[Sequence[Mapping[str, Any]]],
    template: str,
    *,
    variables: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    threads: int | None = None,
    **options: Unpack[ChatOptions],
) -> EncodedChats:
    r"""Encodes many conversations, as `encode_chat` does. Their texts are encoded together, which is faster.

    Args:
        tokenizer: any registered tokenizer. With `mask=True` it must compute offsets.
        conversations: the messages of each conversation.
        template: the Jinja template.
        variables: other variables of the template: a mapping, or a list with one for each conversation.
        threads: number of cores to use, as in `encode_batch_result`.
        **options: other options of `encode_chat`.

    Raises:
        InvalidArgumentError: as for `encode_chat`; a note of the error has the index of the conversation.

    >>> from tokjax import byte_level, decode
    >>> question, answer = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
    >>> template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    >>> chats = encode_chats(byte_level(), [[question, answer], [question]], template)
    >>> chats.result.row_splits.tolist(), decode(byte_level(), chats.result.ids[chats.assistant_mask == 1])
    ([0, 26, 35], '[assistant]hello\n')
    """
    renderer = ChatRenderer(tokenizer, template, CHAT_DEFAULTS | options)
    conversations = list(conversations)
    own = variables if isinstance(variables, (list, tuple)) else [variables] * len(conversations)
    if len(own) != len(conversations):
        raise InvalidArgumentError(
            f"variables has {len(own)} mappings, and there are {len(conversations)} conversations; pass one "
            "mapping for all, or a list with one for each"
        )
    chats = []
    for i, each in enumerate(zip(conversations, own, strict=True)):
        with _note_conversation(i, conversations):
            chats.append(renderer.render_chat(*each))
    texts = tuple(chat.text for chat in chats)
    batch = _encode_rendered(tokenizer, chats, renderer.control.names, threads)
    _check_ids(tokenizer, chats, batch, renderer.control.not_allowed)
    runs = [chat.runs for chat in chats if chat.runs]
    if not runs:
        nothing = np.zeros(0, np.int32), texts, np.zeros(0, np.int8), np.zeros(0, np.int32)
        return EncodedChats(batch, *((None, texts) if texts else nothing))
    offsets = _get_offsets(tokenizer, texts, batch)
    mask, sources, message_indices = _compute_columns(runs, texts, offsets, batch.lengths)
    return EncodedChats(batch, mask, texts, sources, message_indices)


@contextmanager
def _note_conversation(index: int, conversations: Sequence[Any]) -> Iterator[None]:
    """Adds the index of a conversation to errors, if there are several."""
    try:
        yield
    except TokjaxError as error:
        if len(conversations) > 1:
            error.add_note(f"in conversations[{index}]")
        raise


@accept_options(ChatOptions, **CHAT_DEFAULTS)
def chat_examples(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    template: str,
    *,
    variables: Mapping[str, Any] | None = None,
    **options: Unpack[ChatOptions],
) -> list[EncodedChat]:
    """Encodes a conversation so that each answer is trained once, in the form in which it was produced.

    Templates may write an answer differently once other messages follow it: without its reasoning, or with
    another end of the turn. `encode_chat` then trains on what the model never produced. Here the conversation
    is rendered up to each answer. A rendering serves for several answers as long as it begins with the text
    of the one before; where the template changes an earlier text, a new example begins. So a template that
    only appends needs one example, and one that drops the reasoning of earlier turns needs one for each
    question of the user.

    Args:
        tokenizer: any registered tokenizer that computes offsets.
        messages: the messages, as for `encode_chat`. Those after the last answer are left out.
        template: the Jinja template.
        variables: other variables of the template.
        **options: other options of `encode_chat`.

    Returns:
        The examples in order. Answers that an earlier example trains are like those of the weight 0. Without
        answers, there are none.

    Raises:
        InvalidArgumentError: as for `encode_chat`; or an option would change the end of the text, or leave
            out the mask.

    >>> from tokjax import byte_level, decode
    >>> template = "{% for m in messages %}{% if loop.last %}({{ m.thinking }}){% endif %}{{ m.content }};"
    >>> answers = [{"role": "assistant", "content": c, "thinking": t} for c, t in ("ax", "by")]
    >>> for chat in chat_examples(byte_level(), answers, template + "{% endfor %}"):
    ...     print(chat.text, decode(byte_level(), chat.result.ids[chat.assistant_mask == 1]))
    (x)a; (x)a;
    a;(y)b; (y)b;
    """
    settings: dict[str, Any] = CHAT_DEFAULTS | options
    if settings["add_generation_prompt"] or settings["continue_final_message"] or not settings["mask"]:
        raise InvalidArgumentError(
            "chat_examples ends each text after an answer, and needs the mask; pass neither "
            "add_generation_prompt, continue_final_message nor mask=False"
        )
    settings["date"] = settings["date"] or datetime.datetime.now()  # the same in all renderings
    renderer = ChatRenderer(tokenizer, template, settings | {"mask": False})
    copied = copy_messages(messages)
    answers = [i for i, message in enumerate(copied) if message["role"] == "assistant"]
    texts = [renderer.render_chat(copied[: i + 1], variables).text for i in answers]
    # An example begins with the first answer, and after one whose text is not the start of the next text.
    begins = [k for k in range(len(answers)) if k == 0 or not texts[k].startswith(texts[k - 1])]
    last = [answers[stop - 1] for stop in [*begins[1:], len(answers)]] if answers else []
    chats = []
    for first, stop in zip(begins, last, strict=True):
        earlier = answers[:first]
        example = [
            exclude_answer(each) if i in earlier else each for i, each in enumerate(copied[: stop + 1])
        ]
        chats.append(encode_chat(tokenizer, example, template, variables=variables, **settings))
    return chats


def _encode_rendered(
    tokenizer: Any, chats: Sequence[RenderedChat], names: frozenset[str], threads: int | None
) -> TokenizationBatch:
    """Encodes rendered texts with their control tokens recognized, except for those that are ordinary text.

    Args:
        tokenizer: any registered tokenizer.
        chats: the conversations.
        names: the control tokens.
        threads: number of cores to use.
    """
    options: dict[str, Any] = {"add_special_tokens": False, "disallowed_special": ()}
    texts = [chat.text for chat in chats if not chat.literals]
    plain = protocol.encode_texts(tokenizer, texts, allowed_special="all", threads=threads, **options)
    if len(texts) == len(chats):
        return plain
    remaining = iter(plain)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    lengths = []
    for i, chat in enumerate(chats):
        if chat.literals:
            with _note_conversation(i, chats):
                parts = _split_at_literals(tokenizer, chat, names)
                results = [
                    protocol.encode_texts(model, [part], allowed_special=allowed, **options)[0]
                    for part, model, allowed in parts
                ]
            rows = _shift_parts(tokenizer, [part for part, *_ in parts], results)
        else:
            rows = [{name: getattr(result, name) for name in COLUMNS} for result in [next(remaining)]]
        lengths.append(sum(len(row["ids"]) for row in rows))
        for name, column in columns.items():
            column += [row[name] for row in rows]
    joined: dict[str, Any] = {
        name: None if column[0] is None else np.concatenate(column) for name, column in columns.items()
    }
    get_token_strings = protocol.get_vocabulary(tokenizer).get_token_strings
    ragged = Ragged(**joined, row_splits=make_row_splits(lengths))
    return make_batch_without_copy(ragged, plain.metadata, get_token_strings, has_attention_mask=True)


def _split_at_literals(
    tokenizer: Any, chat: RenderedChat, names: frozenset[str]
) -> list[tuple[str, Any, Any]]:
    """Splits a text with control tokens that are ordinary text.

    Returns:
        The text, the tokenizer and the allowed tokens of each part.

    Raises:
        InvalidArgumentError: the tokenizer can't encode one of them as ordinary text next to a control token
            of the template.
    """
    text, literals = chat.text, chat.literals
    matched = frozenset(literals.values()) - protocol.get_vocabulary(tokenizer).special_names
    literal_tokenizer = protocol.make_special(tokenizer, matched) if matched else tokenizer
    pieces, position = [""], 0
    for match in compile_matcher(names).finditer(text):
        if match.start() not in literals:
            pieces += [text[position : match.start()], match.group()]
            position = match.end()
    pieces += [text[position:], ""]
    parts: list[tuple[str, Any, Any]] = []
    recognized = ""
    # `pieces` alternates between control tokens and ordinary text. Text without literal ones is collected
    # with the control tokens around it, and encoded in one call.
    for special, ordinary, following in zip(pieces[:-1:2], pieces[1::2], pieces[2::2], strict=True):
        if not has_special(ordinary, names):
            recognized += special + ordinary
            continue
        parts.append((recognized, tokenizer, "all"))
        recognized = ""
        # The text is split here. That is correct only if the tokenizer encodes both sides independently,
        # which is not the case, for example, if the special token removes the whitespace next to it.
        is_free_after = all(_is_separable(tokenizer, end, following) for end in ("x", "x \n"))
        if is_free_after and all(_is_separable(tokenizer, special, start) for start in ("x", " x", "\nx")):
            parts += [(special, tokenizer, "all"), (ordinary, literal_tokenizer, ())]
        elif is_free_after and special not in ordinary:  # it changes the text after it: encode both together
            parts.append((special + ordinary, literal_tokenizer, {special}))
        else:
            raise InvalidArgumentError(
                f"{type(tokenizer).__name__} can't encode {sorted({*literals.values()})} as ordinary text "
                f"between {special!r} and {following!r}, because the ids depend on the text beside these "
                "(SentencePiece can add or remove spaces there); remove them from the messages, or pass "
                "allowed_special= to recognize them"
            )
    parts.append((recognized, tokenizer, "all"))
    return [part for part in parts if part[0]]


def _is_separable(tokenizer: Any, first: str, second: str) -> bool:
    """Returns whether the ids of two concatenated texts are the concatenated ids of each.

    One of the texts is a special token or empty.
    """
    if not first or not second:
        return True
    options: dict[str, Any] = {"add_special_tokens": False, "return_offsets": False, "return_masks": False}
    batch = protocol.encode_texts(
        tokenizer, [first + second, first, second], allowed_special="all", **options
    )
    combined, *separate = (row.ids for row in batch)
    return bool(np.array_equal(combined, np.concatenate(separate)))


def _shift_parts(
    tokenizer: Any, texts: Sequence[str], results: Sequence[TokenizationResult]
) -> list[dict[str, Any]]:
    """Returns the columns of consecutive parts of a text. Offsets and `word_ids` refer to the whole text."""
    rows: list[dict[str, Any]] = []
    num_bytes, num_words = 0, 0
    for text, result in zip(texts, results, strict=True):
        row = {name: getattr(result, name) for name in COLUMNS}
        if result.offsets is not None:  # (0, 0) stays the sentinel for tokens without text
            row["offsets"] = np.where(result.offsets > 0, result.offsets + num_bytes, 0)
        if result.word_ids is not None:
            row["word_ids"] = np.where(result.word_ids >= 0, result.word_ids + num_words, -1).astype(np.int32)
            num_words += int(result.word_ids.max(initial=-1)) + 1
        is_normalized = result.metadata.offsets_reference == "tokenizer_normalized_text"
        num_bytes += count_bytes(protocol.tokenization_view(tokenizer, text) if is_normalized else text)
        rows.append(row)
    return rows


def _check_ids(
    tokenizer: Any, chats: Sequence[RenderedChat], batch: TokenizationBatch, names: frozenset[str]
) -> None:
    """Checks that a normalizer makes no control token of messages, for example of full-width letters.

    It may also change one that the template writes, together with the text after it, such as an accent.

    Args:
        tokenizer: the tokenizer.
        chats: the rendered conversations.
        batch: their tokens.
        names: the tokens that are not allowed in messages. The unknown token is not checked.

    Raises:
        DisallowedSpecialTokenError: the tokens are others, or at other positions.
    """
    vocabulary = protocol.get_vocabulary(tokenizer)
    by_id = {vocabulary.get_id(name): name for name in names - {vocabulary.roles.get("unk")}}
    is_checked = np.zeros(vocabulary.size, bool)
    is_checked[list(by_id)] = True
    found = np.flatnonzero(is_checked.take(batch.ids))
    rows = np.searchsorted(batch.row_splits, found, "right") - 1
    made = [(row, by_id[id_]) for row, id_ in zip(rows.tolist(), batch.ids[found].tolist(), strict=True)]
    expected, starts = [], []
    needs_positions = batch.offsets is not None and batch.metadata.normalizer is not None
    for row, chat in enumerate(chats):
        recognized = {start: name for start, name in chat.recognized.items() if name in by_id.values()}
        expected += [(row, name) for name in recognized.values()]
        if needs_positions:
            starts += find_character_starts(chat.text)[list(recognized)].tolist()
    wrong = list(Counter(made) - Counter(expected))
    if needs_positions and not wrong:
        spans = _get_offsets(tokenizer, [chat.text for chat in chats], batch)[found]
        wrong = [pair for pair, other in zip_longest(expected, made) if pair != other] or [
            pair
            for pair, position, (start, stop) in zip(made, starts, spans.tolist(), strict=True)
            if not start <= position + 1 < stop  # (a span may begin with whitespace)
        ]
    if not wrong:
        return
    row, name = wrong[0]
    with _note_conversation(row, chats):
        raise DisallowedSpecialTokenError(
            f"the tokenizer normalizes a text of the messages to the control token {name!r}, or changes one; "
            f"remove it, or pass allowed_special={{{name!r}}}"
        )


def _get_offsets(tokenizer: Any, texts: Sequence[str], batch: TokenizationBatch) -> NDArray[np.integer[Any]]:
    """Returns the byte spans of tokens in the texts that were given."""
    if batch.offsets is None:
        raise InvalidArgumentError(
            f"{type(tokenizer).__name__} does not compute offsets, which the mask of the assistant's tokens "
            "needs; pass mask=False"
        )
    offsets: NDArray[np.integer[Any]] = protocol.map_offsets_to_input(tokenizer, texts, batch).offsets
    return offsets


def _compute_columns(
    runs: Sequence[CharacterRuns],
    texts: Sequence[str],
    offsets: NDArray[np.integer[Any]],
    lengths: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.int8], NDArray[np.int32]]:
    """Computes the mask, the source and the message of each token.

    A token with text of several runs gets the source of the first one of the highest rank: text of an answer,
    then other text of a message, then scaffold of a message, then everything else. It is in the mask if one
    of its runs is.

    Args:
        runs: the runs of each text.
        texts: the texts.
        offsets: byte spans of the tokens in their text, 1-based and half-open, shape `(num_tokens, 2)`.
        lengths: number of tokens of each text.
    """
    bases = make_row_splits(map(count_bytes, texts))
    starts = np.concatenate([each.starts + base for each, base in zip(runs, bases[:-1], strict=True)])
    codes, messages, is_target = map(np.concatenate, list(zip(*runs, strict=True))[1:])
    last_runs = np.cumsum([len(each.starts) for each in runs]) - 1
    shifts = np.repeat(bases[:-1] - 1, lengths)
    first = np.searchsorted(starts, offsets[:, 0] + shifts, "right") - 1
    first = np.minimum(first, np.repeat(last_runs, lengths))
    last = np.searchsorted(starts, offsets[:, 1] + shifts, "left") - 1
    has_text = offsets[:, 1] > 0
    mask = has_text & is_target[first]
    several = np.flatnonzero(has_text & (last > first))  # tokens with text of several runs
    ranks, chosen = np.where(messages < 0, 0, RANKS.take(codes)), first[several]
    for rank in (1, 2, 3):
        # The index of the next run of this rank, from each one on; a large one if there is none.
        indices = np.where(ranks == rank, np.arange(len(starts)), len(starts))
        following = np.minimum.accumulate(indices[::-1])[::-1][first[several]]
        chosen = np.where(following <= last[several], following, chosen)
    num_targets = make_row_splits(is_target)
    mask[several] = num_targets[last[several] + 1] > num_targets[first[several]]
    first[several] = chosen
    return (
        mask.astype(np.int32),
        np.where(has_text, codes[first], np.int8(0)),
        np.where(has_text, messages[first], np.int32(-1)),
    )
