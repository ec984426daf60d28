"""Texts as tokens without a template, and what a template puts around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax import protocol
from tokjax._arranging import Filled
from tokjax._checks import reject_path, reject_tables
from tokjax._presplit import join_words, words_of_tokens
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.records import TokenizationBatch, adopt_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.ragged import Ragged
    from tokjax.templates import Place
    from tokjax.vocabulary import Vocabulary


class Bare(NamedTuple):
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

    def rearranged(self, ragged: Ragged) -> TokenizationBatch:
        """A batch of other rows of the same tokens."""
        return adopt_batch(
            ragged,
            self.batch.metadata,
            self.vocabulary.strings_of,
            has_attention_mask=self.batch.has_attention_mask,
        )


def encode_bare(
    tokenizer: Any,
    texts: Sequence[Any],
    pairs: Sequence[Any] | None,
    *,
    is_pretokenized: bool,
    **options: Any,
) -> Bare:
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
    given = list(texts)
    if pairs is not None:
        reject_tables(pairs, "pairs")
        reject_path(pairs, "pairs")
        if isinstance(pairs, (str, bytes)) or not hasattr(pairs, "__len__") or len(pairs) != len(given):
            raise InvalidArgumentError(
                f"pairs must be as many texts as there are texts ({len(given)}), one to go with each; got "
                f"{pairs!r:.80}"
            )
        given += pairs
    joined = [join_words(words, i) for i, words in enumerate(given)] if is_pretokenized else None
    plain = given if joined is None else [words.text for words in joined]
    batch = protocol.encode_texts(tokenizer, plain, add_special_tokens=False, **options)
    if joined is not None and options["return_offsets"]:
        batch = words_of_tokens(tokenizer, batch, joined)
    of_first, of_second = np.arange(len(texts)), np.arange(len(texts), len(given))
    rows = [of_first] if pairs is None else [of_first, of_second]
    return Bare(batch, rows, [batch.lengths[part] for part in rows], protocol.vocabulary_of(tokenizer))


def template_places(tokenizer: Any, is_pair: bool, add_special_tokens: bool) -> list[Filled]:
    """The tokenizer's template, or its texts alone.

    Raises:
        UnsupportedTokenizerError: the tokenizer has no template for pairs.
    """
    table = protocol.vocabulary_of(tokenizer)
    places: tuple[Place, ...] = table.template.pair if is_pair else table.template.single
    if not places:
        raise UnsupportedTokenizerError(
            f"{type(tokenizer).__name__} can't encode pairs: in its file the template of pairs does not hold "
            "each of the two texts once; encode the texts separately, or give it another template, with "
            "with_template(tokenizer, SINGLE, PAIR) or in the file"
        )
    return [
        Filled(place.text, 0 if place.token is None else table.special[place.token], place.type_id)
        for place in places
        if add_special_tokens or place.text is not None
    ]


def room_for_texts(max_length: int, places: Sequence[Filled]) -> int:
    """How many tokens of a length a template leaves to texts; an error if it is longer by itself."""
    inserted = sum(place.text is None for place in places)
    if max_length < inserted:
        raise InvalidArgumentError(
            f"max_length is {max_length}, and the tokenizer's template alone has {inserted} tokens"
        )
    return max_length - inserted
