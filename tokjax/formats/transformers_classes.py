"""Classes of transformers whose ids are not in the files that they read, but in their Python code.

They put other tokens before the pieces of a `.model` or around texts, change texts before a model encodes
them, or split them into words by their own rules. Their files are rejected, so that no text gets other ids
than in transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tokjax.errors import TokenizerFormatError
from tokjax.formats.tokenizer_files import find_tokenizer_class, read_companion_config

if TYPE_CHECKING:
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


def check_class(source: Path, class_name: str | None) -> None:
    """Raises `TokenizerFormatError` if only Python code defines the ids of a class.

    Args:
        source: path of the vocabulary or the model.
        class_name: name of the class, from `find_tokenizer_class`.
    """
    if class_name in _HAS_DEFINITION:
        reason = f"its files name {class_name}, and only that class of transformers defines their ids"
        if ".model" in source.name:
            reason += f" (those of the model itself are tokjax.sentencepiece({str(source)!r}))"
        reject_files(source.parent, reason, class_name)


def reject_word_merges(source: Path) -> NoReturn:
    """Raises `TokenizerFormatError` for a `vocab.json` with tokens that end in `</w>`.

    Args:
        source: path of the vocabulary.
    """
    check_class(source, find_tokenizer_class(source.parent, read_companion_config(source.parent).config))
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
