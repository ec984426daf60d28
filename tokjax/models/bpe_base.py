"""Base class of BPE tokenizers: their engine, dropout, and a fast path for short texts."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tokjax._util.checks import check_float, check_int
from tokjax.bpe.array_engine import ArrayEngine, DropoutEngine, ids_to_bytes, join_ids
from tokjax.bpe.dropout import Dropout
from tokjax.core import protocol
from tokjax.core.utf8 import is_encodable
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.base import SegmentModel, encode_ids
from tokjax.pretokenize.special_tokens import find_shared_prefixes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.bpe.pre_tokenizers import FillingPreTokenizer
    from tokjax.core.encode_options import Special
    from tokjax.core.utf8 import Text

BPE = TypeVar("BPE", bound="BPEModel")
_MAX_SEED = 2**64 - 1


class BPEModel(SegmentModel):
    """Tokenizer that merges the pre-tokens of a text.

    Attributes:
        dropout: probability that a merge is dropped in a step, and the seed of these decisions; `None`
            without dropout. See `with_dropout`.
    """

    dropout: Dropout | None

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            InvalidArgumentError: an option is invalid.
        """
        super().__post_init__()
        if self.dropout is not None:
            if not isinstance(self.dropout, (tuple, list)) or len(self.dropout) != len(Dropout._fields):
                raise InvalidArgumentError(
                    f"dropout must be a probability and a seed, or None, not {self.dropout!r}; call "
                    "with_dropout(tokenizer, PROBABILITY, seed=SEED)"
                )
            probability = check_float("dropout", self.dropout[0], minimum=0, maximum=1)
            seed = check_int("seed", self.dropout[1], minimum=0, maximum=_MAX_SEED)
            vars(self)["dropout"] = Dropout(probability, seed)

    @property
    @abstractmethod
    def rules(self) -> MergeRules:
        """Merge rules of the tokenizer, built when first used."""

    @abstractmethod
    def _make_pre_tokenizer(self) -> FillingPreTokenizer:
        """Returns the pre-tokenizer of the engine."""

    @cached_property
    def _plain_engine(self) -> ArrayEngine:
        """Engine without dropout."""
        return ArrayEngine(self.rules, self._make_pre_tokenizer())

    @cached_property
    def _engine(self) -> ArrayEngine:
        # With probability 0 nothing is random, and pre-tokens that are tokens need no merging.
        if self.dropout is None or not self.dropout.probability:
            return self._plain_engine
        return DropoutEngine(self._plain_engine, self.dropout)

    @abstractmethod
    def _prepare_short(self, text: str) -> str | None:
        """Returns a short text as the engine encodes it, or `None` if it needs more than `replace`.

        The text has no lone surrogates, and no special or added token begins in it.
        """

    def encode_short(self, text: Any, *, add_special_tokens: bool) -> list[bytes] | None:
        """Returns the ids of a short text for `join_ids`, or `None` if another path has to encode it."""
        if not self._has_short_path:
            return None
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError:
                return None
        if not isinstance(text, str) or len(text) > ArrayEngine.few_characters:
            return None  # an error message may follow
        for beginning in self._special_beginnings:  # faster than any()
            if beginning in text:
                return None
        prepared = self._prepare_short(text) if text.isascii() or is_encodable(text) else None
        if prepared is None:
            return None
        before, after = self._template_ids if add_special_tokens else (b"", b"")
        return self._engine.encode_short(prepared, before, after)

    @cached_property
    def _has_short_path(self) -> bool:
        # A subclass of a type may encode differently.
        return self.dropout is None and "_prepare_short" in vars(type(self))

    @cached_property
    def _special_beginnings(self) -> tuple[str, ...]:
        return find_shared_prefixes(self.vocabulary.split_token_names)

    @cached_property
    def _template_ids(self) -> tuple[bytes, bytes]:
        """Ids that the template inserts before and after a text, as the bytes of `int32` arrays."""
        before, after = map(ids_to_bytes, self.vocabulary.template_token_ids)
        return before, after


def with_dropout(tokenizer: BPE, dropout: float, *, seed: int) -> BPE:
    """Returns a BPE tokenizer that encodes like another one, but with BPE dropout.

    BPE dropout (Provilkov et al., 2020) regularizes training by random segmentations: in each step of merging
    a pre-token, each possible merge is dropped with a probability. Decoding does not change. The result can
    be used wherever a tokenizer can. It shares the tables of `tokenizer` and is made in microseconds, so make
    one per epoch, each with another seed.

    The segmentation of a text is a pure function of `tokenizer`, text, `dropout` and `seed`. It does not
    depend on other texts, threads or processes. The occurrences of a pre-token are segmented independently,
    in one text and in different ones; equal texts are segmented alike.

    Args:
        tokenizer: a `ByteLevelBPE` or `MetaspaceBPE`; its `ignore_merges` has no effect with dropout. A
            dropout that it has is replaced.
        dropout: probability, from 0 to 1; 0.1 is usual. With 0, the ids are those of `tokenizer`. With 1,
            nothing is merged: each byte is a token, or each character of the vocabulary for a `MetaspaceBPE`.
        seed: seed of the random decisions, from 0 to 2**64 - 1.

    Raises:
        InvalidArgumentError: an option is invalid.
        UnsupportedTokenizerError: the tokenizer has another type.

    >>> from tokjax import byte_level_bpe, tokenize
    >>> ranks = {bytes([i]): i for i in range(256)} | {b"lo": 256, b"low": 257}
    >>> tokenizer = byte_level_bpe(ranks)
    >>> tokenize(tokenizer, "low low low")
    ['low', ' ', 'low', ' ', 'low']
    >>> tokenize(with_dropout(tokenizer, 0.3, seed=1), "low low low")
    ['l', 'o', 'w', ' ', 'low', ' ', 'low']
    """
    if not isinstance(tokenizer, BPEModel):
        raise UnsupportedTokenizerError(
            f"with_dropout needs a ByteLevelBPE or MetaspaceBPE, not a {type(tokenizer).__name__}; for a "
            "SentencePiece model use sample_encode"
        )
    changed = tokenizer._change(dropout=Dropout(dropout, seed), _plain_engine=tokenizer._plain_engine)
    BPEModel.__post_init__(changed)
    return changed


@protocol.encode.register(BPEModel)
def _encode(
    tokenizer: BPEModel,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> NDArray[np.int32]:
    if allowed_special == () and disallowed_special == "all":
        ids = tokenizer.encode_short(text, add_special_tokens=add_special_tokens)
        if ids is not None:
            return join_ids(ids)
    return encode_ids(
        tokenizer,
        text,
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
