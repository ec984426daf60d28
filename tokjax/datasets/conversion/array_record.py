"""ArrayRecord files for Grain and MaxText: each record is a `tf.train.Example` with a document.

To read such files, pass them to `write_dataset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tokjax._util.atomic_files import write_atomically
from tokjax.corpus.array_record import import_array_record
from tokjax.corpus.tf_example import serialize_example
from tokjax.datasets.conversion.token_streams import check_absent
from tokjax.datasets.dataset_types import RawTextDataset
from tokjax.errors import Hint, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    import numpy as np
    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset

_IDS = "input_ids"
"""Name of the feature that holds the ids of a document."""
_TEXT = "text"
"""Name of the feature that holds the text of a document, which is MaxText's default."""
_OPTIONS = "group_size:1"
"""One record per compressed block, as Grain requires for random access."""


def read(path: Path, tokenizer: Any) -> NoReturn:  # noqa: ARG001 (the signature of all readers)
    """Raises `InvalidArgumentError`, which names the call that reads the file."""
    raise InvalidArgumentError(
        f"{path}: ArrayRecord files are sources of write_dataset, also if they hold ids",
        hint=Hint(
            f"call write_dataset({str(path)!r}, PackedTokenField(tokenizer, add_eos_between_docs=False), "
            f"OUT, text_column={_IDS!r})",
            f"run tokjax pack {path} --text-column {_IDS} --separator '' --no-eos",
        ),
    )


def write(
    dataset: TokenDataset | RawTextDataset, target: Path, *, overwrite: bool, max_tokens: int | None = None
) -> tuple[Path, ...]:
    """Writes the documents of a dataset as records, and returns the path of the file.

    Args:
        dataset: dataset of token ids or texts.
        target: path of the file.
        overwrite: whether to replace an existing file.
        max_tokens: maximum number of ids of a record; longer documents are split. `None` for no limit.
    """
    check_absent([target], overwrite=overwrite)
    writer_class = import_array_record(f"writing {target}").ArrayRecordWriter

    def write_records(file: BinaryIO) -> None:
        writer = writer_class(file.name, _OPTIONS)  # (the library needs a path)
        if isinstance(dataset, RawTextDataset):
            for row in range(dataset.num_documents):
                writer.write(serialize_example(_TEXT, dataset.text_bytes(row)))
        else:
            for ids in _iter_ids(dataset, max_tokens):
                writer.write(serialize_example(_IDS, ids))
        writer.close()

    write_atomically(target, write_records)
    return (target,)


def _iter_ids(dataset: TokenDataset, max_tokens: int | None) -> Iterator[NDArray[np.int32]]:
    for row in range(dataset.num_documents):
        ids = dataset.document(row)
        step = max_tokens or max(len(ids), 1)
        for start in range(0, max(len(ids), 1), step):
            yield ids[start : start + step]
