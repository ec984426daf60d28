"""Display of batches, datasets, loaders and tokenizers in notebooks: each as a batch, by `show_batch`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tokjax.core.ragged import ragged_from_rows
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.dataset_types import RawTextDataset
from tokjax.datasets.loaders.base import Loader
from tokjax.encoding.encode import encode_batch_result
from tokjax.errors import DatasetIncompleteError, TokjaxError
from tokjax.models.base import TokenizerRecord
from tokjax.reports.show_batch.show import show_batch

if TYPE_CHECKING:
    from tokjax.core.ragged import Ragged
    from tokjax.core.records import Results
    from tokjax.datasets.dataset_types import TokenDataset

_MAX_ROWS = 4
"""Number of rows or documents that are shown."""
_MAX_TEXT_BYTES = 4096
"""Number of bytes of each text that are encoded."""
_MAX_TOKENS = 100
"""Number of ordinary tokens of a tokenizer that are shown."""


def render_html(value: Any) -> str | None:
    """Returns HTML of a batch, a dataset, a loader or a tokenizer.

    Batches have no tokenizer, so their ids are shown. Of a dataset, the first documents are shown, of a
    loader the next batch, and of a tokenizer the special tokens and the first of the others.

    Returns:
        The HTML, or `None` for a value without rows of ids, or whose rows would be downloaded.
    """
    try:
        if isinstance(value, TokenizerRecord):
            return replace(show_batch(_list_tokens(value), value), title=repr(value), notes=())._repr_html_()
        if not isinstance(value, (Dataset, Loader)):
            return show_batch(value, max_rows=_MAX_ROWS)._repr_html_()
        datasets = value.datasets if isinstance(value, Loader) else (value,)
        if any(dataset._files.remote is not None for dataset in datasets):
            return None
        batch = value.batch_at(value.step) if isinstance(value, Loader) else _read_documents(value)
        shown = show_batch(batch, _find_tokenizer(value), max_rows=_MAX_ROWS)
        return replace(shown, title=f"{value!r}: {shown.title}")._repr_html_()
    except (TokjaxError, RuntimeError):  # JAX raises a RuntimeError for arrays of other processes
        return None


def _list_tokens(tokenizer: TokenizerRecord) -> Ragged:
    """Returns the ids of the special tokens in one row, and of the first other tokens in another."""
    vocabulary = tokenizer.vocabulary
    special = set(vocabulary.special.values())
    ordinary = (id_ for id_ in range(vocabulary.size) if id_ not in special and vocabulary.strings[id_])
    rows = [sorted(special), list(islice(ordinary, _MAX_TOKENS))]
    return ragged_from_rows([np.array(row, np.int32) for row in rows if row])


def _find_tokenizer(value: Dataset | Loader[Any, Any]) -> Any:
    """Returns the tokenizer of a dataset or a loader; `None` if it has none."""
    try:
        return value._find_tokenizer() if isinstance(value, Loader) else value.tokenizer
    except DatasetIncompleteError:
        return None


def _read_documents(dataset: Dataset) -> Results:
    """Returns the first documents, as tokens."""
    rows = range(min(len(dataset), _MAX_ROWS))
    if isinstance(dataset, RawTextDataset):
        texts = [dataset.text_bytes(row)[:_MAX_TEXT_BYTES] for row in rows]
        return encode_batch_result(dataset.tokenizer, texts, disallowed_special=())
    return cast("TokenDataset", dataset).rows(rows)
