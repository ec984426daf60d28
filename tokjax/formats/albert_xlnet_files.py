"""SentencePiece models of ALBERT and XLNet, with the ids of their classes in transformers.

These classes do not run the model. They use its pieces and scores in a pipeline of the `tokenizers` library:

    text                 ``Élan''  vital.
    added tokens         ``Élan''  vital  |  .             control pieces and user-defined symbols
    quotes               "Élan"  vital
    accents, case        "elan"  vital                     XLNet: "Elan"  vital
    character map        "elan"  vital                     that of the model
    words                ▁"elan"  ▁vital
    pieces, template     [CLS] ▁" elan " ▁vital . [SEP]    XLNet: ▁" Elan " ▁vital . <sep> <cls>

The pipeline is built as the contents of a `tokenizer.json`, which is then read like any other.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tokjax.core.template import make_template
from tokjax.core.vocabulary import TEMPLATE_ROLES
from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.declared_tokens import merge_declared_tokens
from tokjax.formats.huggingface.export import build_template_step
from tokjax.formats.huggingface.tokenizer_json import build_tokenizer
from tokjax.formats.tokenizer_files import make_template_of_each_text, resolve_roles
from tokjax.models.format_errors import as_format_errors
from tokjax.models.metaspace import METASPACE
from tokjax.models.sentencepiece_files import PieceType, iter_pieces, parse_model_info, read_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokjax.core.template import Template
    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.formats.tokenizer_files import CompanionConfig
    from tokjax.models.base import SegmentModel

_ALBERT = "AlbertTokenizer"
_DEFAULT_ROLES: Mapping[str, Mapping[Role, str]] = {  # transformers adds missing tokens in this order
    _ALBERT: {
        "bos": "[CLS]",
        "eos": "[SEP]",
        "unk": "<unk>",
        "sep": "[SEP]",
        "pad": "<pad>",
        "cls": "[CLS]",
        "mask": "[MASK]",
    },
    "XLNetTokenizer": {
        "bos": "<s>",
        "eos": "</s>",
        "unk": "<unk>",
        "sep": "<sep>",
        "pad": "<pad>",
        "cls": "<cls>",
        "mask": "<mask>",
    },
}
ALBERT_XLNET_CLASSES = frozenset(_DEFAULT_ROLES)
"""Classes of transformers that `read_albert_xlnet` reads."""
_FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def read_albert_xlnet(
    model: Path | bytes,
    source: Path,
    class_name: str,
    companion: CompanionConfig,
    options: Mapping[Role, str | None],
) -> SegmentModel | HuggingFaceTokenizer:
    """Reads a model of ALBERT or XLNet.

    Args:
        model: path of the model, or its contents.
        source: path of the model, for errors and for the directory.
        class_name: one of `ALBERT_XLNET_CLASSES`.
        companion: settings from the configuration files in the directory.
        options: tokens with the roles BOS, EOS and padding; `"auto"` for those of the configuration or the
            class. If BOS or EOS is not `None`, these are inserted, and not the tokens of the class.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: a role names a token that is not special.
        MissingExtraError: the `tokenizers` library, which the class needs, is not installed.
        TokenizerFormatError: the file is not a SentencePiece model, or has no piece for a token of the class.
    """
    with as_format_errors(str(source)):
        contents = _build_definition(read_model(model)[0], class_name, companion.config)
    roles: dict[Role, str] = {**_DEFAULT_ROLES[class_name], **companion.declared_roles}
    _add_declared_tokens(contents, source, class_name, companion, roles)
    special = [entry["content"] for entry in contents["added_tokens"] if entry["special"]]
    overrides = {role: None if name == "auto" else name for role, name in options.items()}
    roles |= {role: name for role, name in resolve_roles(special, overrides, {}).items() if name is not None}
    if options["pad"] is None:
        del roles["pad"]
    template = _make_template(class_name, companion.config, roles, options)
    ids = {entry["content"]: entry["id"] for entry in contents["added_tokens"]}
    missing = [name for name in template.tokens if ids[name] >= len(contents["model"]["vocab"])]
    if missing and class_name == _ALBERT:
        raise TokenizerFormatError(
            f"{source}: has no piece {missing[0]!r}, which {class_name} inserts into texts. For the ids of "
            f"the model, call tokjax.sentencepiece({str(source)!r})"
        )
    contents["post_processor"] = build_template_step(template, ids)
    return build_tokenizer(_dump_definition(contents), contents, roles, str(source))


def _build_definition(proto: bytes, class_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Builds the contents of a `tokenizer.json` without the template.

    Args:
        proto: serialized model.
        class_name: name of the class.
        config: contents of `tokenizer_config.json`.
    """
    is_albert = class_name == _ALBERT
    charsmap = parse_model_info(proto).charsmap
    pieces = list(iter_pieces(proto))
    types = [piece_type for _, _, piece_type in pieces]
    if PieceType.UNKNOWN not in types:
        raise ValueError("it has no piece for unknown text")
    normalizers: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")
    ]
    if not (is_albert and config.get("keep_accents")):
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if config.get("do_lower_case", is_albert):
        normalizers.append({"type": "Lowercase"})
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    has_prefix = not is_albert or config.get("add_prefix_space", True)
    metaspace = {
        "type": "Metaspace",
        "replacement": METASPACE,
        "prepend_scheme": "always" if has_prefix else "never",
        "split": True,
    }
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": id_, "content": text, **_FLAGS, "special": piece_type == PieceType.CONTROL}
            for id_, (text, _, piece_type) in enumerate(pieces)
            if piece_type in (PieceType.CONTROL, PieceType.USER_DEFINED)
        ],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            # ALBERT's class assumes the piece 1, whatever the type of that piece.
            "unk_id": 1 if is_albert else types.index(PieceType.UNKNOWN),
            "vocab": [[text, score] for text, score, _ in pieces],
            "byte_fallback": False,
        },
    }


def _add_declared_tokens(
    contents: dict[str, Any],
    source: Path,
    class_name: str,
    companion: CompanionConfig,
    roles: Mapping[Role, str],
) -> None:
    """Adds tokens with a role and those that the configuration files declare to a definition.

    As in transformers, control pieces and user-defined symbols are added tokens unless the configuration
    lists additional special tokens.
    """
    config = companion.config
    if config.get("extra_special_tokens") or config.get("additional_special_tokens"):
        contents["added_tokens"] = []
    special: dict[str, Mapping[str, Any]] = {name: {} for name in roles.values()}
    special |= companion.special
    if class_name != _ALBERT and not special[roles["mask"]]:
        special[roles["mask"]] = {"lstrip": True}
    declared = companion._replace(special=special, declared_roles=roles)
    contents["added_tokens"] = merge_declared_tokens(contents, source, declared) or contents["added_tokens"]


def _make_template(
    class_name: str,
    config: Mapping[str, Any],
    roles: Mapping[Role, str],
    options: Mapping[Role, str | None],
) -> Template:
    """Returns the template of the class, or that of the options.

    With `add_bos_token` or `add_eos_token` in the configuration, ALBERT's class inserts only these tokens.
    XLNet's ignores the two settings.
    """
    fields = {role: f"add_{role}_token" for role in TEMPLATE_ROLES}
    is_set = class_name == _ALBERT and not config.keys().isdisjoint(fields.values())
    if is_set or any(options[role] for role in TEMPLATE_ROLES):
        before, after = (
            [roles[role]] if options[role] or (is_set and config.get(fields[role])) else []
            for role in TEMPLATE_ROLES
        )
        return make_template_of_each_text(before, after)
    cls, sep = roles["cls"], roles["sep"]
    if class_name == _ALBERT:
        return make_template([cls, "$A", sep], [cls, "$A", sep, "$B:1", f"{sep}:1"])
    return make_template(["$A", sep, f"{cls}:2"], ["$A", sep, "$B:1", f"{sep}:1", f"{cls}:2"])


def _dump_definition(contents: Mapping[str, Any]) -> str:
    """Returns a definition as JSON text, from which the library reads the exact scores.

    It computes -3.8482770919799805 as -38482770919799805 / 10**16. This dividend has no 64-bit float, so the
    result is another number, and pieces with equal sums of scores can get other ids. Of nearly all scores,
    there is a dividend that gives them: -3848277091979980288e-18.
    """
    model = dict(contents["model"])
    scores = {score: _format_score(score) for _, score in model["vocab"]}
    pieces = [
        f"[{json.dumps(piece, ensure_ascii=False)}, {scores[score]}]" for piece, score in model.pop("vocab")
    ]
    parts = {name: part for name, part in contents.items() if name != "model"}
    outer, inner = (json.dumps(part, ensure_ascii=False).removesuffix("}") for part in (parts, model))
    return f'{outer}, "model": {inner}, "vocab": [{", ".join(pieces)}]}}}}'


def _format_score(score: float) -> str:
    for exponent in range(15, 19):
        dividend = score * 10.0**exponent
        if dividend.is_integer() and abs(dividend) < 1 << 63 and dividend / 10.0**exponent == score:
            return f"{int(dividend)}e-{exponent}"
    return repr(score)
