"""A vocabulary, and the packed arrays made with it, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.checks import check_int
from tokjax.corpus.sources import Source, make_rereadable, read_documents
from tokjax.datasets.fields import PackedTokenField
from tokjax.datasets.writer import DEFAULT_SHARD_SIZE, WrittenDataset, write_dataset
from tokjax.errors import DatasetExistsError
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.trainer.bpe.train import END_OF_TEXT, TrainedBPE, train_bpe

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tokjax.core.protocol import Special


class TrainedAndPacked(NamedTuple):
    """What `train_and_pack` made.

    Attributes:
        trained: the tokenizer, its merges and the statistics of training.
        dataset: the counts of the dataset, and its path.
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
    """Train a byte-level BPE tokenizer, and write the corpus as packed arrays of its ids.

    An iterator that can be read only once is kept in a temporary file between the two.

    Args:
        source: a path, a list of paths, or an iterable of texts. EOS tokens in it end documents.
        out: the dataset's directory. The tokenizer is saved in it.
        vocab_size: as in `train_bpe`.
        special_tokens: as in `train_bpe`; the EOS token is added if it is not among them.
        eos_token: ends every document.
        chunk_tokens: as in `PackedTokenField`.
        shard_size: as in `write_dataset`.
        overwrite: replace a dataset that is there already.
        progress: show bars on standard error.
        allowed_special: as in `PackedTokenField`; for special tokens other than EOS.
        disallowed_special: as in `PackedTokenField`; for special tokens other than EOS.
        **train_options: any other option of `train_bpe`.
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
