"""Training of a vocabulary and packing of its corpus, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.checks import check_int
from tokjax.corpus.sources import Source, make_rereadable, read_documents
from tokjax.datasets.fields.packed_tokens import PackedTokenField
from tokjax.datasets.writer import DEFAULT_SHARD_SIZE, WrittenDataset, write_dataset
from tokjax.errors import DatasetExistsError
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.trainer.bpe.train_bpe import END_OF_TEXT, TrainedBPE, train_bpe

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokjax.core.protocol import Special


class TrainedAndPacked(NamedTuple):
    """Result of `train_and_pack`.

    Attributes:
        trained: the tokenizer, its merges and the training statistics.
        dataset: the path of the dataset, and its numbers of documents, items and shards.
    """

    trained: TrainedBPE
    dataset: WrittenDataset


def train_and_pack(
    source: Source,
    out: str | os.PathLike[str],
    *,
    vocab_size: int,
    special_tokens: Sequence[str] = (END_OF_TEXT,),
    eos_token: str = END_OF_TEXT,
    chunk_tokens: int = 4096,
    shard_size: int = DEFAULT_SHARD_SIZE,
    overwrite: bool = False,
    progress: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    **train_options: Any,
) -> TrainedAndPacked:
    """Trains a byte-level BPE tokenizer, and writes the corpus as packed arrays of its ids.

    The corpus is read twice. An iterator, which can be read only once, is copied to a temporary file.

    Args:
        source: a path, a list of paths, or an iterable of texts. Documents end at EOS tokens and at the ends
            of files and texts.
        out: path of the dataset's directory. The tokenizer is saved in it.
        vocab_size: number of ids, as in `train_bpe`.
        special_tokens: names of special tokens, as in `train_bpe`. The EOS token is added if it is missing.
        eos_token: name of the special token that is put after every document.
        chunk_tokens: number of ids per item, as in `PackedTokenField`.
        shard_size: number of ids per shard, as in `write_dataset`.
        overwrite: whether to replace an existing dataset.
        progress: whether to show progress bars on standard error.
        allowed_special: special tokens other than EOS that are encoded to their ids, as in
            `PackedTokenField`.
        disallowed_special: special tokens other than EOS that raise an error, as in `PackedTokenField`.
        **train_options: other options of `train_bpe`.

    Raises:
        DatasetExistsError: `out` exists and `overwrite` is `False`.
        InvalidArgumentError: an option or the source is invalid.
    """
    if Path(out).exists() and not overwrite:
        raise DatasetExistsError(f"{out} exists; pass overwrite=True to replace it, or another path")
    check_int("chunk_tokens", chunk_tokens, minimum=1)
    check_int("shard_size", shard_size, minimum=1)
    names = check_special_names(special_tokens)
    if eos_token not in names:
        names.append(eos_token)
    with make_rereadable(source) as texts:
        trained = train_bpe(
            texts,
            vocab_size=vocab_size,
            special_tokens=names,
            eos_token=eos_token,
            progress=progress,
            **train_options,
        )
        dataset = write_dataset(
            read_documents(texts, eos_token),
            PackedTokenField(
                trained.tokenizer,
                chunk_tokens,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            ),
            out,
            shard_size=shard_size,
            overwrite=overwrite,
            progress=progress,
        )
    return TrainedAndPacked(trained, dataset)
