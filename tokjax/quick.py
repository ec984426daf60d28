"""The `quick_` functions: one call each for the common cases, composed of functions of other modules.

Here are also functions under the names of other projects, which functions of tokjax cover: padding of arrays
(`pad_ragged` pads rows of any lengths), and conversion to the ids of Julia.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from tokjax._util.checks import check_choice, check_text, check_texts
from tokjax._util.display import display_batch, short_repr
from tokjax._util.imports import mark_namespace
from tokjax.batching.collate import batch_pad_sequences, collate_padded_batch, pad_sequence
from tokjax.batching.labels import CausalLMBatch, causal_lm_labels, to_one_based, to_zero_based
from tokjax.core import protocol
from tokjax.core.encode_options import TruncationOptions, accept_options
from tokjax.encoding import encode
from tokjax.errors import MissingSpecialTokenError
from tokjax.formats.loading import load_tokenizer
from tokjax.formats.tokjax_json import TOKENIZER_FILE
from tokjax.trainer.bpe.train_bpe import END_OF_TEXT, train_bpe
from tokjax.trainer.bundles import save_training_bundle
from tokjax.trainer.sentencepiece import train_sentencepiece
from tokjax.trainer.words import train_word_level, train_wordpiece

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tokjax._util.arrays import Array
    from tokjax.core.records import ResultMetadata, TokenizationBatch
    from tokjax.core.utf8 import Text
    from tokjax.corpus.sources import Source
    from tokjax.formats.file_formats import Format

__all__ = [
    "QuickBatch",
    "QuickBundle",
    "QuickCausalLMBatch",
    "QuickTokens",
    "batch_pad_sequences",
    "pad_sequence",
    "quick_causal_lm_batch",
    "quick_encode_batch",
    "quick_tokenize",
    "quick_train_bundle",
    "to_one_based",
    "to_zero_based",
]
mark_namespace(__name__)


@short_repr
class QuickTokens(NamedTuple):
    """The tokens of one text.

    Attributes:
        token_pieces: the tokens as readable strings.
        token_ids: the token ids, `int32`, shape `(n,)`.
        decoded_text: the text that the ids decode to, without special tokens.
        tokenization_text: the text that the offsets refer to.
        offsets: 1-based byte spans, `int64`, shape `(n, 2)`; `None` with `return_offsets=False`.
        attention_mask: 1 on every token, `int32`, shape `(n,)`; `None` with `return_masks=False`, as the next
            two.
        token_type_ids: the token type ids, `int32`, shape `(n,)`.
        special_tokens_mask: 1 on special tokens, else 0, `int32`, shape `(n,)`.
        metadata: the type of the model, and which text the offsets refer to.
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


@short_repr
@dataclass(frozen=True, eq=False)
class QuickBatch:
    """The tokens of many texts.

    Attributes:
        results: the tokens as flat columns; also a sequence of one result per text.
        sequence_lengths: the number of tokens of each text, `int64`, shape `(num_texts,)`.
        tokenization_texts: the texts that the offsets refer to.
        metadata: the type of the model, and which text the offsets refer to.
    """

    results: TokenizationBatch
    sequence_lengths: NDArray[np.int64]
    tokenization_texts: tuple[Text, ...]
    metadata: ResultMetadata


@display_batch
@dataclass(frozen=True, eq=False)
class QuickCausalLMBatch:
    """A padded batch for a causal language model, with its texts and options.

    It contains strings, so it can't be passed to a jitted function. Pass its `batch` instead.

    Attributes:
        ids: the input ids, `int32`, shape `(num_texts, length)`.
        attention_mask: 1 on tokens, 0 on padding, `int32`, shape `(num_texts, length)`.
        labels: the next id at each position, `ignore_index` at last tokens and on padding, `int32`, shape
            `(num_texts, length)`.
        token_type_ids: the token type ids, 0 on padding, `int32`, shape `(num_texts, length)`.
        special_tokens_mask: 1 on special tokens and on padding, `int32`, shape `(num_texts, length)`.
        offsets: 1-based byte spans, `int64`, shape `(num_texts, length, 2)`; `None` unless
            `return_offsets=True`.
        sequence_lengths: the number of tokens of each text, `int64`, shape `(num_texts,)`.
        tokenization_texts: the texts that the offsets refer to.
        pad_id: the id on padding.
        ignore_index: the label of positions without a next token.
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

    @property
    def batch(self) -> CausalLMBatch:
        """The arrays for a training step: ids, attention mask and labels."""
        return CausalLMBatch(self.ids, self.attention_mask, self.labels)


@short_repr
class QuickBundle(NamedTuple):
    """A trained tokenizer that was saved to disk.

    Attributes:
        directory: the directory of the bundle.
        files: the paths of the files in the directory, sorted.
        tokenizer: the tokenizer, loaded from the directory.
        tokenizer_file: the path of the tokenizer file.
        stats: the training statistics.
        sample_ids: the ids of the sample text, `int32`, shape `(n,)`.
        sample_text: the text that `sample_ids` decode to.
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
    """Tokenizes one text, and returns its tokens with ids, offsets and masks.

    Use `quick_encode_batch` for many texts.

    Args:
        tokenizer_or_path: a tokenizer, or anything that `load_tokenizer` accepts: a path, a pair of paths, a
            name such as `"Qwen/Qwen3-8B"`, or a tokenizer object of another library.
        text: the text, `str` or `bytes`.
        format: the format of the file at a path, as in `load_tokenizer`.
        apply_tokenization_view: whether to encode `tokenization_view(tokenizer, text)`, which the offsets
            then refer to. Pass `False` if the text is such a view already.
        return_offsets: whether to return `offsets`.
        return_masks: whether to return the masks and `token_type_ids`.
        **options: `add_special_tokens`, `max_length`, `truncation_side`, `allowed_special`,
            `disallowed_special` and `threads`, as in `encode_batch_result`.
    """
    check_text(text, "text", "; for many texts use quick_encode_batch")
    quick = quick_encode_batch(
        tokenizer := load_tokenizer(tokenizer_or_path, format),
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
        tokenizer_or_path: a tokenizer, a path or a name, as in `quick_tokenize`.
        texts: the texts, each `str` or `bytes`.
        format: the format of the file at a path, as in `load_tokenizer`.
        apply_tokenization_view: whether to encode the tokenization views, as in `quick_tokenize`.
        return_offsets: whether to return `offsets`.
        return_masks: whether to return the masks and `token_type_ids`.
        **options: the options of `quick_tokenize`.
    """
    tokenizer = load_tokenizer(tokenizer_or_path, format)
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
    """Makes a padded batch with labels for a causal language model from texts.

    Args:
        tokenizer_or_path: a tokenizer, a path or a name, as in `quick_tokenize`.
        texts: the texts, each `str` or `bytes`.
        format: the format of the file at a path, as in `load_tokenizer`.
        apply_tokenization_view: whether to encode the tokenization views, as in `quick_tokenize`.
        return_offsets: whether to return `offsets`.
        pad_id: the id on padding; `None` for the tokenizer's pad id, or else its EOS id.
        pad_side: the side of the padding, as in `collate_padded_batch`.
        multiple_of: the number of which the padded length is a multiple; `None` for the longest text.
        ignore_index: the label on padding and at the last token of each text.
        **options: the options of `quick_tokenize`.

    Returns:
        Arrays of shape `(num_texts, length)`. The labels are already shifted. Pass its `batch` to a training
        step.

    Raises:
        MissingSpecialTokenError: `pad_id` is `None`, and the tokenizer declares neither a pad nor an EOS
            token.
    """
    tokenizer = load_tokenizer(tokenizer_or_path, format)
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
    """Trains a tokenizer, saves it as a bundle, loads it again, and encodes a sample.

    Args:
        texts: the training texts: a path, a list of paths, or an iterable of texts.
        vocab_size: the size of the vocabulary, as in `trainer.train_bpe`.
        directory: the directory of the bundle, as in `trainer.save_training_bundle`.
        trainer: the name of the trainer: `trainer.train_bpe`, `train_wordpiece`, `train_word_level` or
            `train_sentencepiece`.
        sample: the text that is encoded by the tokenizer of the bundle.
        overwrite: whether to replace an existing bundle.
        progress: whether to show progress bars on standard error.
        **train_options: further options of the trainer. For `train_bpe`, `special_tokens` defaults to
            `("<|endoftext|>",)`.

    Raises:
        InvalidArgumentError: the name of the trainer is unknown.
    """
    check_choice("trainer", trainer, _TRAINERS)
    if trainer == "bpe":
        train_options = {"special_tokens": (END_OF_TEXT,)} | train_options
    trained = _TRAINERS[trainer](texts, vocab_size=vocab_size, progress=progress, **train_options)
    bundle = save_training_bundle(trained, directory, overwrite=overwrite)
    tokenizer = bundle.trained.tokenizer
    ids = protocol.encode(tokenizer, sample, add_special_tokens=False, disallowed_special=())
    return QuickBundle(
        bundle.path,
        tuple(sorted(bundle.path.iterdir())),
        tokenizer,
        bundle.path / TOKENIZER_FILE,
        trained.stats,
        ids,
        protocol.decode(tokenizer, ids),
    )


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
