"""SentencePiece models whose pieces have other ids in transformers.

The ids of a model are the order of its pieces. Some classes of transformers put other special tokens before
and after the pieces:

    id                     0         1      2          3      4           ...   last
    XLM-R's model          <unk>     <s>    </s>       ▁the   s
    XLMRobertaTokenizer    <s>       <pad>  </s>       <unk>  ▁the              <mask>

A model with the pieces in that order splits texts in the same way. The class is the one that
`tokenizer_config.json` or `config.json` names.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.added_tokens import ADVICE
from tokjax.models.format_errors import as_format_errors
from tokjax.models.sentencepiece_files import PieceType, append_pieces, read_model, replace_first_pieces

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.tokenizer_files import CompanionConfig


class PieceLayout(NamedTuple):
    """Order of the pieces in a class of transformers.

    Attributes:
        first: pieces before those of the model.
        replaced: the first pieces of the model, which `first` replaces.
        last: special tokens after the pieces of the model.
        roles: role to the name of a token, in addition to the roles that the model declares.
        has_languages: whether the declared special tokens without a role, which are the codes of languages,
            are between the pieces of the model and `last`.
    """

    first: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    roles: Mapping[Role, str] = MappingProxyType({})
    has_languages: bool = False


_PEGASUS_OFFSET = 103
_FAIRSEQ_ROLES: Mapping[Role, str] = {"cls": "<s>", "sep": "</s>", "mask": "<mask>"}
_XLM_ROBERTA = PieceLayout(
    ("<s>", "<pad>", "</s>", "<unk>"), ("<unk>", "<s>", "</s>"), ("<mask>",), _FAIRSEQ_ROLES
)
_TRANSLATION = _XLM_ROBERTA._replace(has_languages=True)
_LAYOUTS: Mapping[str, PieceLayout] = {
    "XLMRobertaTokenizer": _XLM_ROBERTA,
    "LayoutXLMTokenizer": _XLM_ROBERTA,
    "MBartTokenizer": _TRANSLATION,
    "MBart50Tokenizer": _TRANSLATION,
    "NllbTokenizer": _TRANSLATION,
    "XGLMTokenizer": _XLM_ROBERTA._replace(
        last=tuple(f"<madeupword{i}>" for i in range(7)), roles={"cls": "<s>", "sep": "</s>"}
    ),
    "CamembertTokenizer": PieceLayout(
        ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        ("<unk>",),
        ("<mask>",),
        _FAIRSEQ_ROLES,
    ),
    "DebertaV2Tokenizer": PieceLayout(
        last=("[MASK]",), roles={"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    ),
    "PegasusTokenizer": PieceLayout(
        ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, _PEGASUS_OFFSET))),
        ("<pad>", "</s>"),
        roles={"mask": "<mask_2>"},
    ),
}
_NOT_LIKE_MODEL: Mapping[str, str] = {
    **dict.fromkeys(
        ("CpmTokenizer", "GPTSw3Tokenizer", "RemBertTokenizer", "SiglipTokenizer"),
        "changes texts before the model encodes them",
    ),
    **dict.fromkeys(
        (
            "BartphoTokenizer",
            "M2M100Tokenizer",
            "MarianTokenizer",
            "MLukeTokenizer",
            "PLBartTokenizer",
            "SeamlessM4TTokenizer",
            "Speech2TextTokenizer",
        ),
        "assigns other ids",
    ),
}
"""Classes that need more than another order of the pieces, and the reason."""


def arrange_pieces(
    model: Path | bytes, source: Path, class_name: str | None, companion: CompanionConfig
) -> tuple[Path | bytes, PieceLayout]:
    """Arranges the pieces of a model as a class of transformers does.

    Args:
        model: path of the model, or its contents.
        source: path of the model, for errors and for the directory.
        class_name: name of the class, from `find_tokenizer_class`.
        companion: settings from the configuration files in the directory.

    Returns:
        The model, as it is if the class does not rearrange it; and the layout.

    Raises:
        TokenizerFormatError: the ids of that class can't be those of a model, or the model has other pieces.
    """
    layout, reason = _find_layout(class_name or "", companion)
    if reason is None:
        if not layout.first and not layout.last:
            return model, layout
        with as_format_errors(str(source)):
            try:
                arranged = replace_first_pieces(read_model(model)[0], layout.replaced, layout.first)
                return append_pieces(arranged, dict.fromkeys(layout.last, PieceType.CONTROL)), layout
            except InvalidArgumentError as error:
                reason = f"needs other pieces: {error}"
    raise TokenizerFormatError(
        f"{source.parent}: its files name {class_name}, which {reason}. The ids of transformers are not "
        f"those of {source.name}; {ADVICE}. For the ids of the model, call "
        f"tokjax.sentencepiece({str(source)!r})"
    )


def _find_layout(class_name: str, companion: CompanionConfig) -> tuple[PieceLayout, str | None]:
    """Returns the layout of a class, and the reason if its ids can't be those of a model."""
    layout = _LAYOUTS.get(class_name, PieceLayout())
    if class_name == "PegasusTokenizer":
        offset = companion.config.get("offset", _PEGASUS_OFFSET)
        if offset == 0:  # BigBird-Pegasus
            return PieceLayout(), None
        if offset != _PEGASUS_OFFSET:
            return layout, f"with the offset {offset} assigns other ids"
    if layout.has_languages:
        known = {*layout.first, *layout.last, *companion.declared_roles.values()}
        languages = [token for token in companion.special if token not in known]
        if not languages:
            return layout, "adds codes of languages, which these files do not declare"
        return layout._replace(last=(*languages, *layout.last)), None
    return layout, _NOT_LIKE_MODEL.get(class_name)
