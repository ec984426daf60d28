"""`PreferenceField`: pairs of a chosen and a rejected answer, and their tokens with loss masks.

The prompt of a pair is part of both sides. A side of texts is encoded as one text, so that its ids are those
that the model sees elsewhere. Its targets begin after the ids that the prompt and both sides share:

    record      {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5."}
    chosen      2  +  2  =  4  </s>           rejected    2  +  2  =  5  .  </s>
    loss mask   0  0  0  0  1  1                          0  0  0  0  1  1  1

A side of messages is encoded with a chat template. Its targets are the assistant's tokens after the prompt.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from tokjax._util.display import short_repr
from tokjax.core import protocol
from tokjax.core.ragged import Ragged, make_row_splits
from tokjax.datasets.columns import LOSS_MASK, Column
from tokjax.datasets.fields.base import RowsWithColumns
from tokjax.datasets.fields.conversation import (
    VARIABLE_KEYS,
    Conversation,
    ConversationField,
    find_key,
    read_messages,
)
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.core.encode_options import Special
    from tokjax.core.utf8 import Text
    from tokjax.encoding.chat.messages import Message


SIDES = ("chosen", "rejected")
PROMPT_KEYS = ("prompt", "conversations")
"""Keys of a record that can have the prompt. ShareGPT's format has the second."""
PAIR_KEYS = (*PROMPT_KEYS, *SIDES, *VARIABLE_KEYS)
"""Keys of a record that form a preference pair."""


@short_repr
@dataclass(frozen=True)
class PreferenceField(ConversationField):
    """Token ids of preference pairs, with a loss mask of the answers. For DPO and similar objectives.

    Documents are records with `"chosen"` and `"rejected"`, and optionally `"prompt"` (`"conversations"` in
    ShareGPT's format), as texts or as lists of messages. Without a prompt, it is what both sides begin with;
    a prompt of messages that both sides begin with is not repeated. Messages can come with variables of the
    template, as for `ChatField`.

    Each pair is one document: the prompt and the chosen answer, then the prompt and the rejected answer. The
    column `loss_mask` is 1 on the answers, and the column `rejected` on the tokens of the second side.
    `tokjax.packing.split_preference_pairs` separates the sides in the training step. Load the dataset with
    `PlannedLoader`, which keeps pairs whole.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        template: chat template of pairs of messages, as `load_chat_template` returns it (needs
            `tokjax[chat]`). `None` for pairs of texts: each side then begins with BOS, if the tokenizer
            declares it, and ends with EOS, which counts as a target.
        max_tokens: maximum number of ids per side. Longer sides are truncated at their end; `None` for no
            limit.
        allowed_special: special tokens that are recognized in texts and messages, as in `encode_chat`.
        disallowed_special: special tokens that raise an error in texts and messages, as in `encode_chat`.
        columns: other side columns, with a value per document; their values come from the records.
        variables: variables of the template for all records, as in `ChatField`.
        variable_keys: other keys of records that are variables of the template, as in `ChatField`.
        date: date that the template's `strftime_now` formats, as in `ChatField`.
        train_on: whether the tokens of `"all"` answers after the prompt count in the loss, or only those of
            the `"last"` message of the assistant.
        without_targets: what to do with pairs that have a side of which no token counts in the loss:
            `"drop"`, `"keep"` or `"raise"`, as in `ChatField`.
        trust_answers: whether control tokens are recognized in answers, as in `ChatField`.
    """

    TYPE_ID: ClassVar[int] = 46
    RECORD_KEYS: ClassVar[tuple[str, ...]] = PAIR_KEYS
    COMPUTED: ClassVar[tuple[Column, ...]] = (
        Column(LOSS_MASK, "bool", source="field"),
        Column("rejected", "bool", source="field"),
    )

    template: str | None = None
    max_tokens: int | None = None
    allowed_special: Special = ()
    disallowed_special: Special = "all"
    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Checks the options, and adds the columns of the loss mask and the sides."""
        if self.template is None:
            vocabulary = protocol.get_vocabulary(self.tokenizer)
            vocabulary.require_role("eos", "PreferenceField without a chat template")
        super().__post_init__()
        for column in self.columns:
            if column.per == "token" and column not in self.COMPUTED:
                raise InvalidArgumentError(
                    f"column {column.name!r} has a value per token, and the sides of a preference pair are "
                    "encoded separately; pass per='document'"
                )

    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> RowsWithColumns:
        """Encodes preference pairs, given as JSON objects, into ids, loss masks and sides."""
        records = map(json.loads, texts)
        encode = self._encode_texts if self.template is None else self._encode_chats
        pairs = encode(records, threads)
        sides = [side for pair in pairs for side in pair]
        kept = [side.ids[: self.max_tokens] for side in sides]
        masks = [side.loss_mask[: self.max_tokens] for side in sides]
        dropped = [len(side.ids) - len(ids) for side, ids in zip(sides, kept, strict=True)]
        lengths = [len(ids) for ids in kept]
        columns = {
            LOSS_MASK: np.concatenate([np.zeros(0, bool), *masks]),
            "rejected": np.repeat(np.arange(len(sides)) % 2 == 1, lengths),
        }
        ids = np.concatenate([np.zeros(0, np.int32), *kept])
        rows = Ragged(ids, make_row_splits(map(sum, zip(lengths[::2], lengths[1::2], strict=True))))
        return RowsWithColumns(rows, columns, np.reshape(dropped, (-1, 2)).sum(axis=1, dtype=np.int64))

    def _encode_texts(self, records: Iterable[Mapping[str, Any]], threads: int | None) -> list[EncodedPair]:
        """Encodes pairs of texts. Each side begins with BOS, if there is one, and ends with EOS."""
        pairs = list(map(_parse_texts, records))
        batch = protocol.encode_texts(
            self.tokenizer,
            [text for pair in pairs for text in pair if text is not None],
            add_special_tokens=False,
            return_offsets=False,
            return_masks=False,
            allowed_special=self.allowed_special,
            disallowed_special=self.disallowed_special,
            threads=threads,
        )
        vocabulary = protocol.get_vocabulary(self.tokenizer)
        special = vocabulary.get_role_id("bos"), vocabulary.get_role_id("eos")
        bos, eos = ([] if i is None else [i] for i in special)
        rows = iter(row.ids for row in batch)
        encoded = ([next(rows) for text in pair if text is not None] for pair in pairs)
        return [_add_loss_masks(parts, bos, eos) for parts in encoded]

    def _encode_chats(self, records: Iterable[Mapping[str, Any]], threads: int | None) -> list[EncodedPair]:
        """Encodes pairs of messages with the chat template."""
        conversations = []
        for record in records:
            prompt, *completions = _parse_messages(record)
            conversations += [Conversation([*prompt, *each], record, len(prompt)) for each in completions]
        chats, is_target = self.encode_messages(conversations, threads)
        masks = np.split(is_target, chats.result.row_splits[1:-1])
        sides = [EncodedSide(row.ids, mask) for row, mask in zip(chats.result, masks, strict=False)]
        return list(zip(sides[::2], sides[1::2], strict=True))


class EncodedSide(NamedTuple):
    """Tokens of one side of a preference pair, with its prompt.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        loss_mask: whether each token is a target, `bool`, shape `(num_tokens,)`.
    """

    ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]


EncodedPair = tuple[EncodedSide, EncodedSide]


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
