"""Texts as tokens without a template, and what a template puts around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import reject_path, reject_tables
from tokjax.core import protocol
from tokjax.core.ragged import make_row_splits
from tokjax.core.records import TokenizationBatch, make_batch_without_copy
from tokjax.core.template import apply_template, resolve_pieces
from tokjax.core.utf8 import Text, count_bytes
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.template import ResolvedPiece, TokenSlices
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
