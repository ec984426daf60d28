"""Limits on the time and memory that untrusted tokenizer files can cost."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tokjax._util.checks import check_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEFAULTS: Mapping[str, int] = {
    "file_bytes": 1 << 29,
    "json_values": 1 << 23,
    "vocab_size": 1 << 20,
    "text_growth": 1024,
    "piece_comparisons": 20_000,
    "special_token_comparisons": 1024,
}
_current: ContextVar[Mapping[str, float]] = ContextVar("tokjax_limits", default=_DEFAULTS)


@contextmanager
def limits(**values: int) -> Iterator[None]:
    """Sets limits on tokenizer files, for the calls inside a `with` block and for the current thread.

    Each limit bounds the time or memory that a file from an untrusted source can cost. A file that exceeds
    one raises an error that names the limit.

    | limit | default | bounded quantity |
    |---|---|---|
    | `file_bytes` | 536,870,912 | size of a tokenizer file, a download, and a manifest at a URL, in bytes |
    | `json_values` | 8,388,608 | number of brackets and commas in a JSON file |
    | `vocab_size` | 1,048,576 | number of tokens in a file of another library |
    | `text_growth` | 1,024 | number of characters that one character, or an empty text, can become |
    | `piece_comparisons` | 20,000 | characters compared at one position of a text to find pieces |
    | `special_token_comparisons` | 1,024 | characters compared at one position to find special tokens |

    `json_values` applies to tokenizers, manifests and bundles. A token of a vocabulary adds one, and a merge
    up to three. Each of them takes 40 to 300 bytes of memory.

    `text_growth` is computed from the normalizer, pre-tokenizer and decoder of a `tokenizer.json`, and from
    the normalizer of a `.model`. It also bounds the number of such steps and the number of tokens of a
    template.

    `piece_comparisons` applies to Unigram and SentencePiece models, where it is the largest sum of lengths of
    pieces that are prefixes of one another. It also applies to WordPiece models that run on the `tokenizers`
    library, where it is half the square of `max_input_chars_per_word`.

    `special_token_comparisons` applies to special and added tokens. It is the length of the longest one, and
    more if more than 40 of them are prefixes of one another.

    Args:
        **values: new limits by name, integers of at least 1. Limits that are not passed keep their value.

    Raises:
        InvalidArgumentError: a name is not that of a limit, or a value is not a positive integer.

    >>> with limits(vocab_size=3_000_000):
    ...     pass  # load_tokenizer("tokenizer.model")
    """
    for name, value in values.items():
        if name not in _DEFAULTS:
            raise InvalidArgumentError(f"there is no limit {name!r}; the limits are {', '.join(_DEFAULTS)}")
        check_int(name, value, minimum=1)
    token = _current.set({**_current.get(), **values})
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def no_limits() -> Iterator[None]:
    """Lifts all limits in a `with` block, to unpickle tokenizers that were checked when they were loaded."""
    token = _current.set(dict.fromkeys(_DEFAULTS, math.inf))
    try:
        yield
    finally:
        _current.reset(token)


def get_limit(name: str) -> float:
    """Returns the value of a limit."""
    return _current.get()[name]


def exceeds_limit(name: str, value: float) -> str | None:
    """Returns the end of an error message if `value` exceeds a limit, otherwise `None`.

    Args:
        name: name of the limit.
        value: value that the file requires; may be infinite.
    """
    limit = get_limit(name)
    if value <= limit:
        return None
    return f"the limit is {limit:,}; if you trust the file, load it inside tokjax.limits({name}=...)"


def parse_json(data: bytes | str, **options: Any) -> Any:
    """Returns the values of JSON text, as `json.loads` does. Before that, it counts them.

    Raises:
        ValueError: the text is not JSON, or exceeds the limit `json_values`.
    """
    count = sum(map(data.count, "[{," if isinstance(data, str) else b"[{,"))  # type: ignore[arg-type]
    if exceeded := exceeds_limit("json_values", count):
        raise ValueError(f"it has {count:,} brackets and commas; {exceeded}")
    return json.loads(data, **options)
