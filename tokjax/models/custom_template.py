"""Tokenizers with another template: what they put around a text, and around a pair of texts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from tokjax.core.errors import UnsupportedTokenizerError
from tokjax.core.template import Template, make_template
from tokjax.models.base import SegmentModel

if TYPE_CHECKING:
    from collections.abc import Sequence

Model = TypeVar("Model", bound=SegmentModel)


def with_template(
    tokenizer: Model, single: str | Sequence[str], pair: str | Sequence[str] | None = None
) -> Model:
    """The tokenizer, putting other special tokens around texts.

    Args:
        tokenizer: one of tokjax's own.
        single: what a text alone becomes, as in `make_template`.
        pair: what a pair of texts becomes; `None` for what follows from `single`.

    Raises:
        InvalidArgumentError: the template names no special token of the tokenizer's, or a text is missing.
        UnsupportedTokenizerError: the tokenizer is none of tokjax's own.

    >>> from tokjax import encode_result, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "me"])
    >>> encode_result(with_template(bert, "$A [SEP]"), "me").tokens
    ('me', '[SEP]')
    """
    if not isinstance(tokenizer, SegmentModel):
        raise UnsupportedTokenizerError(
            f"with_template takes a tokenizer of tokjax's own, not {type(tokenizer).__name__}"
        )
    return with_given_template(tokenizer, make_template(single, pair))


def with_given_template(tokenizer: Model, template: Template | None) -> Model:
    """The tokenizer with a template, or with the one that follows from its BOS and EOS."""
    if template is not None:
        template.check_tokens(tokenizer.vocabulary.special)
    vocabulary = dataclasses.replace(tokenizer.vocabulary, given_template=template)
    changed: Any = dataclasses.replace(tokenizer, vocabulary=vocabulary)  # type: ignore[type-var]
    return changed  # type: ignore[no-any-return]
