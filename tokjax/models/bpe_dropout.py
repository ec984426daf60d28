"""BPE tokenizers with dropout: random segmentations that are a function of the text and a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tokjax._util.checks import check_float, check_int
from tokjax.bpe.dropout import Dropout
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context
from tokjax.core.json_records import register_record
from tokjax.core.protocol import find_text_lengths
from tokjax.errors import UnsupportedTokenizerError
from tokjax.models.base import SegmentModel
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.metaspace_bpe import MetaspaceBPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.records import OffsetsReference
    from tokjax.core.vocabulary import Vocabulary

_MAX_SEED = 2**64 - 1


@dataclass(frozen=True, repr=False)
class BPEDropout(SegmentModel):
    """BPE tokenizer with dropout. Create it with `with_dropout` and use it through the generic functions.

    Tokenizers with equal fields are equal. Threads can share a tokenizer.

    Attributes:
        tokenizer: tokenizer without dropout. It decodes, and its tables are shared.
        dropout: probability that a merge is dropped in a step, from 0 to 1.
        seed: seed of the random decisions.
    """

    model = "bpe_dropout"

    tokenizer: ByteLevelBPE | MetaspaceBPE
    dropout: float
    seed: int

    @property
    def vocabulary(self) -> Vocabulary:  # type: ignore[override]
        """Token ids and token bytes."""
        return self.tokenizer.vocabulary

    @property
    def normalization(self) -> str | None:
        """Name of the normalization of the tokenizer without dropout."""
        return self.tokenizer.normalization

    @property
    def offsets_reference(self) -> OffsetsReference:
        """The text that offsets refer to, as for the tokenizer without dropout."""
        return self.tokenizer.offsets_reference

    @property
    def text_byte_lengths(self) -> NDArray[np.int64]:
        """Number of text bytes per token id, `int64`, shape `(size,)`."""
        return self.tokenizer.text_byte_lengths

    def adjust_offsets(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], matched: Mapping[int, bytes]
    ) -> NDArray[np.int64]:
        """Returns the spans to report, shape `(n, 2)`, as the tokenizer without dropout."""
        return self.tokenizer.adjust_offsets(ids, offsets, matched)

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized."""
        # With probability 0 nothing is random, and pre-tokens that are tokens need no merging.
        dropout = Dropout(self.dropout, self.seed) if self.dropout else None
        return self.tokenizer.encode_segments(segments, threads, sources=sources, dropout=dropout)

    def find_pretokens(self, text: str) -> Sequence[tuple[int, int]]:
        """Returns the spans of the pre-tokens of a segment, as the tokenizer without dropout."""
        return self.tokenizer.find_pretokens(text)

    def replace_vocabulary(self, vocabulary: Vocabulary) -> BPEDropout:
        """Returns a copy with another vocabulary."""
        return replace(self, tokenizer=self.tokenizer.replace_vocabulary(vocabulary))

    def _to_fingerprint_json(self) -> Any:
        return replace(self, tokenizer=self.tokenizer._to_fingerprint_json())

    def _get_repr_options(self) -> dict[str, Any]:
        return {"dropout": self.dropout, "seed": self.seed}


@register_record(BPEDropout)
def with_dropout(
    tokenizer: ByteLevelBPE | MetaspaceBPE | BPEDropout, dropout: float, *, seed: int
) -> BPEDropout:
    """Returns a BPE tokenizer that encodes like another one, but with BPE dropout.

    BPE dropout (Provilkov et al., 2020) regularizes training by random segmentations: in each step of merging
    a pre-token, each possible merge is dropped with a probability. Decoding does not change. The result can
    be used wherever a tokenizer can. It shares the tables of `tokenizer` and is made in microseconds, so make
    one per epoch, each with another seed.

    The segmentation of a text is a pure function of `tokenizer`, text, `dropout` and `seed`. It does not
    depend on other texts, threads or processes. The occurrences of a pre-token are segmented independently,
    in one text and in different ones; equal texts are segmented alike.

    Args:
        tokenizer: a `ByteLevelBPE` or `MetaspaceBPE`; its `ignore_merges` has no effect with dropout. The
            dropout and the seed of a `BPEDropout` are replaced.
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
    plain = tokenizer.tokenizer if isinstance(tokenizer, BPEDropout) else tokenizer
    if not isinstance(plain, (ByteLevelBPE, MetaspaceBPE)):
        raise UnsupportedTokenizerError(
            f"with_dropout needs a ByteLevelBPE or MetaspaceBPE, not a {type(tokenizer).__name__}; for a "
            "SentencePiece model use sample_encode"
        )
    probability = check_float("dropout", dropout, minimum=0, maximum=1)
    seed = check_int("seed", seed, minimum=0, maximum=_MAX_SEED)
    return BPEDropout(plain, probability, seed)


def _call_without_dropout(
    function: Callable[..., Any], tokenizer: BPEDropout, *arguments: Any, **options: Any
) -> Any:
    return function(tokenizer.tokenizer, *arguments, **options)


protocol.decode_bytes.register(BPEDropout, partial(_call_without_dropout, protocol.decode_bytes))
protocol.decode_batch.register(BPEDropout, partial(_call_without_dropout, protocol.decode_batch))
find_decode_context.register(BPEDropout, partial(_call_without_dropout, find_decode_context))
find_text_lengths.register(BPEDropout, partial(_call_without_dropout, find_text_lengths))
protocol.make_special.register(BPEDropout)(
    lambda tokenizer, names: replace(tokenizer, tokenizer=protocol.make_special(tokenizer.tokenizer, names))
)
protocol.normalize.register(BPEDropout, partial(_call_without_dropout, protocol.normalize))
protocol.map_offsets_to_input.register(
    BPEDropout, partial(_call_without_dropout, protocol.map_offsets_to_input)
)
