"""Preference pairs: records with a chosen and a rejected answer, and their tokens with loss masks.

The prompt of a pair is part of both sides. A side of texts is encoded as one text, so that its ids are those
that the model sees elsewhere. Its targets begin after the ids that the prompt and both sides share:

    record      {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5."}
    chosen      2  +  2  =  4  </s>           rejected    2  +  2  =  5  .  </s>
    loss mask   0  0  0  0  1  1                          0  0  0  0  1  1  1

A side of messages is encoded with a chat template. Its targets are the assistant's tokens after the prompt.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core import protocol
from tokjax.datasets.fields.conversation import VARIABLE_KEYS, Conversation, find_key, read_messages
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text
    from tokjax.datasets.fields.conversation import ConversationField
    from tokjax.encoding.chat.messages import Message

SIDES = ("chosen", "rejected")
PROMPT_KEYS = ("prompt", "conversations")
"""Keys of a record that can have the prompt. ShareGPT's format has the second."""
PAIR_KEYS = (*PROMPT_KEYS, *SIDES, *VARIABLE_KEYS)
"""Keys of a record that form a preference pair."""


class EncodedSide(NamedTuple):
    """Tokens of one side of a preference pair, with its prompt.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        loss_mask: whether each token is a target, `bool`, shape `(num_tokens,)`.
    """

    ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]


EncodedPair = tuple[EncodedSide, EncodedSide]


def encode_text_pairs(
    tokenizer: Any,
    texts: Sequence[Text],
    *,
    allowed_special: Special,
    disallowed_special: Special,
    threads: int | None,
) -> list[EncodedPair]:
    """Encodes preference pairs of texts. Each side begins with BOS, if there is one, and ends with EOS.

    Args:
        tokenizer: tokenizer with an EOS token.
        texts: records with the keys of `PAIR_KEYS`, as JSON objects.
        allowed_special: special tokens that are recognized in the texts: names, or `"all"`.
        disallowed_special: special tokens that raise an error in the texts.
        threads: number of threads that share the work, as in `encode_batch_result`.

    Raises:
        InvalidArgumentError: a record is not a preference pair of texts.
    """
    pairs = [_parse_texts(json.loads(text)) for text in texts]
    batch = protocol.encode_texts(
        tokenizer,
        [text for pair in pairs for text in pair if text is not None],
        add_special_tokens=False,
        return_offsets=False,
        return_masks=False,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
        threads=threads,
    )
    vocabulary = protocol.get_vocabulary(tokenizer)
    special = vocabulary.get_role_id("bos"), vocabulary.get_role_id("eos")
    bos, eos = ([] if i is None else [i] for i in special)
    rows = iter(row.ids for row in batch)
    encoded = ([next(rows) for text in pair if text is not None] for pair in pairs)
    return [_add_loss_masks(parts, bos, eos) for parts in encoded]


def _parse_texts(record: Mapping[str, Any]) -> tuple[str | None, str, str]:
    """Returns the prompt, if there is one, and both sides with the prompt."""
    prompt_key = _check_keys(record)
    for key in PAIR_KEYS:
        if key in record and not isinstance(record[key], str):
            raise InvalidArgumentError(
                f"{key!r} is {record[key]!r:.80}, and the field encodes texts; for messages, pass "
                "PreferenceField(tokenizer, template), with a chat template such as load_chat_template(PATH)"
            )
    chosen, rejected = (record[side] for side in SIDES)
    if prompt_key is None:
        return None, chosen, rejected
    prompt = record[prompt_key]
    return prompt, prompt + chosen, prompt + rejected


def _add_loss_masks(parts: list[NDArray[np.int32]], bos: list[int], eos: list[int]) -> EncodedPair:
    """Adds special tokens to both sides of a pair. Ids that the sides and the prompt share do not count.

    A token at the border that has characters of the prompt and of an answer is a target of both sides.

    Args:
        parts: ids of the prompt, if there is one, and of both sides.
        bos: id of the BOS token, if there is one.
        eos: id of the EOS token.
    """
    num_before = len(bos) + _count_shared(parts)
    full = (np.concatenate([bos, ids, eos]).astype(np.int32) for ids in parts[-2:])
    chosen, rejected = (EncodedSide(ids, np.arange(len(ids)) >= num_before) for ids in full)
    return chosen, rejected


def _count_shared(rows: Sequence[NDArray[Any]]) -> int:
    """Returns the length of the longest common prefix of several arrays."""
    length = min(map(len, rows))
    differs = np.any([row[:length] != rows[0][:length] for row in rows], axis=0)
    return int(differs.argmax()) if differs.any() else length


def encode_chat_pairs(
    field: ConversationField, texts: Sequence[Text], threads: int | None
) -> list[EncodedPair]:
    """Encodes preference pairs of messages with the chat template of a field.

    Args:
        field: field with a tokenizer that computes offsets.
        texts: records with the keys of `PAIR_KEYS`, as JSON objects.
        threads: number of threads that share the work, as in `encode_batch_result`.

    Raises:
        InvalidArgumentError: a record is not a preference pair of messages.
    """
    conversations = []
    for record in map(json.loads, texts):
        prompt, *completions = _parse_messages(record)
        conversations += [Conversation([*prompt, *each], record, len(prompt)) for each in completions]
    encoded = field.encode_messages(conversations, threads)
    sides = [EncodedSide(chat.result.ids, is_target) for chat, is_target in encoded]
    return list(zip(sides[::2], sides[1::2], strict=True))


def _parse_messages(record: Mapping[str, Any]) -> tuple[list[Message], list[Message], list[Message]]:
    """Returns the messages of the prompt, and those of each side after the prompt."""
    prompt_key = _check_keys(record)
    chosen, rejected = (_read_messages(record, side) for side in SIDES)
    shared = next(
        (i for i, pair in enumerate(zip(chosen[:-1], rejected[:-1], strict=False)) if pair[0] != pair[1]),
        min(len(chosen), len(rejected)) - 1,
    )
    if prompt_key and isinstance(record[prompt_key], str):  # a copy of a message of both sides
        text = record[prompt_key]
        if all(message.get("content") != text for message in chosen[:shared]):
            raise InvalidArgumentError(
                f"{prompt_key!r} is the text {text!r:.80}, which is not a message at the start of both "
                "sides; pass the prompt as messages, such as [{'role': 'user', 'content': prompt}]"
            )
    elif prompt_key:
        prompt = _read_messages(record, prompt_key)
        if chosen[:shared][: len(prompt)] != prompt:
            return prompt, chosen, rejected
        shared = len(prompt)
    return chosen[:shared], chosen[shared:], rejected[shared:]


def _read_messages(record: Mapping[str, Any], key: str) -> list[Message]:
    """Returns the messages of a side or of the prompt."""
    value = record[key]
    if isinstance(value, str):
        raise InvalidArgumentError(
            f"{key!r} is the text {value!r:.80}, and the field has a chat template, which needs messages, "
            "such as [{'role': 'user', 'content': text}]; to encode texts as they are, pass "
            "PreferenceField(tokenizer) without a template"
        )
    messages = read_messages(record, key)
    if not messages:
        raise InvalidArgumentError(
            f"{key!r} has no messages; pass a list such as [{{'role': 'user', 'content': text}}]"
        )
    return messages


def _check_keys(record: Mapping[str, Any]) -> str | None:
    """Checks the keys of a record, and returns the one of the prompt; `None` if it has none."""
    missing = [side for side in SIDES if side not in record]
    if missing:
        raise InvalidArgumentError(
            f"the record has no {missing[0]!r}; a preference pair has 'chosen' and 'rejected', and "
            f"optionally 'prompt', and this one has {list(record)}"
        )
    return find_key(record, PROMPT_KEYS)
