"""Classes of transformers whose ids are not in the files that they read, but in their Python code.

They put other tokens before the pieces of a `.model` or around texts, change texts before a model encodes
them, or split them into words by their own rules. Their files are rejected, so that no text gets other ids
than in transformers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from tokjax.errors import TokenizerFormatError
from tokjax.formats.tokenizer_files import MODEL_CONFIG_FILE, read_companion_config, read_json_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_WITH_DEFINITION = (
    "Albert Bart Barthez Blenderbot Camembert CLIP Cohere Deberta DebertaV2 FNet Herbert "
    "LayoutLMv3 LayoutXLM LED Longformer Luke MarkupLM MBart MBart50 MLuke Mvp Nllb Nougat "
    "OpenAIGPT Pegasus RemBert Roberta SeamlessM4T Whisper XGLM XLMRoberta XLNet"
)
"""Names of the classes, without `Tokenizer`, that transformers saves as a `tokenizer.json`."""
_PYTHON_ONLY = (
    "Bartpho Bertweet BioGpt BlenderbotSmall Clvp Cpm CTRL Flaubert GPTSw3 M2M100 Marian "
    "Phobert PLBart Siglip Speech2Text Speech2Text2 XLM"
)
"""Names of the classes without the `tokenizers` library."""
_HAS_DEFINITION = {
    f"{name}Tokenizer": has_definition
    for has_definition, names in ((True, _WITH_DEFINITION), (False, _PYTHON_ONLY))
    for name in names.split()
}
"""Class to whether transformers saves it as a `tokenizer.json`."""
_CLASSES_BY_MODEL_TYPE = {
    **{name.removesuffix("Tokenizer").lower(): name for name in _HAS_DEFINITION},
    "cohere2": "CohereTokenizer",
    "cpmant": "CpmAntTokenizer",
    "data2vectext": "RobertaTokenizer",
    "esm": "EsmTokenizer",
    "ibert": "RobertaTokenizer",
    "mt5": "MT5Tokenizer",
    "nllbmoe": "NllbTokenizer",
    "pegasusx": "PegasusTokenizer",
    "qwen35": "Qwen3_5Tokenizer",
    "robertaprelayernorm": "RobertaTokenizer",
    "roformer": "RoFormerTokenizer",
    "seamlessm4tv2": "SeamlessM4TTokenizer",
    "speechtotext": "Speech2TextTokenizer",
    "xlmrobertaxl": "XLMRobertaTokenizer",
    "xmod": "XLMRobertaTokenizer",
    "yoso": "AlbertTokenizer",
    **dict.fromkeys(("qwen2", "qwen2moe", "qwen3", "qwen3moe"), "Qwen2Tokenizer"),
    **dict.fromkeys(("longt5", "switchtransformers", "t5", "umt5"), "T5Tokenizer"),
}
"""Classes by the letters and digits of the `model_type`: those of which readers know more than of others."""


def find_tokenizer_class(source: Path, config: Mapping[str, Any]) -> str | None:
    """Returns the class of transformers that reads a vocabulary or a model, if a configuration file names it.

    Args:
        source: path of the vocabulary or the model.
        config: contents of the `tokenizer_config.json` in its directory.

    Raises:
        TokenizerFormatError: only the Python code of that class defines the ids.
    """
    path = source.parent / MODEL_CONFIG_FILE
    model_config = read_json_object(path) if path.is_file() else {}
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    name = name or _CLASSES_BY_MODEL_TYPE.get(re.sub("[-_]", "", str(model_config.get("model_type"))))
    name = name.removesuffix("Fast") if isinstance(name, str) else None
    if name in _HAS_DEFINITION:
        reason = f"its files name {name}, and only that class of transformers defines their ids"
        if ".model" in source.name:
            reason += f" (those of the model itself are tokjax.sentencepiece({str(source)!r}))"
        reject_files(source.parent, reason, name)
    return name


def reject_word_merges(source: Path) -> NoReturn:
    """Raises `TokenizerFormatError` for a `vocab.json` with tokens that end in `</w>`.

    Args:
        source: path of the vocabulary.
    """
    find_tokenizer_class(source, read_companion_config(source.parent).config)  # can raise, too
    reject_files(
        source.parent,
        f"{source.name} has tokens that end in '</w>', as in CLIP and OpenAI's GPT, and no file says how "
        "texts are split into words (if you know that, call tokjax.word_bpe(TOKENS, MERGES, splitter=...))",
    )


def reject_files(directory: Path | str, reason: str, class_name: str | None = None) -> NoReturn:
    """Raises `TokenizerFormatError` for files of such a class, with the calls that work.

    Args:
        directory: directory of the files, or the name of a repository that has such files.
        reason: the directory's fault, as a clause.
        class_name: name of the class, if it is known.
    """
    if _HAS_DEFINITION.get(class_name or "", True):
        advice = (
            "save a tokenizer.json and load that: "
            f"transformers.AutoTokenizer.from_pretrained({str(directory)!r}).save_pretrained(OUT), then "
            "load_tokenizer(OUT); or pass the object's backend_tokenizer to formats.from_huggingface"
        )
    else:
        advice = (
            "transformers has no tokenizer.json for them: register a custom type that wraps the object of "
            f"transformers.AutoTokenizer.from_pretrained({str(directory)!r}) (docs/extending.md)"
        )
    raise TokenizerFormatError(f"{directory}: {reason}; {advice}")
