"""Writing of datasets in the formats of other programs: `export_dataset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokjax._util.atomic_files import check_path
from tokjax._util.checks import check_int
from tokjax._util.urls import reject_urls
from tokjax.datasets.conversion import array_record, arrays, megatron, nanogpt
from tokjax.datasets.conversion.formats import detect_format
from tokjax.datasets.dataset_types import RawTextDataset, TokenDataset
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from tokjax.datasets.conversion.formats import TokenFormat

_WRITERS: dict[TokenFormat, Callable[..., tuple[Path, ...]]] = {
    "nanogpt": nanogpt.write,
    "megatron": megatron.write,
    "npy": arrays.write_npy,
    "array_record": array_record.write,
}


def export_dataset(
    dataset: TokenDataset | RawTextDataset,
    path: str | os.PathLike[str],
    format: TokenFormat | None = None,  # noqa: A002 (the usual name of this parameter)
    *,
    max_tokens: int | None = None,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Writes the ids of a dataset in the format of another program. `convert_dataset` lists the formats.

    `"array_record"` (needs `tokjax[arrayrecord]`) writes an ArrayRecord file for Grain and MaxText: one
    record per document, a `tf.train.Example` with the ids in the feature `input_ids`, or of a dataset of
    texts, with the text in the feature `text`. Side columns are not exported.

    Args:
        dataset: open dataset of token ids; for `"array_record"` also of texts.
        path: path of the file to write; for `"megatron"` that of the `.idx`, next to which a `.bin` is
            written.
        format: format to write; `None` to detect it from the file name.
        max_tokens: for `"array_record"`, maximum number of ids of a record; longer documents become several
            records. `None` for no limit.
        overwrite: whether to replace existing files.

    Returns:
        The paths of the files that were written.

    Raises:
        DatasetExistsError: a file exists and `overwrite` is not set.
        InvalidArgumentError: the format can't represent these ids.
    """
    reject_urls(path)
    target = check_path(path)
    kind = detect_format(target, format)
    holds_ids, writes_records = isinstance(dataset, TokenDataset), kind == "array_record"
    if not holds_ids and not (writes_records and isinstance(dataset, RawTextDataset)):
        raise InvalidArgumentError(
            f"dataset must be a TokenDataset, not a {type(dataset).__name__}, to write the format {kind!r}"
        )
    options = {}
    if max_tokens is not None:
        if not (holds_ids and writes_records):
            raise InvalidArgumentError(
                f"max_tokens is for format='array_record' and datasets of ids, and the format is {kind!r}, "
                f"of a {type(dataset).__name__}"
            )
        options["max_tokens"] = check_int("max_tokens", max_tokens, minimum=1)
    return _WRITERS[kind](dataset, target, overwrite=overwrite, **options)
