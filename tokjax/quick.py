"""The `quick_` functions: one call each for the common cases, made of the other modules' functions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from tokjax._util.checks import check_text, check_texts
from tokjax._util.display import describe_batch
from tokjax.batching.collate import collate_padded_batch
from tokjax.batching.labels import CausalLMBatch, causal_lm_labels
from tokjax.core import protocol
from tokjax.core.encode_options import TruncationOptions, accept_options
from tokjax.encoding import encode
from tokjax.errors import InvalidArgumentError, MissingSpecialTokenError, TokjaxError
from tokjax.formats.adapters import from_sentencepiece, from_tiktoken
from tokjax.formats.huggingface.tokenizer_json import from_huggingface
from tokjax.formats.loading import load_tokenizer
from tokjax.formats.tokjax_json import TOKENIZER_FILE
from tokjax.trainer.bpe.train import END_OF_TEXT, train_bpe
from tokjax.trainer.bundles import save_training_bundle
from tokjax.trainer.sentencepiece.train import train_sentencepiece
from tokjax.trainer.word_level import train_word_level
from tokjax.trainer.wordpiece import train_wordpiece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tokjax._util.arrays import Array
    from tokjax.core.records import ResultMetadata, TokenizationBatch
    from tokjax.core.utf8 import Text
    from tokjax.corpus.sources import Source
    from tokjax.formats.detection import Format

__all__ = [
    "QuickBatch",
    "QuickBundle",
    "QuickCausalLMBatch",
    "QuickTokens",
    "quick_causal_lm_batch",
    "quick_encode_batch",
    "quick_tokenize",
    "quick_train_bundle",
]


class QuickTokens(NamedTuple):
    """One text's tokens.

    Attributes:
        token_pieces: readable tokens.
        token_ids: `int32`, shape `(n,)`.
        decoded_text: the text that the ids decode to, without special tokens.
        tokenization_text: the text that the offsets refer to.
        offsets: 1-based byte spans, `int64`, shape `(n, 2)`.
        attention_mask: `int32`, shape `(n,)`.
        token_type_ids: `int32`, shape `(n,)`.
        special_tokens_mask: `int32`, shape `(n,)`.
        metadata: the model and the text that the offsets refer to.
    """

    token_pieces: tuple[str, ...]
    token_ids: NDArray[np.int32]
    decoded_text: str
    tokenization_text: Text
    offsets: NDArray[np.int64] | None
    attention_mask: NDArray[np.int32] | None
    token_type_ids: NDArray[np.int32] | None
    special_tokens_mask: NDArray[np.int32] | None
    metadata: ResultMetadata


@dataclass(frozen=True, eq=False, repr=False)
class QuickBatch:
    """Many texts' tokens.

    Attributes:
        results: flat columns, and a sequence of one result per text.
        sequence_lengths: tokens of each text, `int64`, shape `(texts,)`.
        tokenization_texts: the texts that the offsets refer to.
        metadata: the model and the text that the offsets refer to.
    """

    results: TokenizationBatch
    sequence_lengths: NDArray[np.int64]
    tokenization_texts: tuple[Text, ...]
    metadata: ResultMetadata

    def __repr__(self) -> str:
        """Shows dtypes and shapes."""
        return describe_batch(self)


@dataclass(frozen=True, eq=False, repr=False)
class QuickCausalLMBatch:
    """A padded batch for a causal language model, with its texts and options.

    It holds strings, so it is not passed to a jitted step; `batch` is.

    Attributes:
        ids: the inputs, `int32`, shape `(texts, length)`.
        attention_mask: 1 on tokens, 0 on padding, `int32`, shape `(texts, length)`.
        labels: the id that follows each position, `ignore_index` where none does, `int32`, shape `(texts,
            length)`.
        token_type_ids: `int32`, shape `(texts, length)`; 0 on padding.
        special_tokens_mask: 1 on special tokens and on padding, `int32`, shape `(texts, length)`.
        offsets: 1-based byte spans, `int64`, shape `(texts, length, 2)`, with `return_offsets=True`, else
            `None`.
        sequence_lengths: tokens of each text, `int64`, shape `(texts,)`.
        tokenization_texts: the texts that the offsets refer to.
        pad_id: the id on padding.
        ignore_index: the label where none is.
    """

    ids: Array
    attention_mask: Array
    labels: Array
    token_type_ids: Array | None
    special_tokens_mask: Array | None
    offsets: Array | None
    sequence_lengths: NDArray[np.int64]
    tokenization_texts: tuple[Text, ...]
    pad_id: int
    ignore_index: int

    def __repr__(self) -> str:
        """Shows dtypes and shapes."""
        return describe_batch(self)

    @property
    def batch(self) -> CausalLMBatch:
        """The arrays that a training step takes: ids, mask and labels."""
        return CausalLMBatch(self.ids, self.attention_mask, self.labels)


class QuickBundle(NamedTuple):
    """A trained tokenizer on disk.

    Attributes:
        directory: where it is.
        files: the files in it.
        tokenizer: read back from there.
        tokenizer_file: the file that holds it.
        stats: the statistics of the training.
        sample_ids: the ids of a short sample, `int32`, shape `(n,)`.
        sample_text: the text that they decode to.
    """

    directory: Path
    files: tuple[Path, ...]
    tokenizer: Any
    tokenizer_file: Path
    stats: Any
    sample_ids: NDArray[np.int32]
    sample_text: str


@accept_options(TruncationOptions)
def quick_tokenize(
    tokenizer_or_path: Any,
    text: Text,
    *,
    format: Format | Literal["auto"] = "auto",  # noqa: A002 (as in load_tokenizer)
    apply_tokenization_view: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
    **options: Unpack[TruncationOptions],
) -> QuickTokens:
    """Tokenizes one text and returns everything about its tokens.

    Args:
        tokenizer_or_path: a tokenizer, a path (or a pair of paths) as `load_tokenizer` takes it, or a live
            object of `tokenizers`, `transformers`, `tiktoken` or `sentencepiece`.
        text: `str` or `bytes`.
        format: as in `load_tokenizer`; for paths.
        apply_tokenization_view: encode `tokenization_view(tokenizer, text)`, which offsets then refer to.
            `False` if the text is that already.
        return_offsets: give `offsets`.
        return_masks: give the masks and `token_type_ids`.
        **options: `add_special_tokens`, `max_length`, `truncation_side`, `allowed_special`,
            `disallowed_special` and `threads`, as in `encode_batch_result`.
    """
    check_text(text, "text", "; for many texts use quick_encode_batch")
    quick = quick_encode_batch(
        tokenizer := _resolve_tokenizer(tokenizer_or_path, format),
        [text],
        apply_tokenization_view=apply_tokenization_view,
        return_offsets=return_offsets,
        return_masks=return_masks,
        **options,
    )
    result = quick.results[0]
    return QuickTokens(
        token_pieces=result.tokens,
        token_ids=result.ids,
        decoded_text=protocol.decode(tokenizer, result.ids, skip_special_tokens=True),
        tokenization_text=quick.tokenization_texts[0],
        offsets=result.offsets,
        attention_mask=result.attention_mask,
        token_type_ids=result.token_type_ids,
        special_tokens_mask=result.special_tokens_mask,
        metadata=result.metadata,
    )


@accept_options(TruncationOptions)
def quick_encode_batch(
    tokenizer_or_path: Any,
    texts: Sequence[Text],
    *,
    format: Format | Literal["auto"] = "auto",  # noqa: A002 (as in load_tokenizer)
    apply_tokenization_view: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
    **options: Unpack[TruncationOptions],
) -> QuickBatch:
    """Tokenizes many texts.

    Args:
        tokenizer_or_path: as in `quick_tokenize`.
        texts: each `str` or `bytes`.
        format: as in `load_tokenizer`; for paths.
        apply_tokenization_view: as in `quick_tokenize`.
        return_offsets: give `offsets`.
        return_masks: give the masks and `token_type_ids`.
        **options: as in `quick_tokenize`.
    """
    tokenizer = _resolve_tokenizer(tokenizer_or_path, format)
    check_texts(texts)
    if apply_tokenization_view:
        texts = [protocol.tokenization_view(tokenizer, text) for text in texts]
    results = encode.encode_batch_result(
        tokenizer,
        texts,
        assume_normalized=True,
        return_offsets=return_offsets,
        return_masks=return_masks,
        **options,
    )
    return QuickBatch(results, results.lengths, tuple(texts), results.metadata)


@accept_options(TruncationOptions)
def quick_causal_lm_batch(
    tokenizer_or_path: Any,
    texts: Sequence[Text],
    *,
    format: Format | Literal["auto"] = "auto",  # noqa: A002 (as in load_tokenizer)
    apply_tokenization_view: bool = True,
    return_offsets: bool = False,
    pad_id: int | None = None,
    pad_side: Literal["left", "right"] = "right",
    multiple_of: int | None = None,
    ignore_index: int = -100,
    **options: Unpack[TruncationOptions],
) -> QuickCausalLMBatch:
    """Makes a padded batch for a causal language model, with labels, from texts.

    Args:
        tokenizer_or_path: as in `quick_tokenize`.
        texts: each `str` or `bytes`.
        format: as in `load_tokenizer`; for paths.
        apply_tokenization_view: as in `quick_tokenize`.
        return_offsets: give `offsets`.
        pad_id: the id on padding; by default the tokenizer's, else its EOS id.
        pad_side: where padding goes, as in `collate_padded_batch`.
        multiple_of: pad to the next multiple of this.
        ignore_index: the label of padding and of each last token.
        **options: as in `quick_tokenize`.

    Returns:
        Arrays of shape `(texts, length)`; labels are already shifted. A training step takes its `batch`.

    Raises:
        MissingSpecialTokenError: no `pad_id` is given, and the tokenizer declares neither pad nor EOS.
    """
    tokenizer = _resolve_tokenizer(tokenizer_or_path, format)
    padding = _get_pad_id(tokenizer) if pad_id is None else pad_id
    quick = quick_encode_batch(
        tokenizer,
        texts,
        apply_tokenization_view=apply_tokenization_view,
        return_offsets=return_offsets,
        **options,
    )
    padded = collate_padded_batch(quick.results, pad_id=padding, pad_side=pad_side, multiple_of=multiple_of)
    labels = causal_lm_labels(padded.ids, padded.attention_mask, ignore_index=ignore_index)
    return QuickCausalLMBatch(
        padded.ids,
        padded.attention_mask,
        labels,
        padded.token_type_ids,
        padded.special_tokens_mask,
        padded.offsets,
        quick.sequence_lengths,
        quick.tokenization_texts,
        padding,
        ignore_index,
    )


def quick_train_bundle(
    texts: Source,
    *,
    vocab_size: int,
    directory: str | os.PathLike[str],
    trainer: Literal["bpe", "wordpiece", "word_level", "sentencepiece"] = "bpe",
    sample: str = "Hello, wörld: 1, 2, 3.",
    overwrite: bool = False,
    progress: bool = False,
    **train_options: Any,
) -> QuickBundle:
    """Trains a tokenizer, saves it as a bundle, and checks that a sample has the same ids once it is read.

    Args:
        texts: a path, a list of paths, or an iterable of texts.
        vocab_size: as in `trainer.train_bpe`.
        directory: where to save it, as `trainer.save_training_bundle` does.
        trainer: what to train: with `trainer.train_bpe`, `train_wordpiece`, `train_word_level` or
            `train_sentencepiece`.
        sample: the text that is encoded.
        overwrite: replace a bundle that is there already.
        progress: show bars on standard error.
        **train_options: any other option of the trainer. `train_bpe` has `special_tokens=("<|endoftext|>",)`
            by default.
    """
    if trainer not in _TRAINERS:
        raise InvalidArgumentError(f"trainer must be one of {list(_TRAINERS)}, not {trainer!r}")
    if trainer == "bpe":
        train_options = {"special_tokens": (END_OF_TEXT,)} | train_options
    trained = _TRAINERS[trainer](texts, vocab_size=vocab_size, progress=progress, **train_options)
    bundle = save_training_bundle(trained, directory, overwrite=overwrite)
    tokenizer = bundle.trained.tokenizer
    ids, expected = (
        protocol.encode(some, sample, add_special_tokens=False, disallowed_special=())
        for some in (tokenizer, trained.tokenizer)
    )
    if ids.tolist() != expected.tolist():
        raise TokjaxError(
            f"the saved tokenizer encodes {sample!r} as {ids.tolist()}, not {expected.tolist()}"
        )
    return QuickBundle(
        bundle.path,
        tuple(sorted(bundle.path.iterdir())),
        tokenizer,
        bundle.path / TOKENIZER_FILE,
        trained.stats,
        ids,
        protocol.decode(tokenizer, ids),
    )


def _resolve_tokenizer(tokenizer_or_path: Any, format_: Any) -> Any:
    """The tokenizer that is given, in a file or as an object of another library."""
    if isinstance(tokenizer_or_path, (str, os.PathLike, list, tuple)):
        return load_tokenizer(tokenizer_or_path, format_)
    if format_ != "auto":
        raise InvalidArgumentError(
            f"format={format_!r} is for paths, not for a {type(tokenizer_or_path).__name__}"
        )
    library = protocol.find_library(tokenizer_or_path)
    return tokenizer_or_path if library is None else _ADAPTERS[library](tokenizer_or_path)


def _get_pad_id(tokenizer: Any) -> int:
    for id_ in (protocol.pad_id(tokenizer), protocol.eos_id(tokenizer)):
        if id_ is not None:
            return id_
    raise MissingSpecialTokenError("the tokenizer declares neither a pad nor an eos token; pass pad_id=ID")


_TRAINERS: dict[str, Callable[..., Any]] = {
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
    "word_level": train_word_level,
    "sentencepiece": train_sentencepiece,
}
_ADAPTERS: dict[str, Callable[[Any], Any]] = {
    "tokenizers": from_huggingface,
    "transformers": from_huggingface,
    "tiktoken": from_tiktoken,
    "sentencepiece": from_sentencepiece,
}
