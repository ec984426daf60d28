"""The tokenizer protocol: generic functions that dispatch on the type of the tokenizer.

A custom tokenizer type registers two of these functions. All others then work by their default
implementations:

    @tokjax.get_vocabulary.register
    def _(tokenizer: MyTokenizer) -> Vocabulary: ...

    @tokjax.encode_texts.register
    def _(tokenizer: MyTokenizer, texts, **options) -> TokenizationBatch: ...

Register other functions if the type differs from the default, or has a faster way: `normalize` if the
tokenizer changes a text before it splits it, and `decode_bytes` if decoding is more than concatenating the
bytes of tokens (then also `find_decode_context` of `tokjax.core.decode_stream`). Pairs, truncation, windows
and pretokenized input are built on these functions (`tokjax.encoding.encode`). See docs/extending.md.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.atomic_files import compute_json_checksum
from tokjax._util.checks import MANY_TEXTS_ADVICE, check_text, is_iterable
from tokjax._util.display import short_repr
from tokjax.core.encode_options import explain_unknown_options
from tokjax.core.json_records import to_json_values
from tokjax.core.ragged import Ragged, concatenate_ranges, ragged_from_rows
from tokjax.core.records import accept_results
from tokjax.core.utf8 import check_error_handler, to_utf8
from tokjax.core.vocabulary import drop_lookup_roles, format_token
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.encode_options import Special
    from tokjax.core.records import TokenizationBatch, TokenizationResult
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary

_IDS_PER_BLOCK = 1 << 16
_DECODE_UNDER_JIT = (
    "decode on the host what the jitted function returns, or call tokjax.device.decode_jit there"
)
_ADAPTERS = {
    "tokenizers": "from_huggingface",
    "transformers": "from_huggingface",
    "tiktoken": "from_tiktoken",
    "sentencepiece": "from_sentencepiece",
}
BYTE_PIECE = re.compile(rb"<0x[0-9A-F]{2}>")
"""Tokens that stand for one byte, in vocabularies with byte fallback."""


@singledispatch
def get_vocabulary(tokenizer: Any) -> Vocabulary:
    """Returns the vocabulary of a tokenizer: ids, bytes and special tokens."""
    _raise_unsupported("get_vocabulary", tokenizer)


@explain_unknown_options
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
    """Encodes texts separately. Tokenizer types register this function; all other encoders are built on it.

    Args:
        tokenizer: any registered tokenizer.
        texts: sequence of `str` or `bytes`.
        add_special_tokens: as in `encode_batch_result`, like all other options.
        return_offsets: as in `encode_batch_result`.
        return_masks: as in `encode_batch_result`.
        assume_normalized: as in `encode_batch_result`.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.
        threads: as in `encode_batch_result`.
    """
    _raise_unsupported("encode_texts", tokenizer)


@explain_unknown_options
@singledispatch
def encode(
    tokenizer: Any,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> NDArray[np.int32]:
    """Encodes one text to ids. `encode_result` adds offsets and masks; `encode_to_array` takes many texts.

    Args:
        tokenizer: any registered tokenizer.
        text: `str` or `bytes`.
        add_special_tokens: insert the special tokens of the tokenizer's template, such as BOS and EOS. With
            `False`, the result has only the ids of the text.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.

    Returns:
        Token ids, `int32`, shape `(n,)`.
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
def find_matched_names(tokenizer: Any) -> frozenset[str]:
    """Returns the tokens that are matched in any text, although they are not special: added tokens.

    Args:
        tokenizer: any registered tokenizer.
    """
    return get_vocabulary(tokenizer).added_names


@singledispatch
def make_special(tokenizer: Any, names: frozenset[str]) -> Any:
    """Returns a tokenizer in which some of the matched tokens are special, so that text can be without them.

    Args:
        tokenizer: a tokenizer of tokjax.
        names: some of the names of `find_matched_names`.
    """
    _raise_unsupported("make_special", tokenizer)


@singledispatch
def encode_short_result(
    tokenizer: Any,
    text: Text,
    *,
    add_special_tokens: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
) -> TokenizationResult | None:
    """Encodes one short text with less work than `encode_texts`; returns `None` if there is no such path.

    By default there is none. Special tokens are disallowed in the text. The arguments are those of
    `encode_result`.
    """
    return None


@singledispatch
def decode_bytes(tokenizer: Any, ids: ArrayLike, *, skip_special_tokens: bool = False) -> bytes:
    """Decodes ids to bytes, exactly. Use `decode` for text.

    Args:
        tokenizer: any registered tokenizer.
        ids: token ids, integers, shape `(n,)`.
        skip_special_tokens: omit special tokens.

    Raises:
        UnknownTokenError: an id is not in the vocabulary.
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
    """Decodes ids to text.

    Args:
        tokenizer: any registered tokenizer.
        ids: token ids, integers, shape `(n,)`.
        skip_special_tokens: omit special tokens.
        errors: error handling for bytes that are not valid UTF-8 (ids can end inside a character), as in
            `bytes.decode`.

    Raises:
        UnknownTokenError: an id is not in the vocabulary.
    """
    check_error_handler(errors)
    return decode_bytes(tokenizer, ids, skip_special_tokens=skip_special_tokens).decode("utf-8", errors)


@singledispatch
def decode_batch(
    tokenizer: Any,
    rows: TokenizationBatch | Ragged | Iterable[ArrayLike],
    *,
    skip_special_tokens: bool = False,
    errors: str = "replace",
) -> list[str]:
    """Decodes rows of ids to texts.

    Args:
        tokenizer: any registered tokenizer.
        rows: a batch, a `Ragged`, or rows of ids, each of shape `(n,)`.
        skip_special_tokens: omit special tokens.
        errors: as in `decode`.

    Raises:
        UnknownTokenError: an id is not in the vocabulary.
    """
    check_error_handler(errors)
    ids, splits = as_flat_rows(rows)
    if not concatenates_tokens(tokenizer):
        split_rows = np.split(ids, splits[1:-1])[: len(splits) - 1]
        texts = (decode_bytes(tokenizer, row, skip_special_tokens=skip_special_tokens) for row in split_rows)
        return [text.decode("utf-8", errors) for text in texts]
    all_bytes, stops = _decode_tokens(tokenizer, ids, skip_special_tokens)
    bounds = np.append(0, stops)[splits].tolist()  # row splits of ids, as positions in the bytes
    data = all_bytes.tobytes()
    return [data[start:stop].decode("utf-8", errors) for start, stop in itertools.pairwise(bounds)]


def concatenates_tokens(tokenizer: Any) -> bool:
    """Returns whether decoding concatenates tokens: the type has no `decode_bytes` of its own."""
    return decode_bytes.dispatch(type(tokenizer)) is decode_bytes.dispatch(object)


def as_flat_ids(ids: ArrayLike) -> NDArray[np.int32]:
    """Returns the ids of one text as `int32`, shape `(n,)`. Raises for other shapes and for records."""
    if hasattr(ids, "row_splits"):
        raise InvalidArgumentError(f"decode takes ids, not a {type(ids).__name__}; use decode_batch for it")
    if hasattr(ids, "ids"):
        raise InvalidArgumentError(f"decode takes ids, not a {type(ids).__name__}; pass its .ids")
    flat: NDArray[np.int32] = as_integers("ids", ids, np.int32, under_jit=_DECODE_UNDER_JIT)
    if flat.ndim != 1:
        raise InvalidArgumentError(
            f"decode takes the ids of one text, shape (n,), not {flat.shape}; decode_batch takes many"
        )
    return flat


def as_flat_rows(rows: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Returns the flat ids and the row splits of the rows that `decode_batch` takes."""
    ragged = getattr(rows, "ragged", rows)
    if not isinstance(ragged, Ragged):
        if isinstance(rows, (str, bytes)) or not is_iterable(rows):
            raise InvalidArgumentError(
                f"decode_batch takes a batch, a Ragged or rows of ids, not {type(rows).__name__}"
            )
        ragged = ragged_from_rows(map(as_flat_ids, rows))
    return (
        as_integers("ids", ragged.ids, np.int32, under_jit=_DECODE_UNDER_JIT),
        as_integers("row_splits", ragged.row_splits, np.int64, under_jit=_DECODE_UNDER_JIT),
    )


def _decode_tokens(
    tokenizer: Any, ids: NDArray[np.int32], skip_special_tokens: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the concatenated bytes of ids, and the position at which the bytes of each id stop."""
    vocabulary = get_vocabulary(tokenizer)
    vocabulary.check_ids(ids)
    lengths = vocabulary.byte_lengths.take(ids)
    if skip_special_tokens:
        lengths[vocabulary.is_skipped.take(ids)] = 0
    stops = np.cumsum(lengths)
    text = np.empty(int(stops[-1]) if len(stops) else 0, np.uint8)
    # In blocks: the indices of the bytes take 8 times the memory of the text.
    for first in range(0, len(ids), _IDS_PER_BLOCK):
        block = slice(first, first + _IDS_PER_BLOCK)
        source = concatenate_ranges(vocabulary.byte_starts.take(ids[block]), lengths[block])
        start = int(stops[first] - lengths[first])
        vocabulary.all_bytes.take(source, out=text[start : start + len(source)], mode="clip")
    return text, stops


@singledispatch
def normalize(tokenizer: Any, text: Text) -> Text:
    """Normalizes a text as the tokenizer does before it splits it. By default, the text is not changed."""
    get_vocabulary(tokenizer)  # raises for objects that are not tokenizers
    return text


@accept_results
@singledispatch
def map_offsets_to_input(
    tokenizer: Any, text: Text | Sequence[Text], offsets: Any, *, pair: Text | Sequence[Text] | None = None
) -> Any:
    """Maps offsets into the normalized text to offsets into the text itself.

    Map results before the functions of `tokjax.align` use them with spans of the texts as they were passed.

    The normalized text is `tokenization_view(tokenizer, text)`. If normalization joined or replaced
    characters, a span is rounded outward to all characters that were changed together. The sentinel `(0, 0)`
    is kept.

    Args:
        tokenizer: any registered tokenizer.
        text: text before normalization, or the texts of a batch or of windows.
        offsets: 1-based byte spans in the normalized text, shape `(n, 2)`; or a `TokenizationResult`, a
            `TokenizationBatch` or `Windows`. Types of tokenizers register the function for an array.
        pair: second text of a pair, or the second texts of a batch or of windows.

    Returns:
        1-based byte spans in `text`, `int64`, shape `(n, 2)`; or the results with such offsets, whose
        `metadata.offsets_reference` is then `"input_text"`. Results that refer to it already are returned.

    Raises:
        InvalidArgumentError: the results have no offsets, or the number of texts is wrong.

    >>> from tokjax import encode_result, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "e", "kim"])
    >>> result = encode_result(bert, "é Kim", add_special_tokens=False)
    >>> result.offsets.tolist(), map_offsets_to_input(bert, "é Kim", result).offsets.tolist()
    ([[1, 2], [3, 6]], [[1, 3], [4, 7]])
    """
    get_vocabulary(tokenizer)
    return np.array(offsets, np.int64).reshape(-1, 2)


def tokenization_view(tokenizer: Any, text: Text) -> Text:
    """Returns the text after normalization, to which the offsets of the tokenizer refer.

    `encode_result(tokenizer, tokenization_view(tokenizer, text), assume_normalized=True)` returns offsets
    into the view.
    """
    return normalize(tokenizer, text)


@singledispatch
def fingerprint(tokenizer: Any) -> str:
    """Returns a checksum of the tokenizer, the same on every machine.

    Tokenizers that encode differently have different fingerprints. Two tokenizers that encode alike can have
    different fingerprints if they were made differently, for instance from ranks and from a list of merges.
    The roles CLS, SEP and mask do not change how texts are encoded, and are not covered.

    Datasets record the fingerprint, and raise if they are opened with another tokenizer. By default it covers
    the type and the vocabulary. A type that has other options must register this function.
    """
    description = [type(tokenizer).__qualname__, drop_lookup_roles(get_vocabulary(tokenizer))]
    return compute_json_checksum(description, to_json_values)


def token_to_id(tokenizer: Any, token: str | bytes) -> int:
    """Returns the id of a token.

    Args:
        tokenizer: any registered tokenizer.
        token: name of a special token, or text or exact bytes of an ordinary token.

    Raises:
        UnknownTokenError: the token is not in the vocabulary.
    """
    return get_vocabulary(tokenizer).get_id(token)


def id_to_token(tokenizer: Any, id_: int) -> str:
    r"""Returns the readable form of an id, with invalid UTF-8 bytes as `\xNN`.

    Two ids can have the same readable form. Use `id_to_bytes`, and `token_to_id` with bytes, for exact
    conversion.

    Raises:
        UnknownTokenError: the id is not in the vocabulary.
    """
    return format_token(get_vocabulary(tokenizer).get_bytes(id_))


def id_to_bytes(tokenizer: Any, id_: int) -> bytes:
    """Returns the exact bytes of an id. Raises `UnknownTokenError` if it is not in the vocabulary."""
    return get_vocabulary(tokenizer).get_bytes(id_)


def vocab_size(tokenizer: Any) -> int:
    """Returns the largest id plus one: the number of rows of an embedding table."""
    return get_vocabulary(tokenizer).size


@short_repr
class PreTokens(NamedTuple):
    r"""Pre-tokens of one text.

    Attributes:
        strings: text of each pre-token, with invalid UTF-8 bytes as `\xNN`.
        offsets: 1-based half-open spans of UTF-8 bytes, `int64`, shape `(num_pretokens, 2)`, in the text that
            the offsets of the tokenizer refer to.
    """

    strings: tuple[str, ...]
    offsets: NDArray[np.int64]


@singledispatch
def pre_tokenize(
    tokenizer: Any,
    text: Text,
    *,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> PreTokens:
    """Splits a text into pre-tokens, as the tokenizer does before it looks up or merges tokens.

    No token crosses the bounds of a pre-token. Special and added tokens that are matched in the text are
    separate pre-tokens. Spaces that the tokenizer adds to the text are not in the result.

    Args:
        tokenizer: tokenizer of a type that pre-tokenizes: byte-level BPE, WordPiece, word level, unigram,
            `from_callable`, BPE of pieces with `split_words=True`, and tokenizers with a pre-tokenizer that
            run on the `tokenizers` library.
        text: `str` or `bytes`.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.

    Returns:
        The pre-tokens. If the tokenizer normalizes texts before it splits them, as BERT's does, they are
        those of `tokenization_view(tokenizer, text)`.

    Raises:
        DisallowedSpecialTokenError: the text contains a disallowed special token.
        UnsupportedTokenizerError: the tokenizer encodes texts without splitting them first.

    >>> from tokjax import wordpiece
    >>> pretokens = pre_tokenize(wordpiece(["[UNK]"]), "Who's it?")
    >>> pretokens.strings
    ('who', "'", 's', 'it', '?')
    >>> pretokens.offsets[3].tolist()
    [7, 9]
    """
    get_vocabulary(tokenizer)  # raises for objects that are not tokenizers
    raise UnsupportedTokenizerError(
        f"pre_tokenize has no implementation for {type(tokenizer).__name__!r}; register it with "
        "@tokjax.pre_tokenize.register"
    )


def group_by_word(tokenizer: Any, text: Text, **special: Any) -> PreTokens:
    """Returns the pre-tokens of a text for a tokenizer whose word ids number them, and the added tokens."""
    check_text(text, "text", MANY_TEXTS_ADVICE)
    [result] = encode_texts(tokenizer, [text], add_special_tokens=False, **special)
    assert result.word_ids is not None
    assert result.offsets is not None
    is_first = np.diff(result.word_ids, prepend=-1) != 0
    is_last = np.append(is_first[1:], True)[: len(is_first)]
    spans = np.stack([result.offsets[is_first, 0], result.offsets[is_last, 1]], axis=1)
    is_normalized = result.metadata.offsets_reference == "tokenizer_normalized_text"
    data = to_utf8(normalize(tokenizer, text) if is_normalized else text)
    strings = tuple(format_token(data[start - 1 : stop - 1]) for start, stop in spans.tolist())
    return PreTokens(strings, spans)


def token_byte_lengths(tokenizer: Any) -> NDArray[np.int32]:
    """Returns the number of bytes that each id adds to a decoded text, for `objectives.bits_per_byte`.

    For tokenizers that keep every byte, such as byte-level BPE, the lengths of the ids of a text add up to
    its UTF-8 bytes. For others they add up to the bytes of the decoded text: a word of WordPiece counts the
    space before it. The space that some tokenizers put before a text also counts.

    Args:
        tokenizer: any registered tokenizer.

    Returns:
        A NumPy array, `int32`, shape `(vocab_size,)`; 0 for special tokens, the unknown token included, and
        for ids without a token. (Under `jax.jit`, index `jnp.asarray` of it.)

    >>> from tokjax import byte_level, wordpiece
    >>> token_byte_lengths(byte_level(["</s>"]))[:2]
    array([0, 1], dtype=int32)
    >>> token_byte_lengths(wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"]))
    array([0, 0, 0, 0, 5, 3], dtype=int32)
    """
    vocabulary = get_vocabulary(tokenizer)
    lengths = np.array(find_text_lengths(tokenizer), np.int32)
    lengths[vocabulary.is_special | (vocabulary.byte_lengths < 0)] = 0
    return lengths


@singledispatch
def find_text_lengths(tokenizer: Any) -> NDArray[np.integer[Any]]:
    """Returns the number of bytes that each id adds to a decoded text, integers, shape `(vocab_size,)`.

    Values of special tokens and unused ids are ignored. By default, the number of bytes of each token if
    decoding concatenates them. Otherwise each id is decoded between two others: some decoders change the
    first or the last token of a text.
    """
    vocabulary = get_vocabulary(tokenizer)
    # A byte piece can't be a neighbour: it may form a character with the byte piece next to it.
    words = [id_ for token, id_ in vocabulary.ordinary.items() if not BYTE_PIECE.fullmatch(token)]
    if concatenates_tokens(tokenizer) or not words:
        return vocabulary.byte_lengths
    left, right = words[0], words[-1]
    ids = list(vocabulary.bytes_by_id)
    rows = [[left, right], *([left, id_, right] for id_ in ids)]
    texts = decode_batch(tokenizer, rows, errors="surrogateescape")
    without, *nbytes = (len(text.encode("utf-8", "surrogateescape")) for text in texts)
    lengths = np.zeros(vocabulary.size, np.int64)
    lengths[ids] = np.subtract(nbytes, without)
    return lengths


class SpecialTokens(Mapping[str, int]):
    """Special tokens and their ids, in the order of the ids. Roles such as `"sep"` are keys for look-ups."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._names = vocabulary.special
        self._vocabulary = vocabulary

    def __getitem__(self, key: str) -> int:
        """Returns the id of a special token, or else that of the token with a role."""
        id_ = None if key in self._names else self._vocabulary.get_role_id(key)  # type: ignore[arg-type]
        return self._names[key] if id_ is None else id_

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of the tokens."""
        return iter(self._names)

    def __len__(self) -> int:
        """Returns the number of names."""
        return len(self._names)

    def __repr__(self) -> str:
        """Shows the tokens as a dict."""
        return repr(dict(self))


def special_tokens(tokenizer: Any) -> Mapping[str, int]:
    """Returns a mapping of special tokens to ids, in the order of the ids.

    The roles of tokens can be looked up, too: `special_tokens(tokenizer).get("sep")` is `sep_id(tokenizer)`.
    A special token whose name is that of a role comes first.
    """
    return SpecialTokens(get_vocabulary(tokenizer))


def bos_id(tokenizer: Any) -> int | None:
    """Returns the id of the beginning-of-sequence token, or `None` if the tokenizer declares none.

    Files of BERT declare no such token. `load_tokenizer` gives the role to their `[CLS]`.
    """
    return get_vocabulary(tokenizer).get_role_id("bos")


def eos_id(tokenizer: Any) -> int | None:
    """Returns the id of the end-of-sequence token, or `None` if the tokenizer declares none.

    Files of BERT declare no such token. `load_tokenizer` gives the role to their `[SEP]`.
    """
    return get_vocabulary(tokenizer).get_role_id("eos")


def pad_id(tokenizer: Any) -> int | None:
    """Returns the id of the padding token, or `None` if the tokenizer declares none."""
    return get_vocabulary(tokenizer).get_role_id("pad")


def unk_id(tokenizer: Any) -> int | None:
    """Returns the id of the unknown token, or `None` if the tokenizer declares none."""
    return get_vocabulary(tokenizer).get_role_id("unk")


def cls_id(tokenizer: Any) -> int | None:
    """Returns the id of the classification token, or `None` if the tokenizer declares none.

    Its output represents the text: `[CLS]` in BERT and ALBERT, `<s>` in RoBERTa.

    >>> from tokjax import wordpiece
    >>> bert = wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "me"])
    >>> cls_id(bert), sep_id(bert), mask_id(bert)
    (2, 3, 4)
    """
    return get_vocabulary(tokenizer).get_role_id("cls")


def sep_id(tokenizer: Any) -> int | None:
    """Returns the id of the separator token, or `None` if the tokenizer declares none.

    It ends each text of a pair: `[SEP]` in BERT and ALBERT, `</s>` in RoBERTa.
    """
    return get_vocabulary(tokenizer).get_role_id("sep")


def mask_id(tokenizer: Any) -> int | None:
    """Returns the id of the mask token, or `None` if the tokenizer declares none.

    Pass it to `masked_lm`. Use `with_roles` to declare the mask token of a tokenizer.
    """
    return get_vocabulary(tokenizer).get_role_id("mask")


def is_tokenizer(value: object) -> bool:
    """Returns whether a value is a tokenizer: its type, or a base class, has registered `get_vocabulary`."""
    return get_vocabulary.dispatch(type(value)) is not get_vocabulary.dispatch(object)


def find_library(tokenizer: object) -> str | None:
    """Returns the library that defines an object's class or a base class, if tokjax has an adapter for it.

    Returns:
        A key of `_ADAPTERS`, or `None`.
    """
    modules = (class_.__module__.partition(".")[0] for class_ in type(tokenizer).__mro__)
    return next((module for module in modules if module in _ADAPTERS), None)


def suggest_tokenizer(value: object) -> str:
    """Returns advice for an object that has a tokenizer, such as the result of a trainer; else `""`."""
    return "; pass its attribute .tokenizer" if is_tokenizer(getattr(value, "tokenizer", None)) else ""


def _raise_unsupported(function: str, tokenizer: Any) -> NoReturn:
    library = find_library(tokenizer)
    if library is not None:
        raise UnsupportedTokenizerError(
            f"{function} takes tokenizers of tokjax, not a {type(tokenizer).__name__} of {library}; pass "
            f"tokjax.formats.{_ADAPTERS[library]}(tokenizer)"
        )
    advice = suggest_tokenizer(tokenizer)
    if advice:
        raise UnsupportedTokenizerError(
            f"{function} takes a tokenizer, not a {type(tokenizer).__name__}{advice}"
        )
    raise UnsupportedTokenizerError(
        f"{function} has no implementation for {type(tokenizer).__name__!r}; pass a tokenizer such as "
        f"tokjax.byte_level_bpe(...) or tokjax.load_tokenizer(PATH), or register your own type with "
        f"@tokjax.{function}.register"
    )
