"""Alternative segmentations of a text: sampled, for subword regularization, or the n best."""

from __future__ import annotations

import heapq
import math
import secrets
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from tokjax._util.checks import check_float, check_int
from tokjax._util.locks import ThreadLock
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.utf8 import encode_segment
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import SplitRows, make_batch, split_rows
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.sentencepiece_files import iter_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokjax.core.records import TokenizationBatch, TokenizationResult
    from tokjax.core.utf8 import Text

_MAX_NBEST = 512
_sampling_lock = ThreadLock()


@accept_options(SpecialOptions)
def sample_encode(
    tokenizer: SentencePieceTokenizer,
    text: Text,
    *,
    alpha: float,
    seed: int,
    nbest_size: int = -1,
    add_special_tokens: bool = True,
    **special: Unpack[SpecialOptions],
) -> TokenizationResult:
    """Encodes a text with a randomly sampled segmentation.

    The same seed gives the same result, on any thread. However, the library has a single seed for the whole
    process. This function sets it, samples in a separate thread under a lock, and leaves a random seed. Code
    that sets the library's seed itself must set it again afterwards.

    Args:
        tokenizer: `"unigram"` or `"bpe"` model.
        text: `str` or `bytes`.
        alpha: for unigram models, how strongly more likely segmentations are preferred; 0 samples uniformly.
            For BPE models, the probability of skipping a merge, from 0 to 1.
        seed: seed, from 0 to 2**32 - 2.
        nbest_size: number of most likely segmentations to sample from, 2 to 512; -1 samples from all. BPE
            models ignore it.
        add_special_tokens: as in `encode_batch_result`.
        **special: `allowed_special` and `disallowed_special`, as in `encode_batch_result`.

    Raises:
        InvalidArgumentError: an option is invalid, or the model has another type.
        DisallowedSpecialTokenError: the text contains a disallowed special token.
    """
    _check_type(tokenizer, ("unigram", "bpe"), "sample_encode")
    seed = check_int("seed", seed, minimum=0, maximum=2**32 - 2)
    is_bpe = tokenizer.model_type == "bpe"
    name = f"alpha for a {tokenizer.model_type} model"
    alpha = check_float(name, alpha, minimum=0, maximum=1 if is_bpe else math.inf)
    if check_int("nbest_size", nbest_size) != -1 and not 2 <= nbest_size <= _MAX_NBEST:
        raise InvalidArgumentError(f"nbest_size must be -1, or from 2 to {_MAX_NBEST}, not {nbest_size}")

    split = split_rows(tokenizer, [text], add_special_tokens=add_special_tokens, **special)
    texts = _get_texts(split)
    model = tokenizer.select_model(special.get("allowed_special", ()))

    def sample() -> list[bytes]:
        return [
            model.processor.encode(
                text,
                out_type="serialized_proto",
                enable_sampling=True,
                alpha=alpha,
                nbest_size=nbest_size,
            )
            if text
            else b""
            for text in texts
        ]

    return _make_batch(tokenizer, split, _run_in_thread(sample, seed) if any(texts) else sample())[0]


@accept_options(SpecialOptions)
def nbest_encode(
    tokenizer: SentencePieceTokenizer,
    text: Text,
    nbest_size: int,
    *,
    add_special_tokens: bool = True,
    **special: Unpack[SpecialOptions],
) -> TokenizationBatch:
    """Encodes a text with its most likely segmentations, the best one first.

    Args:
        tokenizer: `"unigram"` model.
        text: `str` or `bytes`.
        nbest_size: maximum number of segmentations, 1 to 512. A text may have fewer.
        add_special_tokens: as in `encode_batch_result`.
        **special: `allowed_special` and `disallowed_special`, as in `encode_batch_result`.

    Raises:
        InvalidArgumentError: an option is invalid, or the model has another type.
        DisallowedSpecialTokenError: the text contains a disallowed special token.
    """
    _check_type(tokenizer, ("unigram",), "nbest_encode")
    if not 1 <= check_int("nbest_size", nbest_size) <= _MAX_NBEST:
        raise InvalidArgumentError(f"nbest_size must be from 1 to {_MAX_NBEST}, not {nbest_size}")
    split = partial(split_rows, tokenizer, add_special_tokens=add_special_tokens, **special)
    ranked: list[tuple[float, list[bytes]]] = [(0.0, [])]
    model = tokenizer.select_model(special.get("allowed_special", ()))
    for segment in _get_texts(split([text])):
        segmentations = _rank_segmentations(model, segment, nbest_size)
        # All pairs of a segmentation of the segments so far and one of this segment. Scores are log
        # probabilities of independent segments, so they add up, and pruning to the best is exact.
        combined = (
            (score + segment_score, [*previous, segmentation])
            for score, previous in ranked
            for segment_score, segmentation in segmentations
        )
        ranked = heapq.nlargest(nbest_size, combined, key=itemgetter(0))
    return _make_batch(
        tokenizer, split([text] * len(ranked)), [segmentation for _, row in ranked for segmentation in row]
    )


def _rank_segmentations(
    tokenizer: SentencePieceTokenizer, text: bytes, nbest_size: int
) -> list[tuple[float, bytes]]:
    """Returns the scores and serialized `SentencePieceText`s of the most likely segmentations, best first."""
    if not text:
        return [(0.0, b"")]
    nbest = tokenizer.processor.nbest_encode(text, nbest_size=nbest_size, out_type="serialized_proto")
    segmentations = [value for _, value in iter_fields(nbest) if isinstance(value, bytes)]
    scores = (dict(iter_fields(segmentation)).get(3, bytes(4)) for segmentation in segmentations)
    return [(*struct.unpack("<f", score), each) for score, each in zip(scores, segmentations, strict=True)]


def _run_in_thread(sample: Callable[[], list[bytes]], seed: int) -> list[bytes]:
    """Calls a function in a new thread with a seed, and returns its result.

    Older versions of the library read the seed only once per thread.
    """
    from sentencepiece import set_random_generator_seed  # noqa: PLC0415 (slow to import)

    with _sampling_lock.current, ThreadPoolExecutor(1) as pool:
        set_random_generator_seed(seed)
        try:
            return pool.submit(sample).result()
        finally:
            set_random_generator_seed(secrets.randbelow(2**32 - 1))


def _check_type(tokenizer: SentencePieceTokenizer, types: tuple[str, ...], function: str) -> None:
    if not isinstance(tokenizer, SentencePieceTokenizer):
        raise InvalidArgumentError(
            f"{function} needs a SentencePieceTokenizer, not a {type(tokenizer).__name__}; to sample "
            "segmentations of another BPE tokenizer, encode with with_dropout(tokenizer, dropout, seed=...)"
        )
    if tokenizer.model_type not in types:
        raise InvalidArgumentError(
            f"{function} needs a model of type {' or '.join(types)}, and this one is of type "
            f"{tokenizer.model_type}; use encode_result, which always returns the best segmentation"
        )


def _get_texts(split: SplitRows) -> list[bytes]:
    """Returns the segments of ordinary text as bytes."""
    return [encode_segment(text, split.segments.hold_bytes) for text in split.segments.texts]


def _make_batch(
    tokenizer: SentencePieceTokenizer, split: SplitRows, segmentations: Sequence[bytes]
) -> TokenizationBatch:
    """Makes a batch from the segmentations of all segments, each a serialized `SentencePieceText`."""
    pieces = [_parse_pieces(serialized) for serialized in segmentations]
    rows = [np.array([id_ for id_, _ in row], np.int32) for row in pieces]
    nbytes = np.array([len(piece) for row in pieces for _, piece in row], np.int64)
    ids = np.concatenate(rows)
    lengths = np.where(
        ids == tokenizer.vocabulary.get_role_id("unk"), nbytes, tokenizer.piece_lengths.take(ids)
    )
    return make_batch(tokenizer, split, tokenizer.locate_pieces(_get_texts(split), rows, lengths))


def _parse_pieces(serialized: bytes) -> list[tuple[int, bytes]]:
    """Returns id and piece of each token of a serialized `SentencePieceText`.

    Field 2 of the message is repeated, once per piece; its fields 2 and 1 are the id and the piece.
    """
    messages = [value for number, value in iter_fields(serialized) if number == 2]
    tokens: list[dict[int, Any]] = [dict(iter_fields(message)) for message in messages]
    return [(token[2], token[1]) for token in tokens]
