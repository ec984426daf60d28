"""Texts to structured results: alone or in pairs, cut to a length or not, split into words or not.

All of it is made of `encode_texts`, which a type of tokenizer registers, and of its template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

import numpy as np

from tokjax._util.checks import check_int, reject_path, reject_tables
from tokjax.core import protocol
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.ragged import make_row_splits
from tokjax.core.records import TokenizationBatch, make_batch_without_copy
from tokjax.core.template import (
    TRUNCATIONS,
    TokenSlices,
    Truncation,
    apply_template,
    compute_text_capacity,
    compute_truncated_lengths,
    compute_truncated_starts,
    resolve_pieces,
)
from tokjax.core.utf8 import Text, count_bytes
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
    from tokjax.core.ragged import Ragged
    from tokjax.core.records import TokenizationBatch, TokenizationResult
    from tokjax.core.template import ResolvedPiece
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary


class EncodedTexts(NamedTuple):
    """All texts, first ones and then second ones, without a template.

    Attributes:
        batch: their tokens.
        rows: the rows of the first texts, and of the second ones if there are any.
        lengths: how many tokens those have.
        vocabulary: the tokenizer's.
    """

    batch: TokenizationBatch
    rows: list[NDArray[np.int64]]
    lengths: list[NDArray[np.int64]]
    vocabulary: Vocabulary

    def replace_rows(
        self, parts: Sequence[TokenSlices], pieces: Sequence[ResolvedPiece]
    ) -> TokenizationBatch:
        """A batch of parts of the texts, put into a template."""
        return make_batch_without_copy(
            apply_template(self.batch.ragged, parts, pieces),
            self.batch.metadata,
            self.vocabulary.get_token_strings,
            has_attention_mask=self.batch.has_attention_mask,
        )


def encode_without_template(
    tokenizer: Any,
    texts: Sequence[Any],
    pairs: Sequence[Any] | None,
    *,
    is_pretokenized: bool,
    **options: Any,
) -> EncodedTexts:
    """Encode texts, or pairs of them, that are checked first.

    Args:
        tokenizer: any registered tokenizer.
        texts: as in `encode_batch_result`.
        pairs: the second text of each, if there are any.
        is_pretokenized: each text is a sequence of words.
        **options: those of `encode_texts` but for `add_special_tokens`.

    Raises:
        DisallowedSpecialTokenError: a text holds a special token that is disallowed.
        InvalidArgumentError: they are no sequence of texts, or not as many pairs.
    """
    reject_tables(texts, "texts")
    reject_path(texts, "texts")
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__len__"):
        raise InvalidArgumentError(
            f"texts must be a sequence of texts, not {texts!r:.80}; for one text pass [text]"
        )
    all_texts = list(texts)
    if pairs is not None:
        reject_tables(pairs, "pairs")
        reject_path(pairs, "pairs")
        if isinstance(pairs, (str, bytes)) or not hasattr(pairs, "__len__") or len(pairs) != len(all_texts):
            raise InvalidArgumentError(
                f"pairs must be as many texts as there are texts ({len(all_texts)}), one to go with each; got "
                f"{pairs!r:.80}"
            )
        all_texts += pairs
    joined = [join_words(words, i) for i, words in enumerate(all_texts)] if is_pretokenized else None
    plain = all_texts if joined is None else [words.text for words in joined]
    batch = protocol.encode_texts(tokenizer, plain, add_special_tokens=False, **options)
    if joined is not None and options["return_offsets"]:
        batch = assign_word_ids(tokenizer, batch, joined)
    of_first, of_second = np.arange(len(texts)), np.arange(len(texts), len(all_texts))
    rows = [of_first] if pairs is None else [of_first, of_second]
    return EncodedTexts(
        batch, rows, [batch.lengths[part] for part in rows], protocol.get_vocabulary(tokenizer)
    )


def resolve_template(tokenizer: Any, is_pair: bool, add_special_tokens: bool) -> list[ResolvedPiece]:
    """The tokenizer's template, or its texts alone.

    Raises:
        UnsupportedTokenizerError: the tokenizer has no template for pairs.
    """
    table = protocol.get_vocabulary(tokenizer)
    pieces = table.template.pair if is_pair else table.template.single
    if not pieces:
        raise UnsupportedTokenizerError(
            f"{type(tokenizer).__name__} can't encode pairs: in its file the template of pairs does not hold "
            "each of the two texts once; encode the texts separately, or give it another template, with "
            "with_template(tokenizer, SINGLE, PAIR) or in the file"
        )
    return resolve_pieces(pieces, table.special, add_special_tokens=add_special_tokens)


class JoinedWords(NamedTuple):
    """Words with a blank between each two.

    Attributes:
        text: all of it.
        ends: where each word ends, 0-based, in bytes, `int64`, shape `(words,)`; a blank stands there, or the
            text ends.
    """

    text: Text
    ends: NDArray[np.int64]


def join_words(words: Any, row: int) -> JoinedWords:
    """The words of a text, joined.

    Raises:
        InvalidArgumentError: they are no sequence of `str`, nor of `bytes`.
    """
    if isinstance(words, (str, bytes)) or not isinstance(words, Sequence):
        raise InvalidArgumentError(
            f"with is_pretokenized=True each text is a sequence of words, and text {row} is "
            f"{words!r:.80}; split it, or leave is_pretokenized out"
        )
    kind = bytes if words and isinstance(words[0], bytes) else str
    for word in words:
        if not isinstance(word, kind):
            raise InvalidArgumentError(
                f"the words of text {row} are {kind.__name__}, but for {word!r}; they must be of one kind"
            )
    text = b" ".join(words) if kind is bytes else " ".join(words)
    lengths = make_row_splits(count_bytes(word) + 1 for word in words)
    return JoinedWords(text, lengths[1:] - 1)


def assign_word_ids(
    tokenizer: Any, batch: TokenizationBatch, texts: Sequence[JoinedWords]
) -> TokenizationBatch:
    """The batch with `word_ids` that are places in the sequences of words.

    A token is of the word in which it begins; a blank between two words is the beginning of the second.

    Args:
        tokenizer: what encoded the texts.
        batch: the texts encoded, without a template.
        texts: the words of each row.
    """
    if batch.offsets is None:
        raise InvalidArgumentError(
            f"is_pretokenized=True needs offsets, and {type(tokenizer).__name__} gives none; pass "
            "return_offsets=False to have ids alone"
        )
    word_ids = np.empty(len(batch.ids), np.int32)
    in_view = batch.metadata.offsets_reference == "tokenizer_normalized_text"
    for row, (text, ends) in enumerate(texts):
        part = slice(int(batch.row_splits[row]), int(batch.row_splits[row + 1]))
        offsets = batch.offsets[part]
        if in_view:
            offsets = protocol.map_offsets_to_input(tokenizer, text, offsets)
        word_ids[part] = np.searchsorted(ends, offsets[:, 0] - 1, "right")
        np.minimum(word_ids[part], len(ends) - 1, out=word_ids[part])
    return make_batch_without_copy(
        batch.ragged._replace(word_ids=word_ids),
        batch.metadata,
        protocol.get_vocabulary(tokenizer).get_token_strings,
        has_attention_mask=batch.has_attention_mask,
    )


def encode_batch_result(
    tokenizer: Any,
    texts: Sequence[Text] | Sequence[Sequence[Text]],
    pairs: Sequence[Text] | Sequence[Sequence[Text]] | None = None,
    *,
    add_special_tokens: bool = True,
    max_length: int | None = None,
    truncation: Truncation = "longest_first",
    truncation_side: Literal["left", "right"] = "right",
    is_pretokenized: bool = False,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    threads: int | None = None,
) -> TokenizationBatch:
    """Encode many texts, each on its own, or many pairs of texts; nothing is padded.

    Args:
        tokenizer: any registered tokenizer.
        texts: `str` or `bytes`; see `tokjax.core.utf8` for surrogates and invalid bytes.
        pairs: the second text of each, as many as there are `texts`. A pair becomes one row; `sequence_ids`
            tells which of its tokens are of which text, and offsets are places in that one.
        add_special_tokens: put the tokenizer's template around each text, or pair: for most the declared BOS
            before and the declared EOS after it.
        max_length: how many tokens a row has at most, those of the template among them; `None` for any
            number.
        truncation: which text of a pair is cut to that: `"only_first"`, `"only_second"`, or
            `"longest_first"`: the longer one, and where both are too long, both to the same length.
        truncation_side: at which end a text is cut.
        is_pretokenized: each text is a sequence of words. They are encoded as the text
            `" ".join(words)`, which offsets are places in, and `word_ids` are places in the sequence.
        return_offsets: give `offsets`, `word_ids` and `sequence_ids`.
        return_masks: give `attention_mask`, `special_tokens_mask` and `token_type_ids`.
        assume_normalized: the texts are `tokenization_view`s already; offsets refer to them as given.
        allowed_special: special tokens that are recognised in the text: names, or `"all"`.
        disallowed_special: special tokens that raise an error in the text: names, or `"all"` for every
            one that is not allowed. One that is neither is encoded as ordinary text.
        threads: how many threads share the work; as many as the process has cores, unless said otherwise.
            The result is the same for any number.

    Returns:
        Flat columns, and a sequence of one `TokenizationResult` a text.

    Raises:
        DisallowedSpecialTokenError: a text holds a special token that is disallowed.
        InvalidArgumentError: an option makes no sense, or the text that is not to be cut is too long.
    """
    options: dict[str, Any] = {
        "return_offsets": return_offsets,
        "return_masks": return_masks,
        "assume_normalized": assume_normalized,
        "allowed_special": allowed_special,
        "disallowed_special": disallowed_special,
        "threads": threads,
    }
    capacity = _check_max_length(max_length, truncation, truncation_side)
    if pairs is None and capacity is None and not is_pretokenized:
        plain: Any = texts
        return protocol.encode_texts(tokenizer, plain, add_special_tokens=add_special_tokens, **options)
    pieces = resolve_template(tokenizer, pairs is not None, add_special_tokens)
    encoded = encode_without_template(tokenizer, texts, pairs, is_pretokenized=is_pretokenized, **options)
    truncated_lengths = encoded.lengths
    if capacity is not None:
        truncated_lengths = compute_truncated_lengths(
            truncated_lengths, compute_text_capacity(capacity, pieces), truncation
        )
    parts = [
        TokenSlices(rows, compute_truncated_starts(length, keep, truncation_side), keep)
        for rows, length, keep in zip(encoded.rows, encoded.lengths, truncated_lengths, strict=True)
    ]
    return encoded.replace_rows(parts, pieces)


class TruncatedRows(NamedTuple):
    """Rows that are as long as they may be.

    Attributes:
        ragged: the rows.
        num_dropped: how many tokens of each were cut off, `int64`, shape `(rows,)`.
    """

    ragged: Ragged
    num_dropped: NDArray[np.int64]


def apply_tokenizer_template(
    tokenizer: Any, texts: Ragged, *, add_special_tokens: bool, max_length: int | None
) -> TruncatedRows:
    """What `encode_batch_result` makes of texts that are encoded already, without a template.

    Args:
        tokenizer: what encoded them.
        texts: a row a text.
        add_special_tokens: as in `encode_batch_result`.
        max_length: as in `encode_batch_result`; texts are cut at their end.
    """
    pieces = resolve_template(tokenizer, False, add_special_tokens)
    lengths = np.asarray(texts.lengths, np.int64)
    truncated_lengths = lengths
    if max_length is not None:
        truncated_lengths = np.minimum(lengths, compute_text_capacity(max_length, pieces))
    num_dropped = lengths - truncated_lengths
    if not num_dropped.any() and len(pieces) == 1:
        return TruncatedRows(texts, num_dropped)
    part = TokenSlices(np.arange(len(lengths)), np.zeros_like(lengths), truncated_lengths)
    return TruncatedRows(apply_template(texts, [part], pieces), num_dropped)


def get_template_ids(tokenizer: Any, *, add_special_tokens: bool) -> tuple[list[int], list[int]]:
    """The ids that `encode_batch_result` puts before each text, and those behind it."""
    before, after = protocol.get_vocabulary(tokenizer).template_token_ids if add_special_tokens else ((), ())
    return list(before), list(after)


def encode_result(
    tokenizer: Any,
    text: Text | Sequence[Text],
    pair: Text | Sequence[Text] | None = None,
    *,
    add_special_tokens: bool = True,
    max_length: int | None = None,
    truncation: Truncation = "longest_first",
    truncation_side: Literal["left", "right"] = "right",
    is_pretokenized: bool = False,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> TokenizationResult:
    """Encode one text, or one pair of texts, to ids, readable tokens, offsets and masks.

    The arguments are those of `encode_batch_result`.

    Returns:
        Arrays of shape `(n,)`, offsets `(n, 2)`: 1-based, half-open, in UTF-8 bytes.

    >>> from tokjax import wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "who", "?", "me"])
    >>> encode_result(bert, "Who?", pair="Me").tokens
    ('[CLS]', 'who', '?', '[SEP]', 'me', '[SEP]')
    """
    batch = encode_batch_result(
        tokenizer,
        [text],  # type: ignore[arg-type]
        None if pair is None else [pair],  # type: ignore[arg-type]
        add_special_tokens=add_special_tokens,
        max_length=max_length,
        truncation=truncation,
        truncation_side=truncation_side,
        is_pretokenized=is_pretokenized,
        return_offsets=return_offsets,
        return_masks=return_masks,
        assume_normalized=assume_normalized,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )
    return batch[0]


@accept_options(SpecialOptions)
def tokenize(
    tokenizer: Any,
    text: Text,
    *,
    add_special_tokens: bool = True,
    **special: Unpack[SpecialOptions],
) -> list[str]:
    """Returns the readable tokens of one text: those of the ids that `encode` gives.

    For reading only; `id_to_bytes` gives exact bytes. The arguments are those of `encode`.
    """
    ids = protocol.encode(tokenizer, text, add_special_tokens=add_special_tokens, **special)
    return list(protocol.get_vocabulary(tokenizer).get_token_strings(ids))


def _check_max_length(max_length: int | None, truncation: str, side: str) -> int | None:
    if truncation not in TRUNCATIONS:
        raise InvalidArgumentError(
            f"truncation must be {', '.join(map(repr, TRUNCATIONS))}, not {truncation!r}; whether texts are "
            "cut at all is for max_length to say"
        )
    if side not in ("left", "right"):
        raise InvalidArgumentError(f"truncation_side must be 'left' or 'right', not {side!r}")
    return None if max_length is None else check_int("max_length", max_length, minimum=1)
