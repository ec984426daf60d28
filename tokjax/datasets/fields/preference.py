"""`PreferenceField`: pairs of a chosen and a rejected answer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tokjax._util.display import short_repr
from tokjax.core import protocol
from tokjax.core.ragged import Ragged, make_row_splits
from tokjax.datasets.columns import LOSS_MASK, Column, check_columns
from tokjax.datasets.fields.conversation import ConversationField
from tokjax.datasets.fields.options import set_columns
from tokjax.datasets.fields.token_field import RowsWithColumns
from tokjax.datasets.preference_pairs import PAIR_KEYS, encode_chat_pairs, encode_text_pairs
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text


_PAIR_COLUMNS = (Column(LOSS_MASK, "bool", source="field"), Column("rejected", "bool", source="field"))


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
        columns = check_columns("PreferenceField", self.columns)
        others = [column for column in columns if column not in _PAIR_COLUMNS]
        for column in others:
            if column.per == "token":
                raise InvalidArgumentError(
                    f"column {column.name!r} has a value per token, and the sides of a preference pair are "
                    "encoded separately; pass per='document'"
                )
        object.__setattr__(self, "columns", [*_PAIR_COLUMNS, *others])
        set_columns(self)

    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> RowsWithColumns:
        """Encodes preference pairs, given as JSON objects, into ids, loss masks and sides."""
        if self.template is None:
            pairs = encode_text_pairs(
                self.tokenizer,
                texts,
                allowed_special=self.allowed_special,
                disallowed_special=self.disallowed_special,
                threads=threads,
            )
        else:
            pairs = encode_chat_pairs(self, texts, threads)
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
