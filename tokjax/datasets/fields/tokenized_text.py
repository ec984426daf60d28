"""`TokenizedTextField` and `SentencePieceTextField`: the token ids of each document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tokjax.datasets.fields.options import get_special_options, set_columns, set_limit, set_special
from tokjax.datasets.fields.token_ids import StoredTokens
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece

if TYPE_CHECKING:
    from tokjax.core.protocol import Special


@dataclass(frozen=True)
class TokenizedTextField(StoredTokens):
    """Token ids of each document, including the special tokens that the tokenizer adds.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        max_tokens: maximum number of ids per document, including special tokens. Longer documents are
            truncated at their end; `None` for no limit.
        add_special_tokens: whether to apply the tokenizer's template to each document.
        allowed_special: special tokens that are recognized in documents: names, or `"all"`.
        disallowed_special: special tokens that raise an error in documents, as in `encode_batch_result`.
        columns: side columns: values per token or per document.
    """

    TYPE_ID: ClassVar[int] = 41

    max_tokens: int | None = 2048
    add_special_tokens: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Checks the options."""
        set_columns(self)
        set_limit(self, "max_tokens")
        object.__setattr__(self, "add_special_tokens", bool(self.add_special_tokens))
        set_special(self)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {
            "max_tokens": self.max_tokens,
            "add_special_tokens": self.add_special_tokens,
            **get_special_options(self),
        }


@dataclass(frozen=True)
class SentencePieceTextField(TokenizedTextField):
    """Token ids of each document from a SentencePiece model, otherwise as in `TokenizedTextField`.

    Attributes:
        tokenizer: path of a `.model` file, its contents, or a `SentencePieceTokenizer`.
    """

    TYPE_ID: ClassVar[int] = 44

    def __post_init__(self) -> None:
        """Loads the model, and checks the options."""
        if not isinstance(self.tokenizer, SentencePieceTokenizer):
            object.__setattr__(self, "tokenizer", sentencepiece(self.tokenizer))
        super().__post_init__()
