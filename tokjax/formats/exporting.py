"""Export of tokenizers to the file formats of other libraries."""

from __future__ import annotations

import base64
import json
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.atomic_files import check_path, write_atomically, write_files_atomically
from tokjax._util.urls import reject_urls
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_bytes
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
from tokjax.formats.huggingface.export import build_tokenizer_json, iter_merges
from tokjax.formats.huggingface.metaspace_export import build_forms
from tokjax.formats.tokenizer_files import BERT_ROLES, CONFIG_FILE
from tokjax.formats.tokjax_json import TOKENIZER_FILE, save_tokenizer
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode
from tokjax.pretokenize.patterns import make_pattern_splitter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from typing import BinaryIO

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.formats.detection import Format

_BERT_SPECIAL = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}
_TOKENIZER_CLASSES = {
    "huggingface": "PreTrainedTokenizerFast",
    "gpt2": "GPT2Tokenizer",
    "wordpiece": "BertTokenizer",
}


def export_tokenizer(tokenizer: Any, path: str | os.PathLike[str], format: Format) -> tuple[Path, ...]:  # noqa: A002
    """Writes a tokenizer in the format of another library, which then produces the same ids.

    | format | tokenizers | files |
    |---|---|---|
    | `"huggingface"` | BPE, WordPiece, word level, and those that run on `tokenizers` | `tokenizer.json` |
    | `"tiktoken"` | byte-level BPE that merges by rank; without the pattern | `ranks.tiktoken` |
    | `"gpt2"` | byte-level BPE with GPT-2's split pattern | `vocab.json` and `merges.txt` |
    | `"wordpiece"` | WordPiece | `vocab.txt` |
    | `"sentencepiece"` | SentencePiece | `tokenizer.model` |
    | `"tokjax"` | all built-in tokenizers | `tokenizer.tokjax.json`, as written by `save_tokenizer` |

    A path that ends with the suffix of the file in the table is that of the file. Any other path, and that of
    an existing directory, is a directory: it is created if necessary, and the file gets the name in the
    table. For the formats of the Hugging Face libraries, a `tokenizer_config.json` with the roles of the
    special tokens is written to the directory. Only a `tokenizer.json` contains the template, that is, the
    special tokens that are inserted around texts. Each file is replaced atomically.

    A SentencePiece model with a normalizer that replaces characters has the same ids in a `tokenizer.json`
    except where a combining mark follows a character that is replaced: the `tokenizers` library may drop it.

    Args:
        tokenizer: a tokjax tokenizer.
        path: path of the file or of a directory.
        format: one of the formats above.

    Returns:
        The paths of the files that contain the tokenizer.

    Raises:
        InvalidArgumentError: the format is unknown, or `path` is a URL, or a file with another suffix.
        UnsupportedTokenizerError: the format can't represent the tokenizer or one of its options.
    """
    target = resolve_target(path, format)
    return _EXPORTERS[format](tokenizer, target)


class _Target(NamedTuple):
    """Where to write.

    Attributes:
        file: path of the first file.
        is_directory: whether the caller passed a directory, for which the names of files are fixed.
    """

    file: Path
    is_directory: bool


def resolve_target(path: str | os.PathLike[str], format_: Format) -> _Target:
    """Returns the file to write: `path` itself if it has the suffix of the format, or a file in it.

    Raises:
        InvalidArgumentError: as in `export_tokenizer`.
    """
    if format_ not in _EXPORTERS:
        raise InvalidArgumentError(f"format must be {', '.join(map(repr, _EXPORTERS))}, not {format_!r}")
    reject_urls(path)
    path, name = check_path(path), _FILES[format_]
    parent_file = next((each for each in path.parents if each.is_file()), None)
    if path.suffix == Path(name).suffix and format_ != "gpt2" and not path.is_dir() and not parent_file:
        return _Target(path, False)
    if path.is_file() or parent_file:
        file = "" if format_ == "gpt2" else f"a path that ends with {Path(name).suffix!r}, or "
        raise InvalidArgumentError(
            f"{parent_file or path} is a file; to write the format {format_!r}, pass {file}a "
            f"directory, in which {name} is written"
        )
    return _Target(path / name, True)


def _export_tokjax(tokenizer: Any, target: _Target) -> tuple[Path, ...]:
    target.file.parent.mkdir(parents=True, exist_ok=True)
    return (save_tokenizer(tokenizer, target.file),)


def _export_huggingface(tokenizer: Any, target: _Target) -> tuple[Path, ...]:
    if isinstance(tokenizer, HuggingFaceTokenizer):
        contents = tokenizer.contents
    else:
        contents = build_tokenizer_json(tokenizer)
    text = json.dumps(contents, ensure_ascii=False, indent=1)
    return _write_with_config(tokenizer.vocabulary, target, "huggingface", {target.file: text})


def _export_tiktoken(tokenizer: Any, target: _Target) -> tuple[Path, ...]:
    _check_type(tokenizer, ByteLevelBPE, "tiktoken")
    _check_expressible(tokenizer, "a rank file", normalizer=None, add_prefix_space=False, trim_offsets=None)
    ranks = tokenizer.vocabulary.mergeable
    unreachable_ids = dict(tokenizer.vocabulary.unreachable_ids)
    empty_token = {b"": unreachable_ids.pop("")} if "" in unreachable_ids else {}
    for name, id_ in unreachable_ids.items():
        raise UnsupportedTokenizerError(
            f"a rank file can't have two tokens with the bytes of {name!r}, which are those of the ids "
            f"{ranks[name.encode()]} and {id_}"
        )
    if tokenizer.merges is not None:
        _check_merges_are_ranks(tokenizer, ranks)
    if tokenizer.vocabulary.added_names:
        name = min(tokenizer.vocabulary.added_names)
        raise UnsupportedTokenizerError(f"a rank file can't mark {name!r} as an added token")
    lines = (
        (base64.b64encode(token) or b"=") + b" %d\n" % rank
        for token, rank in sorted((ranks | empty_token).items(), key=itemgetter(1))
    )
    target.file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target.file, lambda file: file.write(b"".join(lines)))
    return (target.file,)


def _export_gpt2(tokenizer: Any, target: _Target) -> tuple[Path, ...]:
    _check_type(tokenizer, ByteLevelBPE, "gpt2")
    _check_expressible(
        tokenizer, "GPT-2's format", normalizer=None, add_prefix_space=False, trim_offsets=None
    )
    if make_pattern_splitter(tokenizer.pattern).name != "gpt2":
        raise UnsupportedTokenizerError(
            f"GPT-2's format implies the pattern 'gpt2', not {tokenizer.pattern!r}; pass format='huggingface'"
        )
    ranks = tokenizer.vocabulary.mergeable
    if tokenizer.vocabulary.added_names:
        name = min(tokenizer.vocabulary.added_names)
        raise UnsupportedTokenizerError(f"GPT-2's format can't mark {name!r} as an added token")
    if tokenizer.ignore_merges:
        _check_tokens_reachable(tokenizer, ranks)
    pairs: Iterable[tuple[bytes, bytes]] = (
        iter_merges(ranks) if tokenizer.merges is None else tokenizer.merges
    )
    lines = [f"{map_bytes_to_unicode(left)} {map_bytes_to_unicode(right)}\n" for left, right in pairs]
    forms = {map_bytes_to_unicode(token): id_ for token, id_ in ranks.items()}
    texts = {
        target.file: json.dumps(build_forms(tokenizer.vocabulary, forms), ensure_ascii=False),
        target.file.with_name("merges.txt"): "".join(["#version: 0.2\n", *lines]),
    }
    return _write_with_config(tokenizer.vocabulary, target, "gpt2", texts)


def _export_wordpiece(tokenizer: Any, target: _Target) -> tuple[Path, ...]:
    _check_type(tokenizer, WordPieceTokenizer, "wordpiece")
    _check_expressible(
        tokenizer, "a vocab.txt", continuing_prefix="##", max_word_characters=100, cleanup=True
    )
    _check_expressible(tokenizer.normalizer, "a vocab.txt", clean_text=True)
    if tokenizer.vocabulary.added_names:
        name = min(tokenizer.vocabulary.added_names)
        raise UnsupportedTokenizerError(f"a vocab.txt can't mark {name!r} as an added token")
    if not target.is_directory and dict(tokenizer.vocabulary.special).keys() - _BERT_SPECIAL:
        raise UnsupportedTokenizerError(
            f"a vocab.txt can't mark special tokens, which are {list(tokenizer.vocabulary.special)}; pass a "
            "directory, so that a tokenizer_config.json is written as well"
        )
    forms = [str(form) for form in tokenizer.vocabulary.strings.tolist()]
    for id_, form in enumerate(tokenizer.vocabulary.strings.tolist()):
        if form is None:
            raise UnsupportedTokenizerError(f"a vocab.txt needs consecutive ids, and no token has id {id_}")
        if form.endswith("\r") or "\n" in form:
            raise UnsupportedTokenizerError(f"a vocab.txt can't contain {form!r}, which has a line break")
    normalizer = tokenizer.normalizer
    config_fields = {
        "do_lower_case": normalizer.lowercase,
        "strip_accents": normalizer.strip_accents,
        "tokenize_chinese_chars": normalizer.handle_chinese_chars,
    }
    text = "".join(form + "\n" for form in forms)
    return _write_with_config(tokenizer.vocabulary, target, "wordpiece", {target.file: text}, **config_fields)


def _export_sentencepiece(tokenizer: Any, target: _Target) -> tuple[Path, ...]:
    _check_type(tokenizer, SentencePieceTokenizer, "sentencepiece")
    vocabulary = tokenizer.vocabulary
    if vocabulary.added_tokens:
        name = min(vocabulary.added_tokens)
        raise UnsupportedTokenizerError(f"a SentencePiece model can't mark {name!r} as an added token")
    before, after = vocabulary.template_token_ids
    config_fields = {
        "add_bos_token": before == (vocabulary.get_role_id("bos"),),
        "add_eos_token": after == (vocabulary.get_role_id("eos"),),
    }
    contents = {target.file: tokenizer.model_proto}
    return _write_with_config(tokenizer.vocabulary, target, "sentencepiece", contents, **config_fields)


def _check_type(tokenizer: Any, kind: type, format_: Format) -> None:
    if not isinstance(tokenizer, kind):
        raise UnsupportedTokenizerError(
            f"format={format_!r} is for a {kind.__name__}, not a {type(tokenizer).__name__}"
        )


def _check_expressible(tokenizer: Any, format_name: str, **expected: object) -> None:
    """Raises `UnsupportedTokenizerError` if an option differs from the only value that a format implies."""
    for name, value in expected.items():
        if getattr(tokenizer, name) != value:
            raise UnsupportedTokenizerError(
                f"{format_name} can't represent {name}={getattr(tokenizer, name)!r}"
            )


def _check_merges_are_ranks(tokenizer: ByteLevelBPE, ranks: Mapping[bytes, int]) -> None:
    """Raises `UnsupportedTokenizerError` unless merging by rank gives the same ids as the list of merges.

    That needs three properties: the merges are in the order of the ids that they produce; every pair of
    tokens whose concatenation is a token is a merge; and each token is the result of merging its own bytes,
    unless `ignore_merges` is set.
    """
    assert tokenizer.merges is not None
    merged_ids = [ranks[left + right] for left, right in tokenizer.merges]
    if merged_ids != sorted(merged_ids):
        raise UnsupportedTokenizerError(
            "a rank file needs merges in the order of the ids that they produce; these are in another order"
        )
    merges = set(tokenizer.merges)
    for left, right in iter_merges(ranks):
        if (left, right) not in merges:
            raise UnsupportedTokenizerError(
                "in a rank file, two tokens merge if their concatenation is a token; "
                f"{left!r} and {right!r} are not among the merges"
            )
    if not tokenizer.ignore_merges:
        _check_tokens_reachable(tokenizer, ranks)


def _check_tokens_reachable(tokenizer: ByteLevelBPE, ranks: Mapping[bytes, int]) -> None:
    """Raises `UnsupportedTokenizerError` for tokens that merging their bytes does not produce.

    A pre-token equal to such a token has different ids with and without `ignore_merges`, an option that the
    format does not have.
    """
    rules = make_rules_from_ranks(ranks) if tokenizer.merges is None else tokenizer.rules
    for token in ranks:
        if merge_bytes(token, rules) != [token]:
            raise UnsupportedTokenizerError(
                f"the format can't represent ignore_merges, and merging does not produce the token {token!r}"
            )


def _write_with_config(
    vocabulary: Vocabulary,
    target: _Target,
    format_: str,
    contents: Mapping[Path, str | bytes],
    **config_fields: object,
) -> tuple[Path, ...]:
    """Writes files, and in a directory also a `tokenizer_config.json` with the roles of the special tokens.

    If the process is killed while it writes, the last of the files is missing. So old and new files are never
    read together.

    Args:
        vocabulary: vocabulary of the tokenizer.
        target: where to write.
        format_: format of the files.
        contents: contents by path of the file.
        **config_fields: additional fields of the `tokenizer_config.json`.

    Returns:
        The paths of the files, without the `tokenizer_config.json`.
    """
    files = dict(contents)
    directory = target.file.parent
    directory.mkdir(parents=True, exist_ok=True)
    if target.is_directory:
        roles = dict(vocabulary.roles)
        if format_ == "wordpiece":
            for role, other in BERT_ROLES.items():
                if role in roles and roles.setdefault(other, roles[role]) == roles[role]:
                    del roles[role]  # BERT's files declare [CLS] as CLS only, and [SEP] as SEP only
        # Tokens that the configuration declares are matched in texts, and new ones get other ids.
        left_out = vocabulary.unmatched_names | vocabulary.second_names
        without_role = vocabulary.second_names if format_ == "sentencepiece" else left_out
        role_fields = {f"{role}_token": name for role, name in roles.items() if name not in without_role}
        additional = vocabulary.special.keys() - left_out - set(vocabulary.roles.values())
        class_field = (
            {"tokenizer_class": _TOKENIZER_CLASSES[format_]} if format_ in _TOKENIZER_CLASSES else {}
        )
        config = {
            **class_field,
            **role_fields,
            "additional_special_tokens": sorted(additional, key=vocabulary.get_id),
            **config_fields,
        }
        files = {directory / CONFIG_FILE: json.dumps(config, ensure_ascii=False, indent=1), **files}
    write_files_atomically([(file, partial(_write_contents, value)) for file, value in files.items()])
    return tuple(contents)


def _write_contents(contents: str | bytes, file: BinaryIO) -> None:
    file.write(contents.encode("utf-8") if isinstance(contents, str) else contents)


_FILES: Mapping[str, str] = {
    "tokjax": TOKENIZER_FILE,
    "huggingface": "tokenizer.json",
    "gpt2": "vocab.json",
    "sentencepiece": "tokenizer.model",
    "tiktoken": "ranks.tiktoken",
    "wordpiece": "vocab.txt",
}
"""Name of the first file in a directory, by format."""
_EXPORTERS: Mapping[Format, Callable[[Any, _Target], tuple[Path, ...]]] = {
    "tokjax": _export_tokjax,
    "huggingface": _export_huggingface,
    "gpt2": _export_gpt2,
    "sentencepiece": _export_sentencepiece,
    "tiktoken": _export_tiktoken,
    "wordpiece": _export_wordpiece,
}
