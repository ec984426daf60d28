"""Encoding of texts and pairs to batches: special tokens, truncation and pre-tokenized input.

A tokenizer type registers one function, `encode_texts`, and declares a template. The rest is done here, for
all types, in three steps: encode the texts without special tokens, compute how many tokens of each text are
kept, and apply the template to these tokens. Example: the pair `("to be or", "not")` with `max_length=6` and
`truncation="longest_first"`.

    1. encode without a template    row 0: to be or    row 1: not        lengths 3 and 1
    2. truncate                     template: [CLS] $A [SEP] $B:1 [SEP]:1
                                    3 inserted tokens leave 6 - 3 = 3 tokens for both texts;
                                    the longer text is truncated         lengths 2 and 1
    3. apply the template           [CLS]   to     be   [SEP]   not   [SEP]
         token_type_ids               0      0      0     0      1      1
         sequence_ids                -1      0      0    -1      1     -1
         special_tokens_mask          1      0      0     1      0      1
         offsets                    (0,0)  (1,3)  (4,6) (0,0)  (1,4)  (0,0)

`truncation` decides which text of a pair loses tokens; `truncation_side` decides at which end. With
`"only_first"` and `"only_second"`, the other text is kept complete, and it is an error if it does not fit.

Without a pair, `max_length` or `is_pretokenized`, nothing of this is needed, and `encode_batch_result` only
calls `encode_texts`. That is the fast path of large corpora.

The steps are shared: `encode_windows` makes windows out of step 1, and dataset writers apply the template to
documents that they encoded without one (`apply_tokenizer_template`).

Windows overlap. Example: a text of 7 tokens, the template `[CLS] $A [SEP]`, `max_length=5` and `stride=1`.
The template takes 2 of the 5 tokens, which leaves a capacity of 3 tokens of text. A window starts
`capacity - stride = 2` tokens after the window before it:

    token index        0   1   2   3   4   5   6
    text              t0  t1  t2  t3  t4  t5  t6
    window 0   [CLS]  t0  t1  t2                   [SEP]
    window 1   [CLS]          t2  t3  t4           [SEP]      t2 is in windows 0 and 1
    window 2   [CLS]                  t4  t5  t6   [SEP]      t4 is in windows 1 and 2

Only the last window of a text can be shorter. Offsets in a window refer to the whole text, and
`Windows.text_ids` has the index of the text of each window: `[0, 0, 0]` here. `Windows.starts` has the token
index at which each window starts: `[0, 2, 4]` in its first column.

Of a pair, one text is split into windows and the other one is complete in each of them. Its tokens count
against the capacity, which can therefore differ from pair to pair. A question of 2 tokens with a context of
4, the template `[CLS] $A [SEP] $B [SEP]`, `max_length=8`, `stride=1` and `truncation="only_second"` (capacity
8 - 3 - 2 = 3):

    window 0   [CLS] q0 q1 [SEP] c0 c1 c2 [SEP]
    window 1   [CLS] q0 q1 [SEP] c2 c3 [SEP]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, get_args

import numpy as np

from tokjax._util.checks import check_choice, check_int, check_sequence
from tokjax.core import protocol
from tokjax.core.encode_options import (
    ColumnOptions,
    ResultOptions,
    SpecialOptions,
    accept_options,
    check_options,
)
from tokjax.core.ragged import make_row_splits
from tokjax.core.records import Windows
from tokjax.core.template import (
    TokenSlices,
    Truncation,
    apply_template,
    check_capacity,
    compute_text_capacity,
    compute_truncated_lengths,
    compute_truncated_starts,
    compute_windows,
)
from tokjax.core.utf8 import count_bytes
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.encode_options import Special
    from tokjax.core.ragged import Ragged
    from tokjax.core.records import TokenizationBatch, TokenizationResult
    from tokjax.core.template import TemplatePiece
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary


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
    """Encodes many texts, or many pairs of texts, to ids, offsets and masks without padding.

    Args:
        tokenizer: any registered tokenizer.
        texts: `str` or `bytes`; see `tokjax.core.utf8` for surrogates and invalid bytes.
        pairs: the second text of each pair, of the same length as `texts`; `None` for single texts. A pair
            becomes one row: `sequence_ids` is 0 for tokens of the first text and 1 for tokens of the second,
            and the offsets of a token refer to its text.
        add_special_tokens: whether to apply the tokenizer's template to each text or pair. Most templates
            insert the declared BOS before it and the declared EOS after it.
        max_length: maximum number of tokens of a row, inserted special tokens included; `None` for no limit.
        truncation: the text of a pair that is truncated: `"only_first"`, `"only_second"`, or
            `"longest_first"` for the longer one, and if both are too long, both to the same length.
        truncation_side: the end of a text that loses tokens.
        is_pretokenized: whether each text is a sequence of words. They are encoded as the text
            `" ".join(words)`. Offsets refer to that text, and `word_ids` are indices into the sequence.
        return_offsets: whether to compute `offsets`, `word_ids` and `sequence_ids`.
        return_masks: whether to compute `attention_mask`, `special_tokens_mask` and `token_type_ids`.
        assume_normalized: whether the texts are already in the form that `tokenization_view` returns. Offsets
            then refer to the texts as passed.
        allowed_special: special tokens that are recognized in the text: names, or `"all"`.
        disallowed_special: special tokens that raise an error in the text: names, or `"all"` for every one
            that is not allowed. A special token in neither set is encoded as ordinary text.
        threads: number of cores to use; `None` for all. The result does not depend on it. More than 8 MB are
            shared with worker processes, which start automatically.

    Returns:
        A batch of flat columns, which is also a sequence of one `TokenizationResult` per text or pair.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token.
        InvalidArgumentError: an option is invalid, or the text of a pair that must be complete is too long.
        UnsupportedTokenizerError: the tokenizer has no template for pairs.
    """
    options: dict[str, Any] = {
        "return_offsets": return_offsets,
        "return_masks": return_masks,
        "assume_normalized": assume_normalized,
        "allowed_special": allowed_special,
        "disallowed_special": disallowed_special,
        "threads": threads,
    }
    max_tokens = _check_truncation(max_length, truncation, truncation_side)
    if pairs is None and max_tokens is None and is_pretokenized is False:
        plain_texts: Any = texts
        return protocol.encode_texts(tokenizer, plain_texts, add_special_tokens=add_special_tokens, **options)
    check_options({**options, "is_pretokenized": is_pretokenized, "add_special_tokens": add_special_tokens})
    pieces = resolve_template(tokenizer, pairs is not None, add_special_tokens)
    encoded = encode_without_template(tokenizer, texts, pairs, is_pretokenized=is_pretokenized, **options)
    truncated_lengths = encoded.lengths
    if max_tokens is not None:
        truncated_lengths = compute_truncated_lengths(
            truncated_lengths, compute_text_capacity(max_tokens, pieces), truncation
        )
    slices = [
        TokenSlices(rows, compute_truncated_starts(length, keep, truncation_side), keep)
        for rows, length, keep in zip(encoded.rows, encoded.lengths, truncated_lengths, strict=True)
    ]
    return encoded.apply_template(slices, pieces)


_SHORT_OPTIONS = frozenset({"add_special_tokens", "return_offsets", "return_masks"})


@accept_options(ResultOptions)
def encode_result(
    tokenizer: Any,
    text: Text | Sequence[Text],
    pair: Text | Sequence[Text] | None = None,
    **options: Unpack[ResultOptions],
) -> TokenizationResult:
    """Encodes one text, or one pair of texts, to ids, readable tokens, offsets and masks.

    The arguments are those of `encode_batch_result`, which is faster for many texts.

    Returns:
        Arrays of shape `(num_tokens,)`. Offsets have shape `(num_tokens, 2)`; they are 1-based, half-open
        UTF-8 byte positions.

    >>> from tokjax import wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "who", "?", "me"])
    >>> encode_result(bert, "Who?", pair="Me").tokens
    ('[CLS]', 'who', '?', '[SEP]', 'me', '[SEP]')
    """
    if pair is None and _SHORT_OPTIONS.issuperset(options):
        result = protocol.encode_short_result(tokenizer, text, **options)  # type: ignore[arg-type, misc]
        if result is not None:
            return result
    texts: Any = [text]
    pairs: Any = None if pair is None else [pair]
    return encode_batch_result(tokenizer, texts, pairs, **options)[0]


@accept_options(SpecialOptions)
def tokenize(
    tokenizer: Any,
    text: Text,
    *,
    add_special_tokens: bool = True,
    **special: Unpack[SpecialOptions],
) -> list[str]:
    """Returns the readable tokens of one text, one per id that `encode` returns.

    Use it for display only: readable tokens can be ambiguous, while `id_to_bytes` returns exact bytes. The
    arguments are those of `encode`.
    """
    ids = protocol.encode(tokenizer, text, add_special_tokens=add_special_tokens, **special)
    return list(protocol.get_vocabulary(tokenizer).get_token_strings(ids))


def _check_truncation(max_length: int | None, truncation: str, side: str) -> int | None:
    """Returns `max_length`; raises `InvalidArgumentError` if one of the three options is invalid."""
    check_choice("truncation", truncation, get_args(Truncation), "; to turn truncation on, pass max_length")
    check_choice("truncation_side", side, ("left", "right"))
    return None if max_length is None else check_int("max_length", max_length, minimum=1)


class EncodedTexts(NamedTuple):
    """Texts, or pairs of them, encoded without a template.

    Attributes:
        batch: the tokens of all texts in one batch: all first texts, then all second texts.
        rows: rows of `batch` of the first texts and, for pairs, of the second texts; one `int64` array of
            shape `(num_texts,)` for each.
        lengths: numbers of tokens of these rows, in arrays of the same shapes.
        vocabulary: the vocabulary of the tokenizer.
    """

    batch: TokenizationBatch
    rows: list[NDArray[np.int64]]
    lengths: list[NDArray[np.int64]]
    vocabulary: Vocabulary

    def apply_template(
        self, slices: Sequence[TokenSlices], pieces: Sequence[TemplatePiece]
    ) -> TokenizationBatch:
        """Returns a batch that inserts slices of the texts into a template.

        Args:
            slices: the tokens of the first text of each row of the result and, for pairs, of the second.
            pieces: the template, as `resolve_template` returns it.
        """
        ragged = apply_template(self.batch.ragged, slices, pieces, self.vocabulary.get_id)
        return self.batch.replace_columns(ragged)


def encode_without_template(
    tokenizer: Any,
    texts: Sequence[Any],
    pairs: Sequence[Any] | None,
    *,
    is_pretokenized: bool,
    **options: Any,
) -> EncodedTexts:
    """Checks texts, or pairs of texts, and encodes them without inserted special tokens.

    Args:
        tokenizer: any registered tokenizer.
        texts: as in `encode_batch_result`.
        pairs: the second text of each pair, or `None`.
        is_pretokenized: whether each text is a sequence of words.
        **options: the options of `encode_texts` except `add_special_tokens`.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token.
        InvalidArgumentError: `texts` is not a sequence of texts, or `pairs` is not one of the same length.
    """
    check_sequence("texts", texts)
    all_texts = list(texts)
    if pairs is not None:
        check_sequence("pairs", pairs)
        if len(pairs) != len(all_texts):
            raise InvalidArgumentError(
                f"pairs must have as many texts as texts has ({len(all_texts)}), not {len(pairs)}"
            )
        all_texts += pairs
    joined_words = [join_words(words, i) for i, words in enumerate(all_texts)] if is_pretokenized else None
    plain_texts = all_texts if joined_words is None else [joined.text for joined in joined_words]
    batch = protocol.encode_texts(tokenizer, plain_texts, add_special_tokens=False, **options)
    if joined_words is not None and options.get("return_offsets", True):
        batch = assign_word_ids(tokenizer, batch, joined_words)
    first_rows, second_rows = np.arange(len(texts)), np.arange(len(texts), len(all_texts))
    rows = [first_rows] if pairs is None else [first_rows, second_rows]
    return EncodedTexts(
        batch, rows, [batch.lengths[each] for each in rows], protocol.get_vocabulary(tokenizer)
    )


def resolve_template(tokenizer: Any, is_pair: bool, add_special_tokens: bool) -> list[TemplatePiece]:
    """Returns the tokenizer's template for single texts or pairs.

    Args:
        tokenizer: any registered tokenizer.
        is_pair: whether to return the template for pairs.
        add_special_tokens: `False` omits the special tokens, so that only the texts remain.

    Raises:
        UnsupportedTokenizerError: the tokenizer has no template for pairs.
    """
    vocabulary = protocol.get_vocabulary(tokenizer)
    pieces = vocabulary.template.pair if is_pair else vocabulary.template.single
    if not pieces:
        raise UnsupportedTokenizerError(
            f"{type(tokenizer).__name__} can't encode pairs: in its file the template for pairs does not "
            "contain each of the two texts exactly once; encode the texts separately, or set another "
            "template with with_template(tokenizer, SINGLE, PAIR) or in the file"
        )
    return [piece for piece in pieces if add_special_tokens or piece.text is not None]


class TruncatedRows(NamedTuple):
    """Rows of at most a maximum number of tokens.

    Attributes:
        ragged: the rows.
        num_dropped: number of tokens that truncation removed from each row, `int64`, shape `(num_rows,)`.
    """

    ragged: Ragged
    num_dropped: NDArray[np.int64]


def apply_tokenizer_template(
    tokenizer: Any, texts: Ragged, *, add_special_tokens: bool, max_length: int | None
) -> TruncatedRows:
    """Truncates texts that were encoded without a template, and applies the tokenizer's template to them.

    The rows are equal to those that `encode_batch_result` returns for the same texts.

    Args:
        tokenizer: the tokenizer that encoded the texts.
        texts: the encoded texts, one per row.
        add_special_tokens: as in `encode_batch_result`.
        max_length: as in `encode_batch_result`; texts are truncated at their end.
    """
    pieces = resolve_template(tokenizer, False, add_special_tokens)
    lengths = np.asarray(texts.lengths, np.int64)
    truncated_lengths = lengths
    if max_length is not None:
        truncated_lengths = np.minimum(lengths, compute_text_capacity(max_length, pieces))
    num_dropped = lengths - truncated_lengths
    if not num_dropped.any() and len(pieces) == 1:  # only the text itself: there is nothing to copy
        return TruncatedRows(texts, num_dropped)
    slices = TokenSlices(np.arange(len(lengths)), np.zeros_like(lengths), truncated_lengths)
    get_id = protocol.get_vocabulary(tokenizer).get_id
    return TruncatedRows(apply_template(texts, [slices], pieces, get_id), num_dropped)


def get_template_ids(tokenizer: Any, *, add_special_tokens: bool) -> tuple[list[int], list[int]]:
    """Returns the ids that `encode_batch_result` inserts before each single text, and those after it."""
    before, after = protocol.get_vocabulary(tokenizer).template_token_ids if add_special_tokens else ((), ())
    return list(before), list(after)


class JoinedWords(NamedTuple):
    """Words joined by single spaces.

    Attributes:
        text: the joined text.
        ends: end of each word, a 0-based byte position, `int64`, shape `(num_words,)`. A space is at this
            position, except after the last word, where the text ends.
    """

    text: Text
    ends: NDArray[np.int64]


def join_words(words: Any, row: int) -> JoinedWords:
    """Joins the words of one text.

    Args:
        words: the words, all `str` or all `bytes`.
        row: the index of the text, for error messages.

    Raises:
        InvalidArgumentError: `words` is not a sequence of `str` or of `bytes`.
    """
    if isinstance(words, (str, bytes)) or not isinstance(words, Sequence):
        raise InvalidArgumentError(
            f"with is_pretokenized=True each text is a sequence of words, and text {row} is "
            f"{words!r:.80}; split it into words, or omit is_pretokenized"
        )
    kind = bytes if words and isinstance(words[0], bytes) else str
    for word in words:
        if not isinstance(word, kind):
            raise InvalidArgumentError(
                f"the words of text {row} are {kind.__name__}, except {word!r}; they must all have the same "
                "type"
            )
    text = b" ".join(words) if kind is bytes else " ".join(words)
    lengths = make_row_splits(count_bytes(word) + 1 for word in words)
    return JoinedWords(text, lengths[1:] - 1)


def assign_word_ids(
    tokenizer: Any, batch: TokenizationBatch, texts: Sequence[JoinedWords]
) -> TokenizationBatch:
    """Returns the batch with `word_ids` that are indices into the sequences of words.

    A token belongs to the word in which it begins. The space before a word counts as its first byte, because
    byte-level and metaspace tokenizers put it into the first token of the word:

        text        l o w _ n e w e s t      words: low, newest; _ is the space
        byte        0 1 2 3 4 5 6 7 8 9      ends of words:       3, 10
        tokens      low   _new    est        starts of tokens:    0, 3, 7
        word_ids    0     1       1          number of ends that are <= start

    Args:
        tokenizer: the tokenizer that encoded the texts.
        batch: the texts, encoded without a template.
        texts: the words of each row.

    Raises:
        InvalidArgumentError: the tokenizer does not compute offsets.
    """
    if batch.offsets is None:
        raise InvalidArgumentError(
            f"is_pretokenized=True needs offsets, which {type(tokenizer).__name__} does not compute; pass "
            "return_offsets=False to get ids only"
        )
    word_ids = np.empty(len(batch.ids), np.int32)
    is_normalized = batch.metadata.offsets_reference == "tokenizer_normalized_text"
    for row, (text, ends) in enumerate(texts):
        tokens = slice(int(batch.row_splits[row]), int(batch.row_splits[row + 1]))
        offsets = batch.offsets[tokens]
        if is_normalized:  # `ends` refers to the input text
            offsets = protocol.map_offsets_to_input(tokenizer, text, offsets)
        word_ids[tokens] = np.searchsorted(ends, offsets[:, 0] - 1, "right")
        # A token with an empty span can start at the end of the text, which is the end of the last word.
        np.minimum(word_ids[tokens], len(ends) - 1, out=word_ids[tokens])
    return batch.replace_columns(batch.ragged._replace(word_ids=word_ids))


@accept_options(ColumnOptions)
def encode_windows(
    tokenizer: Any,
    texts: Sequence[Text] | Sequence[Sequence[Text]],
    pairs: Sequence[Text] | Sequence[Sequence[Text]] | None = None,
    *,
    max_length: int,
    stride: int = 0,
    truncation: Literal["only_first", "only_second"] = "only_first",
    is_pretokenized: bool = False,
    **options: Unpack[ColumnOptions],
) -> Windows:
    """Encodes texts in overlapping windows of at most `max_length` tokens.

    Use it for texts that are longer than the model's context. `encode_batch_result` truncates such texts
    instead.

    Args:
        tokenizer: any registered tokenizer.
        texts: `str` or `bytes`, or sequences of words with `is_pretokenized`.
        pairs: the second text of each pair, of the same length as `texts`; `None` for single texts.
        max_length: maximum number of tokens of a window, inserted special tokens included.
        stride: number of tokens that two consecutive windows of a text have in common, as in Hugging Face's
            `tokenizers`. (It is not the distance between their starts.)
        truncation: the text of a pair that is split into windows; the other one is complete in each of them.
        is_pretokenized: whether each text is a sequence of words; see `encode_batch_result`.
        **options: `add_special_tokens`, `return_offsets`, `return_masks`, `assume_normalized`,
            `allowed_special`, `disallowed_special` and `threads`, as in `encode_batch_result`. The template
            is applied to each window.

    Returns:
        A batch with one row per window, the index of the text of each window, and its position there. The
        windows of a text are consecutive, and every text has at least one.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token.
        InvalidArgumentError: an option is invalid, the complete text of a pair is too long, or `stride` is
            not less than the number of tokens of text in a window.

    >>> from tokjax import wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be", "or"])
    >>> windows = encode_windows(bert, ["to be or to be"], max_length=5, stride=1)
    >>> [result.tokens[1:-1] for result in windows.batch]
    [('to', 'be', 'or'), ('or', 'to', 'be')]
    """
    check_choice("truncation of windows", truncation, ("only_first", "only_second"))
    stride = check_int("stride", stride, minimum=0)
    pieces = resolve_template(tokenizer, pairs is not None, options.pop("add_special_tokens", True))
    encoded = encode_without_template(tokenizer, texts, pairs, is_pretokenized=is_pretokenized, **options)
    capacity = compute_text_capacity(check_int("max_length", max_length, minimum=1), pieces)
    split_index = 0 if pairs is None or truncation == "only_first" else 1
    capacities = np.full(len(texts), capacity)
    if pairs is not None:
        untruncated = encoded.lengths[1 - split_index]
        check_capacity(untruncated, capacity, truncation)
        capacities -= untruncated
    _check_stride(stride, capacities)
    windows = compute_windows(encoded.lengths[split_index], capacities, stride)
    # `windows.rows` counts the texts (or pairs) from 0; `rows` maps this to rows of the encoded batch, where
    # the second texts follow the first ones. The complete text of a pair is repeated for each of its windows.
    slices = [
        windows._replace(rows=rows[windows.rows])
        if i == split_index
        else TokenSlices(rows[windows.rows], np.zeros_like(windows.starts), lengths[windows.rows])
        for i, (rows, lengths) in enumerate(zip(encoded.rows, encoded.lengths, strict=True))
    ]
    starts = np.zeros((len(windows.rows), 2), np.int64)
    starts[:, split_index] = windows.starts
    return Windows(encoded.apply_template(slices, pieces), windows.rows, starts)


def _check_stride(stride: int, capacities: NDArray[np.int64]) -> None:
    """Raises `InvalidArgumentError` unless each window advances by at least one token."""
    if len(capacities) and capacities.min() == 0:
        raise InvalidArgumentError(
            "max_length is too small: the template and the other text fill a window, and no token of the "
            "text to be split fits; pass a larger max_length"
        )
    if len(capacities) and stride >= capacities.min():
        raise InvalidArgumentError(
            f"stride is {stride}, and a window holds {capacities.min()} tokens of its text; stride must be "
            "less than that: pass a smaller stride or a larger max_length"
        )
