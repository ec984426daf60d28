"""Unigram tokenizers of a `tokenizer.json`, such as those of T5, XLM-R and ALBERT."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from tokjax.core.json_records import register_record
from tokjax.core.protocol import find_text_lengths, group_by_word, pre_tokenize
from tokjax.core.vocabulary import AddedToken, Vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import JoiningModel
from tokjax.models.metaspace import METASPACE, list_missing_forms
from tokjax.models.unigram_engine import UnigramEngine
from tokjax.models.unigram_viterbi import UnigramModel
from tokjax.models.unigram_words import UnigramWords
from tokjax.pretokenize.aligned_text import StepNormalizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.bpe.chunks import EncodedSegments, Segments
    from tokjax.core.records import OffsetsReference

MAX_SCORE = 1e100
"""Maximum absolute score. Sums of larger ones could be infinite."""
Prepends = Literal["always", "first", "never"]


@register_record()
@dataclass(frozen=True, repr=False)
class Unigram(JoiningModel):
    """Unigram tokenizer. `load_tokenizer` and `from_huggingface` create it.

    Texts are normalized and split into words. The tokens of a word are the pieces with the highest sum of
    scores. Decoding writes a space for each `▁`, except in the first token if `▁` was added there.

    Offsets refer to the input text. Tokens of characters that were made of one have the span of the
    character, once: the first token has it, and the others are empty.

    Tokenizers with equal fields are equal. Pickling leaves out the caches. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and tokens in written form.
        pieces: pieces of the model and their scores. Their ids are their positions.
        unknown_id: id of the piece for characters that are in no other piece.
        byte_fallback: whether such characters become the tokens of their bytes.
        steps: steps of the normalizer, as in a `tokenizer.json`: a JSON list.
        prepends: where a `▁` is added: before each word or segment, before the first of a text, or nowhere.
        splits_whitespace: whether texts are split at whitespace, which is then in no token.
        strip: whether decoding removes each `▁` of the first token.
        normalized_tokens: name, id and options of the added tokens that are matched in normalized text.
    """

    model = "unigram"

    vocabulary: Vocabulary
    pieces: tuple[tuple[str, float], ...] = field(repr=False)
    unknown_id: int
    byte_fallback: bool
    steps: str = field(repr=False)
    prepends: Prepends
    splits_whitespace: bool
    strip: bool
    normalized_tokens: tuple[tuple[str, int, AddedToken], ...] = ()

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            InvalidArgumentError: a field is invalid.
        """
        super().__post_init__()
        pieces, scores = [piece for piece, _ in self.pieces], np.array([score for _, score in self.pieces])
        if not pieces or not all(pieces) or len(set(pieces)) < len(pieces):
            raise InvalidArgumentError("pieces must be different strings that are not empty")
        if not 0 <= self.unknown_id < len(pieces):
            raise InvalidArgumentError(f"unknown_id is {self.unknown_id!r}, which is no index of a piece")
        if not (np.abs(scores) <= MAX_SCORE).all() or scores.min() > 0:
            raise InvalidArgumentError("a score is not a number or too large, or all of them are above 0")
        if self.byte_fallback and (missing := list_missing_forms([*pieces, METASPACE])):
            raise InvalidArgumentError(f"with byte_fallback, pieces must contain {missing[0]!r}")

    def __hash__(self) -> int:
        """Computes a hash that is equal for equal tokenizers."""
        return hash((self.vocabulary, self.steps))

    @property
    def normalization(self) -> str | None:
        """Types of the normalizer's steps, joined with `+`; `None` without a normalizer."""
        return "+".join(self._normalizer.types) or None

    @property
    def offsets_reference(self) -> OffsetsReference:
        """The text that offsets refer to: the input text."""
        return "input_text"

    @cached_property
    def made_names(self) -> frozenset[str]:
        """Special tokens that the model can make of text, other than the unknown token."""
        return self.vocabulary.special_names - {self.pieces[self.unknown_id][0]}

    @cached_property
    def matched_special(self) -> frozenset[str]:
        """Special tokens that are matched in normalized text."""
        return self.vocabulary.special_names.intersection(name for name, *_ in self.normalized_tokens)

    def match_less(self, names: frozenset[str]) -> Self:
        """Returns a tokenizer that does not match some of these tokens."""
        kept = tuple(item for item in self.normalized_tokens if item[0] not in names)
        variant = replace(self, normalized_tokens=kept)
        vars(variant)["_model"] = self._model
        return variant

    @cached_property
    def _model(self) -> UnigramModel:
        pieces, scores = zip(*self.pieces, strict=True)
        return UnigramModel(pieces, scores, self.unknown_id)

    @cached_property
    def _normalizer(self) -> StepNormalizer:
        return StepNormalizer(json.loads(self.steps))

    @cached_property
    def _engine(self) -> UnigramEngine:
        return UnigramEngine(
            UnigramWords(
                self._model,
                self._normalizer,
                prepends=self.prepends,
                splits_whitespace=self.splits_whitespace,
                normalized_tokens={name: (id_, options) for name, id_, options in self.normalized_tokens},
                byte_fallback=self.byte_fallback,
                size=self.vocabulary.size,
            )
        )

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another."""
        return self._engine.encode_segments(segments, threads, sources=sources)

    @cached_property
    def _decoded(self) -> list[bytes]:
        """Text of each token, by id."""
        decoded = [b""] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            decoded[id_] = token.replace(METASPACE.encode(), b" ")
        return decoded

    @cached_property
    def is_skipped(self) -> NDArray[np.bool_]:
        """Mask of the ids that decoding with `skip_special_tokens` leaves out, `bool`, shape `(size,)`."""
        skipped = self.vocabulary.is_skipped.copy()
        ids = [id_ for _, id_, _ in self.normalized_tokens]
        skipped[ids] |= self.vocabulary.is_special[ids]
        return skipped

    def join_tokens(self, ids: list[int]) -> bytes:
        """Returns the text of tokens, at least one."""
        tokens = list(map(self._decoded.__getitem__, ids))
        if self.strip:
            tokens[0] = self.vocabulary.get_bytes(ids[0]).replace(METASPACE.encode(), b"")
        return b"".join(tokens)


pre_tokenize.register(Unigram)(group_by_word)


@find_text_lengths.register(Unigram)
def _find_text_lengths(tokenizer: Unigram) -> NDArray[np.int64]:
    return np.fromiter(map(len, tokenizer._decoded), np.int64, len(tokenizer._decoded))
