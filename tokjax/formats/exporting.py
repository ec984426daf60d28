"""Export of tokenizers to the file formats of other libraries."""

from __future__ import annotations

import base64
import json
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tokjax._util.atomic_files import check_path, write_files_atomically
from tokjax._util.urls import reject_urls
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_bytes
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.formats.file_formats import FORMATS
from tokjax.formats.huggingface.byte_level import build_byte_level_model, iter_merges
from tokjax.formats.huggingface.library import HuggingFaceTokenizer
from tokjax.formats.huggingface.tokenizer_json import build_tokenizer_json
from tokjax.formats.tokenizer_files import BERT_ROLES, CONFIG_FILE
from tokjax.formats.tokjax_json import dump_tokenizer
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer
from tokjax.pretokenize.patterns import make_pattern_splitter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.formats.file_formats import Format

_BERT_SPECIAL = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}


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
    file = resolve_target(path, format)
    kind, build = _WRITERS[format]
    if not isinstance(tokenizer, kind):
        raise UnsupportedTokenizerError(
            f"format={format!r} is for a {kind.__name__}, not a {type(tokenizer).__name__}"
        )
    is_directory = file != Path(path)
    contents, config = build(tokenizer, is_directory)
    files = dict(zip([file, *map(file.with_name, FORMATS[format].names[1:])], contents, strict=True))
    written = files
    if is_directory and config is not None:
        # If the process is killed, the last file is missing. So old and new files are never read together.
        written = {file.with_name(CONFIG_FILE): _dump(config).encode("utf-8"), **files}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_files_atomically([(path, methodcaller("write", data)) for path, data in written.items()])
    return tuple(files)


def resolve_target(path: str | os.PathLike[str], format_: Format) -> Path:
    """Returns the file to write: `path` itself if it has the suffix of the format, or a file in it.

    Raises:
        InvalidArgumentError: as in `export_tokenizer`.
    """
    if format_ not in _WRITERS:
        raise InvalidArgumentError(f"format must be {', '.join(map(repr, _WRITERS))}, not {format_!r}")
    reject_urls(path)
    path, name = check_path(path), FORMATS[format_].names[0]
    parent_file = next((each for each in path.parents if each.is_file()), None)
    is_single = len(FORMATS[format_].names) == 1
    if path.suffix == Path(name).suffix and is_single and not path.is_dir() and not parent_file:
        return path
    if path.is_file() or parent_file:
        file = f"a path that ends with {Path(name).suffix!r}, or " if is_single else ""
        raise InvalidArgumentError(
            f"{parent_file or path} is a file; to write the format {format_!r}, pass {file}a "
            f"directory, in which {name} is written"
        )
    return path / name


Built: TypeAlias = "tuple[list[bytes], dict[str, Any] | None]"
"""Contents of the files of a tokenizer, and of the `tokenizer_config.json` beside them, if there is one."""


def _build_tokjax(tokenizer: Any, _: bool) -> Built:
    return [dump_tokenizer(tokenizer)], None


def _build_huggingface(tokenizer: Any, _: bool) -> Built:
    is_definition = isinstance(tokenizer, HuggingFaceTokenizer)
    contents = tokenizer.contents if is_definition else build_tokenizer_json(tokenizer)
    config = _build_config(tokenizer.vocabulary, tokenizer_class="PreTrainedTokenizerFast")
    return [_dump(contents).encode("utf-8")], config


def _build_tiktoken(tokenizer: Any, _: bool) -> Built:
    _check_plain(tokenizer, "a rank file")
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
    lines = (
        (base64.b64encode(token) or b"=") + b" %d\n" % rank
        for token, rank in sorted((ranks | empty_token).items(), key=itemgetter(1))
    )
    return [b"".join(lines)], None


def _build_gpt2(tokenizer: Any, _: bool) -> Built:
    _check_plain(tokenizer, "GPT-2's format")
    if make_pattern_splitter(tokenizer.pattern).name != "gpt2":
        raise UnsupportedTokenizerError(
            f"GPT-2's format implies the pattern 'gpt2', not {tokenizer.pattern!r}; pass format='huggingface'"
        )
    if tokenizer.ignore_merges:
        _check_tokens_reachable(tokenizer, tokenizer.vocabulary.mergeable)
    model = build_byte_level_model(tokenizer)
    merges = "".join(["#version: 0.2\n", *(f"{left} {right}\n" for left, right in model["merges"])])
    vocab = json.dumps(model["vocab"], ensure_ascii=False)
    config = _build_config(tokenizer.vocabulary, tokenizer_class="GPT2Tokenizer")
    return [vocab.encode("utf-8"), merges.encode("utf-8")], config


def _build_wordpiece(tokenizer: Any, has_config: bool) -> Built:
    vocabulary, normalizer = tokenizer.vocabulary, tokenizer.normalizer
    _check_expressible(
        tokenizer, "a vocab.txt", continuing_prefix="##", max_word_characters=100, cleanup=True
    )
    _check_expressible(normalizer, "a vocab.txt", clean_text=True)
    _check_no_added_tokens(vocabulary.added_names, "a vocab.txt")
    if not has_config and vocabulary.special_names - _BERT_SPECIAL:
        raise UnsupportedTokenizerError(
            f"a vocab.txt can't mark special tokens, which are {list(vocabulary.special)}; pass a "
            "directory, so that a tokenizer_config.json is written as well"
        )
    forms = vocabulary.strings.tolist()
    for id_, form in enumerate(forms):
        if form is None:
            raise UnsupportedTokenizerError(f"a vocab.txt needs consecutive ids, and no token has id {id_}")
        if form.endswith("\r") or "\n" in form:
            raise UnsupportedTokenizerError(f"a vocab.txt can't contain {form!r}, which has a line break")
    roles = dict(vocabulary.roles)
    for role, other in BERT_ROLES.items():
        if role in roles and roles.setdefault(other, roles[role]) == roles[role]:
            del roles[role]  # BERT's files declare [CLS] as CLS only, and [SEP] as SEP only
    config = _build_config(
        vocabulary,
        roles,
        tokenizer_class="BertTokenizer",
        do_lower_case=normalizer.lowercase,
        strip_accents=normalizer.strip_accents,
        tokenize_chinese_chars=normalizer.handle_chinese_chars,
    )
    return ["".join(f"{form}\n" for form in forms).encode("utf-8")], config


def _build_sentencepiece(tokenizer: Any, _: bool) -> Built:
    vocabulary = tokenizer.vocabulary
    _check_no_added_tokens(vocabulary.added_tokens, "a SentencePiece model")
    before, after = vocabulary.template_token_ids
    config = _build_config(
        vocabulary,
        add_bos_token=before == (vocabulary.get_role_id("bos"),),
        add_eos_token=after == (vocabulary.get_role_id("eos"),),
    )
    return [tokenizer.model_proto], config


def _dump(contents: Mapping[str, Any]) -> str:
    return json.dumps(contents, ensure_ascii=False, indent=1)


def _build_config(
    vocabulary: Vocabulary, roles: Mapping[Role, str] | None = None, **fields: object
) -> dict[str, Any]:
    """Builds a `tokenizer_config.json` with the roles of the special tokens.

    Args:
        vocabulary: vocabulary of the tokenizer.
        roles: role to the name of a token, if not those of the vocabulary.
        **fields: additional fields.
    """
    # Classes match the tokens that the configuration declares in texts, and new ones get other ids.
    left_out = vocabulary.unmatched_names | vocabulary.second_names
    without_role = left_out if "tokenizer_class" in fields else vocabulary.second_names
    additional = vocabulary.special_names - left_out - set(vocabulary.roles.values())
    roles = vocabulary.roles if roles is None else roles
    return {
        **{f"{role}_token": name for role, name in roles.items() if name not in without_role},
        "additional_special_tokens": sorted(additional, key=vocabulary.get_id),
        **fields,
    }


def _check_expressible(tokenizer: Any, format_name: str, **expected: object) -> None:
    """Raises `UnsupportedTokenizerError` if an option differs from the only value that a format implies."""
    for name, value in expected.items():
        if getattr(tokenizer, name) != value:
            raise UnsupportedTokenizerError(
                f"{format_name} can't represent {name}={getattr(tokenizer, name)!r}"
            )


def _check_plain(tokenizer: ByteLevelBPE, format_name: str) -> None:
    _check_expressible(tokenizer, format_name, normalizer=None, add_prefix_space=False, trim_offsets=None)
    _check_no_added_tokens(tokenizer.vocabulary.added_names, format_name)


def _check_no_added_tokens(names: Iterable[str], format_name: str) -> None:
    for name in sorted(names):
        raise UnsupportedTokenizerError(f"{format_name} can't mark {name!r} as an added token")


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


_WRITERS: Mapping[Format, tuple[type[Any], Callable[[Any, bool], Built]]] = {
    "tokjax": (object, _build_tokjax),
    "huggingface": (object, _build_huggingface),
    "gpt2": (ByteLevelBPE, _build_gpt2),
    "sentencepiece": (SentencePieceTokenizer, _build_sentencepiece),
    "tiktoken": (ByteLevelBPE, _build_tiktoken),
    "wordpiece": (WordPieceTokenizer, _build_wordpiece),
}
"""Types of the tokenizers that can be written, and functions that build the contents of files, by format.

The functions take a tokenizer, and whether a `tokenizer_config.json` can be written.
"""
