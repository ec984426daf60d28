"""The generic functions over tokenizers, and what a tokenizer's type must provide.

They dispatch on the type of their first argument, so a type of your own joins by registering two of
them, and gets the rest:

    @tokjax.get_vocabulary.register
    def _(tokenizer: MyTokenizer) -> Vocabulary: ...

    @tokjax.encode_texts.register
    def _(tokenizer: MyTokenizer, texts, **options) -> TokenizationBatch: ...

Register the others where your type can do better, or where it differs: `normalize` if it changes the
text before it splits it, `decode_bytes` if decoding is more than joining tokens. Pairs, truncation, windows
and words that are split already are made of these (`tokjax.encoding.encode`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.files import compute_json_checksum
from tokjax.core.ragged import Ragged, concatenate_ranges, ragged_from_rows
from tokjax.core.template import template_to_json
from tokjax.core.vocabulary import format_token
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.records import TokenizationBatch
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary

_IDS_PER_BLOCK = 1 << 16
_ADAPTERS = {
    "tokenizers": "from_huggingface",
    "transformers": "from_huggingface",
    "tiktoken": "from_tiktoken",
    "sentencepiece": "from_sentencepiece",
}

Special: TypeAlias = Literal["all"] | Collection[str]
"""Names of special tokens, or `"all"` of them."""


@singledispatch
def get_vocabulary(tokenizer: Any) -> Vocabulary:
    """The table of ids and bytes of a tokenizer, with its special tokens."""
    _raise_unsupported("get_vocabulary", tokenizer)


@singledispatch
def encode_texts(
    tokenizer: Any,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    threads: int | None = None,
) -> TokenizationBatch:
    """Encode many texts, each on its own: what a type of tokenizer registers, and all else is made of.

    The arguments are those of `encode_batch_result`.
    """
    _raise_unsupported("encode_texts", tokenizer)


@singledispatch
def encode(
    tokenizer: Any,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> NDArray[np.int32]:
    """Encode one text to ids.

    Args:
        tokenizer: any registered tokenizer.
        text: `str` or `bytes`.
        add_special_tokens: insert the special tokens of the tokenizer's template, such as BOS and EOS;
            `False` gives the ids of the text alone.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.

    Returns:
        `int32`, shape `(n,)`.
    """
    batch = encode_texts(
        tokenizer,
        [text],
        add_special_tokens=add_special_tokens,
        return_offsets=False,
        return_masks=False,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
    return batch[0].ids


@singledispatch
def decode_bytes(tokenizer: Any, ids: ArrayLike, *, skip_special_tokens: bool = False) -> bytes:
    """The exact bytes that ids stand for.

    Args:
        tokenizer: any registered tokenizer.
        ids: integers, shape `(n,)`.
        skip_special_tokens: leave special tokens out.

    Raises:
        UnknownTokenError: an id has no token.
    """
    text, _ = _decode_tokens(tokenizer, as_flat_ids(ids), skip_special_tokens)
    return text.tobytes()


def decode(
    tokenizer: Any,
    ids: ArrayLike,
    *,
    skip_special_tokens: bool = False,
    errors: str = "replace",
) -> str:
    """The text that ids stand for.

    Args:
        tokenizer: any registered tokenizer.
        ids: integers, shape `(n,)`.
        skip_special_tokens: leave special tokens out.
        errors: what to do with bytes that are no UTF-8 (ids may end inside a character), as in
            `bytes.decode`.
    """
    return decode_bytes(tokenizer, ids, skip_special_tokens=skip_special_tokens).decode("utf-8", errors)


@singledispatch
def decode_batch(
    tokenizer: Any,
    rows: TokenizationBatch | Ragged | Iterable[ArrayLike],
    *,
    skip_special_tokens: bool = False,
    errors: str = "replace",
) -> list[str]:
    """The texts that rows of ids stand for.

    Args:
        tokenizer: any registered tokenizer.
        rows: a batch, a `Ragged`, or rows of ids, each of shape `(n,)`.
        skip_special_tokens: leave special tokens out.
        errors: as in `decode`.

    Raises:
        UnknownTokenError: an id has no token.
    """
    ids, splits = as_flat_rows(rows)
    text, stops = _decode_tokens(tokenizer, ids, skip_special_tokens)
    bounds = np.append(0, stops)[splits].tolist()
    data = text.tobytes()
    return [data[start:stop].decode("utf-8", errors) for start, stop in itertools.pairwise(bounds)]


def decode_row_by_row(
    tokenizer: Any, rows: Any, *, skip_special_tokens: bool = False, errors: str = "replace"
) -> list[str]:
    """What `decode_batch` is for types whose `decode_bytes` is more than joining tokens."""
    ids, splits = as_flat_rows(rows)
    split_rows = np.split(ids, splits[1:-1])[: len(splits) - 1]
    texts = (decode_bytes(tokenizer, row, skip_special_tokens=skip_special_tokens) for row in split_rows)
    return [text.decode("utf-8", errors) for text in texts]


def as_flat_ids(ids: ArrayLike) -> NDArray[np.int32]:
    """What `decode_bytes` takes, as an array."""
    if hasattr(ids, "row_splits"):
        raise InvalidArgumentError(f"decode takes ids, not a {type(ids).__name__}; use decode_batch for it")
    if hasattr(ids, "ids"):
        raise InvalidArgumentError(f"decode takes ids, not a {type(ids).__name__}; pass its .ids")
    flat: NDArray[np.int32] = as_integers("ids", ids, np.int32)
    if flat.ndim != 1:
        raise InvalidArgumentError(
            f"decode takes the ids of one text, shape (n,), not {flat.shape}; decode_batch takes many"
        )
    return flat


def as_flat_rows(rows: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """What `decode_batch` takes, as all ids and row splits."""
    ragged = getattr(rows, "ragged", rows)
    if not isinstance(ragged, Ragged):
        if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
            raise InvalidArgumentError(
                f"decode_batch takes a batch, a Ragged or rows of ids, not {type(rows).__name__}"
            )
        ragged = ragged_from_rows(rows)
    return as_integers("ids", ragged.ids, np.int32), as_integers("row_splits", ragged.row_splits, np.int64)


def _decode_tokens(
    tokenizer: Any, ids: NDArray[np.int32], skip_special_tokens: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all ids, end to end, and where those of each id stop."""
    table = get_vocabulary(tokenizer)
    table.check_ids(ids)
    lengths = table.byte_lengths.take(ids)
    if skip_special_tokens:
        lengths[table.is_special.take(ids)] = 0
    stops = np.cumsum(lengths)
    text = np.empty(int(stops[-1]) if len(stops) else 0, np.uint8)
    for first in range(0, len(ids), _IDS_PER_BLOCK):
        some = slice(first, first + _IDS_PER_BLOCK)
        source = concatenate_ranges(table.byte_starts.take(ids[some]), lengths[some])
        start = int(stops[first] - lengths[first])
        table.all_bytes.take(source, out=text[start : start + len(source)], mode="clip")
    return text, stops


@singledispatch
def normalize(tokenizer: Any, text: Text) -> Text:
    """What the tokenizer does to a text before it splits it: nothing, unless its type says otherwise."""
    get_vocabulary(tokenizer)  # an error for what is no tokenizer
    return text


@singledispatch
def map_offsets_to_input(tokenizer: Any, text: Text, offsets: ArrayLike) -> NDArray[np.int64]:
    """Offsets into `tokenization_view(tokenizer, text)` as offsets into `text` itself.

    Where normalisation joined or replaced characters, a span is rounded outward to all that were changed
    together. The sentinel stays the sentinel.

    Args:
        tokenizer: any registered tokenizer.
        text: the text as it was before normalisation.
        offsets: 1-based byte spans in the view, shape `(n, 2)`.

    Returns:
        1-based byte spans in the text, `int64`, shape `(n, 2)`.
    """
    get_vocabulary(tokenizer)
    return np.array(offsets, np.int64).reshape(-1, 2)


def tokenization_view(tokenizer: Any, text: Text) -> Text:
    """The text that the tokenizer sees, and that its offsets refer to.

    `encode_result(tokenizer, tokenization_view(tokenizer, text), assume_normalized=True)` gives offsets
    into the view.
    """
    return normalize(tokenizer, text)


@singledispatch
def fingerprint(tokenizer: Any) -> str:
    """A short name for exactly this tokenizer, the same on any machine.

    Tokenizers that behave differently have different ones. Two that behave alike may have two, if they were
    made differently: from ranks and from a list of merges, say.

    Datasets record it, and refuse to open with another tokenizer. By default it covers the type and the
    vocabulary; a type whose splitting has options of its own must register it.
    """
    table = get_vocabulary(tokenizer)
    described = [
        type(tokenizer).__qualname__,
        [(id_, token.hex()) for id_, token in table.bytes_by_id.items()],
        dict(table.special),
        {str(role): name for role, name in table.roles.items()},
    ]
    if table.explicit_template is not None:
        described.append(template_to_json(table.explicit_template))
    if table.added_tokens:
        described.append({name: list(added_token) for name, added_token in table.added_tokens.items()})
    if table.duplicate_token_ids:
        described.append(dict(table.duplicate_token_ids))
    return compute_json_checksum(described)


def token_to_id(tokenizer: Any, token: str | bytes) -> int:
    """The id of a token: a special token's name, an ordinary token's text, or its exact bytes.

    Raises:
        UnknownTokenError: the vocabulary has no such token.
    """
    return get_vocabulary(tokenizer).get_id(token)


def id_to_token(tokenizer: Any, id_: int) -> str:
    r"""The readable form of an id, with bytes that are no UTF-8 as `\xNN`.

    For reading only: two ids can look alike. `id_to_bytes` and `token_to_id` of bytes are exact.
    """
    table = get_vocabulary(tokenizer)
    return format_token(table.get_bytes(id_))


def id_to_bytes(tokenizer: Any, id_: int) -> bytes:
    """The exact bytes of an id."""
    return get_vocabulary(tokenizer).get_bytes(id_)


def vocab_size(tokenizer: Any) -> int:
    """The largest id plus one: the number of rows that an embedding table needs."""
    return get_vocabulary(tokenizer).size


def special_tokens(tokenizer: Any) -> Mapping[str, int]:
    """The special tokens, name to id, in the order of their ids."""
    return get_vocabulary(tokenizer).special


def bos_id(tokenizer: Any) -> int | None:
    """The id of the token that begins a text, or `None` where none is declared."""
    return get_vocabulary(tokenizer).get_role_id("bos")


def eos_id(tokenizer: Any) -> int | None:
    """The id of the token that ends a text, or `None` where none is declared."""
    return get_vocabulary(tokenizer).get_role_id("eos")


def pad_id(tokenizer: Any) -> int | None:
    """The id of the token that pads a batch, or `None` where none is declared."""
    return get_vocabulary(tokenizer).get_role_id("pad")


def unk_id(tokenizer: Any) -> int | None:
    """The id of the token for what the vocabulary can't express, or `None` where none is declared."""
    return get_vocabulary(tokenizer).get_role_id("unk")


def find_library(tokenizer: object) -> str | None:
    """Returns the name of the library that an object belongs to, among those that have an adapter.

    Subclasses that are defined elsewhere belong to the library of their base class.
    """
    modules = (class_.__module__.partition(".")[0] for class_ in type(tokenizer).__mro__)
    return next((module for module in modules if module in _ADAPTERS), None)


def _raise_unsupported(function: str, tokenizer: Any) -> NoReturn:
    library = find_library(tokenizer)
    if library is not None:
        raise UnsupportedTokenizerError(
            f"{function} takes tokenizers of tokjax, not a {type(tokenizer).__name__} of {library}; pass "
            f"tokjax.formats.{_ADAPTERS[library]}(tokenizer)"
        )
    raise UnsupportedTokenizerError(
        f"{function} has no implementation for {type(tokenizer).__name__!r}; pass a tokenizer such as "
        f"tokjax.byte_level_bpe(...) or tokjax.load_tokenizer(PATH), or register your own type with "
        f"@tokjax.{function}.register"
    )
