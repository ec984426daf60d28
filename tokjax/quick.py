"""One call each, for the common cases: composition of the other floors, nothing of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax import encoding, protocol
from tokjax.batching.collate import collate_padded_batch
from tokjax.batching.labels import CausalLMBatch, causal_lm_labels
from tokjax.errors import InvalidArgumentError, MissingSpecialTokenError, TokjaxError
from tokjax.formats.tokjax_json import TOKENIZER_FILE, read_tokjax
from tokjax.trainer.bpe import END_OF_TEXT, train_bpe
from tokjax.trainer.bundles import save_training_bundle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tokjax.protocol import Special
    from tokjax.records import ResultMetadata, TokenizationBatch
    from tokjax.text.sources import Source
    from tokjax.trainer.records import TrainingStats
    from tokjax.utf8 import Text


class QuickTokens(NamedTuple):
    """One text's tokens.

    Attributes:
        token_pieces: readable tokens.
        token_ids: `int32`, shape `(n,)`.
        decoded_text: what the ids decode to, special tokens left out.
        tokenization_text: the text that the offsets refer to.
        offsets: 1-based byte spans, `int64`, shape `(n, 2)`.
        attention_mask: `int32`, shape `(n,)`.
        token_type_ids: `int32`, shape `(n,)`.
        special_tokens_mask: `int32`, shape `(n,)`.
        metadata: what the offsets mean, and which model made them.
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


class QuickBatch(NamedTuple):
    """Many texts' tokens.

    Attributes:
        results: flat columns, and a sequence of one result a text.
        sequence_lengths: tokens a text, `int64`, shape `(texts,)`.
        tokenization_texts: the texts that the offsets refer to.
    """

    results: TokenizationBatch
    sequence_lengths: NDArray[np.int64]
    tokenization_texts: tuple[Text, ...]


class QuickBundle(NamedTuple):
    """A trained tokenizer on disk.

    Attributes:
        directory: where it is.
        tokenizer: read back from there.
        tokenizer_file: the file that holds it.
        stats: what training saw.
        sample_ids: the ids of a short sample, `int32`, shape `(n,)`.
        sample_text: what they decode to; it was checked to be the sample.
    """

    directory: Path
    tokenizer: Any
    tokenizer_file: Path
    stats: TrainingStats
    sample_ids: NDArray[np.int32]
    sample_text: str


def quick_tokenize(
    tokenizer_or_path: Any,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> QuickTokens:
    """Tokenize one text and get everything about its tokens.

    Args:
        tokenizer_or_path: a tokenizer, or the path of a saved one.
        text: `str` or `bytes`.
        add_special_tokens: put the declared BOS before and the declared EOS after it.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.
    """
    tokenizer = _resolve(tokenizer_or_path)
    view = protocol.tokenization_view(tokenizer, text)
    result = encoding.encode_result(
        tokenizer,
        view,
        assume_normalized=True,
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
    return QuickTokens(
        token_pieces=result.tokens,
        token_ids=result.ids,
        decoded_text=protocol.decode(tokenizer, result.ids, skip_special_tokens=True),
        tokenization_text=view,
        offsets=result.offsets,
        attention_mask=result.attention_mask,
        token_type_ids=result.token_type_ids,
        special_tokens_mask=result.special_tokens_mask,
        metadata=result.metadata,
    )


def quick_encode_batch(
    tokenizer_or_path: Any,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> QuickBatch:
    """Tokenize many texts.

    Args:
        tokenizer_or_path: a tokenizer, or the path of a saved one.
        texts: each `str` or `bytes`.
        add_special_tokens: put the declared BOS before and the declared EOS after each.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.
    """
    tokenizer = _resolve(tokenizer_or_path)
    if isinstance(texts, (str, bytes)):
        raise InvalidArgumentError("texts must be a sequence of texts; for one text pass [text]")
    views = tuple(protocol.tokenization_view(tokenizer, text) for text in texts)
    results = encoding.encode_batch_result(
        tokenizer,
        views,
        assume_normalized=True,
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
    return QuickBatch(results, results.lengths, views)


def quick_causal_lm_batch(
    tokenizer_or_path: Any,
    texts: Sequence[Text],
    *,
    pad_id: int | None = None,
    ignore_index: int = -100,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> CausalLMBatch:
    """From texts to what a causal language model trains on.

    Args:
        tokenizer_or_path: a tokenizer, or the path of a saved one.
        texts: each `str` or `bytes`.
        pad_id: the id on padding; by default the tokenizer's, else its EOS id.
        ignore_index: the label of padding and of each last token.
        add_special_tokens: put the declared BOS before and the declared EOS after each.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.

    Returns:
        `int32` arrays of shape `(texts, longest)`; labels are already shifted.

    Raises:
        MissingSpecialTokenError: no `pad_id` is given, and the tokenizer declares neither pad nor EOS.
    """
    tokenizer = _resolve(tokenizer_or_path)
    padding = _pad_id(tokenizer) if pad_id is None else pad_id
    batch = quick_encode_batch(
        tokenizer,
        texts,
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
    padded = collate_padded_batch(batch.results, pad_id=padding, columns=())
    labels = causal_lm_labels(padded.ids, padded.attention_mask, ignore_index=ignore_index)
    return CausalLMBatch(padded.ids, padded.attention_mask, labels)


def quick_train_bundle(
    texts: Source,
    *,
    vocab_size: int,
    directory: str | os.PathLike[str],
    special_tokens: Sequence[str] = (END_OF_TEXT,),
    overwrite: bool = False,
    progress: bool = False,
    **train_options: Any,
) -> QuickBundle:
    """Train a tokenizer, save it as a bundle, read it back, and check that it encodes and decodes a sample.

    Args:
        texts: a path, a list of paths, or an iterable of texts.
        vocab_size: as in `trainer.train_bpe`.
        directory: where to save it, as `trainer.save_training_bundle` does.
        special_tokens: as in `trainer.train_bpe`.
        overwrite: replace a bundle that is there already.
        progress: show bars on standard error.
        **train_options: any other option of `trainer.train_bpe`.
    """
    trained = train_bpe(
        texts,
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        progress=progress,
        **train_options,
    )
    bundle = save_training_bundle(trained, directory, overwrite=overwrite)
    tokenizer = bundle.trained.tokenizer
    sample = "Hello, wörld: 1, 2, 3."
    ids = protocol.encode(tokenizer, sample, add_special_tokens=False, disallowed_special=())
    decoded = protocol.decode(tokenizer, ids)
    if decoded != sample:
        raise TokjaxError(f"the saved tokenizer decodes {sample!r} as {decoded!r}")
    return QuickBundle(bundle.path, tokenizer, bundle.path / TOKENIZER_FILE, trained.stats, ids, decoded)


def _resolve(tokenizer_or_path: Any) -> Any:
    if isinstance(tokenizer_or_path, (str, os.PathLike)):
        return read_tokjax(tokenizer_or_path)
    return tokenizer_or_path


def _pad_id(tokenizer: Any) -> int:
    for id_ in (protocol.pad_id(tokenizer), protocol.eos_id(tokenizer)):
        if id_ is not None:
            return id_
    raise MissingSpecialTokenError("the tokenizer declares neither a pad nor an eos token; pass pad_id=ID")
