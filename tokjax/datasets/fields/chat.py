"""`ChatField`: conversations, with a loss mask of the answers."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import short_repr
from tokjax.core.ragged import ragged_from_rows
from tokjax.datasets.columns import LOSS_MASK, Column, check_columns
from tokjax.datasets.fields.conversation import (
    VARIABLE_KEYS,
    Conversation,
    ConversationField,
    find_key,
    read_messages,
)
from tokjax.datasets.fields.options import check_template, set_columns
from tokjax.datasets.fields.token_field import RowsWithColumns
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text
    from tokjax.encoding.chat.messages import Message


_MESSAGE_KEYS = ("messages", "conversations")
_SOURCES = Column("sources", "int8", source="field")
"""Column of the role and the field of each token of a conversation."""


@short_repr
@dataclass(frozen=True)
class ChatField(ConversationField):
    """Token ids of conversations, with a loss mask of the assistant's tokens. Needs `tokjax[chat]`.

    Documents are records with `"messages"`, or with `"conversations"` as in ShareGPT's format, which
    `encode_chat` encodes. They can have variables of the
    template: `"tools"`, `"documents"`, and others in the mapping `"chat_template_kwargs"` (also as texts in
    JSON), and those of `variable_keys`. The column `loss_mask` is 1 on the tokens of the assistant. The
    dataset opens as a `PackedDataset`, and every loader of ids can load it. With
    `Column("sources", "int8", source="field")` among the columns, the role and the field of each token are
    stored, too, for `tokjax.objectives.chat_loss_mask`.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        template: chat template, as `load_chat_template` returns it.
        max_tokens: maximum number of ids per conversation. Longer ones are truncated at their end; `None` for
            no limit.
        chunk_tokens: number of ids that `PackedTokenLoader` returns per chunk by default.
        allowed_special: special tokens that are recognized in messages, as in `encode_chat`.
        disallowed_special: special tokens that raise an error in messages, as in `encode_chat`.
        columns: other side columns; their values come from the records. A column per token has one value for
            each id of the conversation.
        variables: variables of the template for all records, such as `{"enable_thinking": False}`, as JSON
            data. Those of a record take precedence.
        variable_keys: other keys of records that are variables of the template, such as
            `["enable_thinking"]`. Special tokens in their texts raise an error unless they are allowed.
        date: date that the template's `strftime_now` formats for all records: text such as `"2026-11-27"`, or
            a `datetime.date`. `None` for the day on which `write_dataset` is started, which the manifest
            keeps, so that a writer that resumes uses the same date.
        train_on: whether the tokens of `"all"` answers count in the loss, or only those of the `"last"`
            message of the assistant.
        without_targets: what to do with conversations of which no token counts in the loss, because they have
            no answer or `max_tokens` removes it: `"drop"` leaves them out and counts them, `"keep"` stores
            them, and `"raise"` raises an error. The first token never counts, as none comes before it.
        trust_answers: whether control tokens that are not special, such as `<think>`, are recognized in
            answers, as in `encode_chat`.
    """

    TYPE_ID: ClassVar[int] = 45
    RECORD_KEYS: ClassVar[tuple[str, ...]] = (*_MESSAGE_KEYS, *VARIABLE_KEYS)

    template: str
    max_tokens: int | None = None
    chunk_tokens: int = 4096
    allowed_special: Special = ()
    disallowed_special: Special = "all"
    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Checks the options, and adds the column of the loss mask."""
        check_template(self.template)
        super().__post_init__()
        object.__setattr__(self, "chunk_tokens", check_int("chunk_tokens", self.chunk_tokens, minimum=1))
        mask = Column(LOSS_MASK, "bool", source="field")
        others = [column for column in check_columns("ChatField", self.columns) if column != mask]
        for column in others:
            if column.source == "field" and column != _SOURCES:
                raise InvalidArgumentError(
                    f"ChatField computes no {column}; it computes {LOSS_MASK!r} and {_SOURCES}"
                )
        object.__setattr__(self, "columns", [mask, *others])
        set_columns(self)

    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> RowsWithColumns:
        """Encodes conversations, given as JSON objects, into ids and loss masks, without truncation."""
        ids, masks, sources = [], [], []
        records = map(json.loads, texts)
        conversations = [Conversation(_read_conversation(record), record) for record in records]
        for chat, is_target in self.encode_messages(conversations, threads):
            ids.append(chat.result.ids)
            masks.append(is_target)
            sources.append(np.asarray(chat.sources, np.int8))
        columns: dict[str, Any] = {LOSS_MASK: np.concatenate([np.zeros(0, bool), *masks])}
        if any(column == _SOURCES for column in self.columns):
            columns[_SOURCES.name] = np.concatenate([np.zeros(0, np.int8), *sources])
        return RowsWithColumns(ragged_from_rows(ids), columns)


def _read_conversation(record: Mapping[str, Any]) -> list[Message]:
    key = find_key(record, _MESSAGE_KEYS)
    if key is None:
        raise InvalidArgumentError(
            f"the record has neither {' nor '.join(map(repr, _MESSAGE_KEYS))}, it has {list(record)[:20]}"
        )
    return read_messages(record, key)
