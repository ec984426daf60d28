"""tokjax's tokenizers written in the formats of other libraries."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import write_atomically, write_files_atomically
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_bytes
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
from tokjax.formats.huggingface.definition import get_literal_tokens
from tokjax.formats.huggingface.export import as_huggingface, iter_merges
from tokjax.formats.tokenizer_files import CONFIG_FILE
from tokjax.formats.tokjax_json import save_tokenizer
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

_BERT_ROLES = {"bos_token": "cls_token", "eos_token": "sep_token"}
_BERT_SPECIAL = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}
_CLASSES = {
    "huggingface": "PreTrainedTokenizerFast",
    "gpt2": "GPT2Tokenizer",
    "wordpiece": "BertTokenizer",
}


def export_tokenizer(tokenizer: Any, path: str | os.PathLike[str], format: Format) -> tuple[Path, ...]:  # noqa: A002
    """Write a tokenizer so that other libraries read it, and give the same ids.

    | format | of | written |
    |---|---|---|
    | `"huggingface"` | BPE, WordPiece, word level, what runs on `tokenizers` | `tokenizer.json` |
    | `"tiktoken"` | byte-level BPE by ranks | the ranks; pattern and special tokens are not in such files |
    | `"gpt2"` | byte-level BPE with GPT-2's pattern | `vocab.json` and `merges.txt` |
    | `"wordpiece"` | WordPiece | `vocab.txt` |
    | `"sentencepiece"` | SentencePiece | the `.model` |
    | `"tokjax"` | all of tokjax's own | `tokenizer.tokjax.json`, as `save_tokenizer` |

    In a directory the files get these names (`tokenizer.model` and `ranks.tiktoken`, those without one), and
    a `tokenizer_config.json` beside those of the Hugging Face libraries says which special tokens have which
    role. What is put around texts is said by a `tokenizer.json` only. Files are replaced whole, or not at
    all.

    Args:
        tokenizer: any of tokjax.
        path: an existing directory, or the file; for `"gpt2"` a directory, which is made if need be.
        format: one of those above.

    Returns:
        The paths of the files that hold the tokenizer.

    Raises:
        InvalidArgumentError: there is no such format.
        UnsupportedTokenizerError: the format can't express the tokenizer, or something of it.
    """
    if format not in _EXPORTERS:
        raise InvalidArgumentError(f"format must be {', '.join(map(repr, _EXPORTERS))}, not {format!r}")
    return _EXPORTERS[format](tokenizer, Path(path))


def _export_tokjax(tokenizer: Any, path: Path) -> tuple[Path, ...]:
    return (save_tokenizer(tokenizer, path),)


def _export_huggingface(tokenizer: Any, path: Path) -> tuple[Path, ...]:
    if isinstance(tokenizer, HuggingFaceTokenizer):
        contents = tokenizer.parts
    elif isinstance(tokenizer, SentencePieceTokenizer):
        raise UnsupportedTokenizerError("a SentencePiece model is written with format='sentencepiece'")
    else:
        contents = as_huggingface(tokenizer)
    target = _resolve_target(path, "tokenizer.json")
    text = json.dumps(contents, ensure_ascii=False, indent=1)
    return _write_with_config(tokenizer.vocabulary, path, "huggingface", {target: text})


def _export_tiktoken(tokenizer: Any, path: Path) -> tuple[Path, ...]:
    _check_type(tokenizer, ByteLevelBPE, "tiktoken")
    _check_expressible(
        tokenizer, "a file of ranks", normalizer=None, add_prefix_space=False, trim_offsets=None
    )
    ranks = tokenizer.vocabulary.mergeable
    if tokenizer.merges is not None:
        _check_merges_are_ranks(tokenizer, ranks)
    if tokenizer.vocabulary.added_names:
        name = min(tokenizer.vocabulary.added_names)
        raise UnsupportedTokenizerError(f"a file of ranks can't say that {name!r} is always found")
    target = _resolve_target(path, "ranks.tiktoken")
    lines = (
        base64.b64encode(token) + b" %d\n" % rank
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
    )
    write_atomically(target, lambda file: file.write(b"".join(lines)))
    return (target,)


def _export_gpt2(tokenizer: Any, path: Path) -> tuple[Path, ...]:
    _check_type(tokenizer, ByteLevelBPE, "gpt2")
    _check_expressible(
        tokenizer, "GPT-2's format", normalizer=None, add_prefix_space=False, trim_offsets=None
    )
    if make_pattern_splitter(tokenizer.pattern).name != "gpt2":
        raise UnsupportedTokenizerError(
            f"GPT-2's format has the pattern 'gpt2', not {tokenizer.pattern!r}; write format='huggingface'"
        )
    ranks = tokenizer.vocabulary.mergeable
    if tokenizer.vocabulary.added_names:
        name = min(tokenizer.vocabulary.added_names)
        raise UnsupportedTokenizerError(f"GPT-2's format can't say that {name!r} is always found")
    if tokenizer.ignore_merges:
        _check_tokens_reachable(tokenizer, ranks)
    pairs: Iterable[tuple[bytes, bytes]] = (
        iter_merges(ranks) if tokenizer.merges is None else tokenizer.merges
    )
    lines = [f"{map_bytes_to_unicode(left)} {map_bytes_to_unicode(right)}\n" for left, right in pairs]
    forms = {map_bytes_to_unicode(token): id_ for token, id_ in ranks.items()}
    forms |= get_literal_tokens(tokenizer.vocabulary, forms)
    path.mkdir(parents=True, exist_ok=True)
    vocab, merges = path / "vocab.json", path / "merges.txt"
    ordered = dict(sorted(forms.items(), key=lambda item: item[1]))
    texts = {
        vocab: json.dumps(ordered, ensure_ascii=False),
        merges: "".join(["#version: 0.2\n", *lines]),
    }
    return _write_with_config(tokenizer.vocabulary, path, "gpt2", texts)


def _export_wordpiece(tokenizer: Any, path: Path) -> tuple[Path, ...]:
    _check_type(tokenizer, WordPieceTokenizer, "wordpiece")
    _check_expressible(
        tokenizer, "a vocab.txt", continuing_prefix="##", max_word_characters=100, cleanup=True
    )
    _check_expressible(tokenizer.normalizer, "a vocab.txt", clean_text=True)
    if tokenizer.vocabulary.added_names:
        name = min(tokenizer.vocabulary.added_names)
        raise UnsupportedTokenizerError(f"a vocab.txt can't say that {name!r} is always found")
    if not path.is_dir() and dict(tokenizer.vocabulary.special).keys() - _BERT_SPECIAL:
        raise UnsupportedTokenizerError(
            f"a vocab.txt can't say that the special tokens are {list(tokenizer.vocabulary.special)}; pass a "
            "directory, in which a tokenizer_config.json does"
        )
    forms = [str(form) for form in tokenizer.vocabulary.strings.tolist()]
    for id_, form in enumerate(tokenizer.vocabulary.strings.tolist()):
        if form is None:
            raise UnsupportedTokenizerError(f"a vocab.txt has no holes, and there is no token with id {id_}")
        if form.endswith("\r") or "\n" in form:
            raise UnsupportedTokenizerError(f"a vocab.txt can't hold {form!r}, which ends a line")
    target = _resolve_target(path, "vocab.txt")
    steps = tokenizer.normalizer
    config_fields = {
        "do_lower_case": steps.lowercase,
        "strip_accents": steps.strip_accents,
        "tokenize_chinese_chars": steps.handle_chinese_chars,
    }
    text = "".join(form + "\n" for form in forms)
    return _write_with_config(tokenizer.vocabulary, path, "wordpiece", {target: text}, **config_fields)


def _export_sentencepiece(tokenizer: Any, path: Path) -> tuple[Path, ...]:
    _check_type(tokenizer, SentencePieceTokenizer, "sentencepiece")
    target = _resolve_target(path, "tokenizer.model")
    roles = tokenizer.vocabulary.roles
    config_fields = {"add_bos_token": "bos" in roles, "add_eos_token": "eos" in roles}
    contents = {target: tokenizer.model_proto}
    return _write_with_config(tokenizer.vocabulary, path, "sentencepiece", contents, **config_fields)


def _check_type(tokenizer: Any, kind: type, format_: Format) -> None:
    if not isinstance(tokenizer, kind):
        raise UnsupportedTokenizerError(
            f"format={format_!r} is for a {kind.__name__}, not a {type(tokenizer).__name__}"
        )


def _check_expressible(tokenizer: Any, what: str, **expected: object) -> None:
    for name, value in expected.items():
        if getattr(tokenizer, name) != value:
            raise UnsupportedTokenizerError(f"{what} can't say {name}={getattr(tokenizer, name)!r}")


def _check_merges_are_ranks(tokenizer: ByteLevelBPE, ranks: Mapping[bytes, int]) -> None:
    """Refuse merges that are not just those that ranks would allow, in their order."""
    assert tokenizer.merges is not None
    merged_ids = [ranks[left + right] for left, right in tokenizer.merges]
    if merged_ids != sorted(merged_ids):
        raise UnsupportedTokenizerError("in a file of ranks tokens merge in the order of their ids; here not")
    listed = set(tokenizer.merges)
    for left, right in iter_merges(ranks):
        if (left, right) not in listed:
            raise UnsupportedTokenizerError(
                f"in a file of ranks any two tokens merge that make one; {left!r} and {right!r} do not here"
            )
    if not tokenizer.ignore_merges:
        _check_tokens_reachable(tokenizer, ranks)


def _check_tokens_reachable(tokenizer: ByteLevelBPE, ranks: Mapping[bytes, int]) -> None:
    """Refuse tokens that merging would not arrive at: whether words stay whole makes a difference then."""
    rules = make_rules_from_ranks(ranks) if tokenizer.merges is None else tokenizer.rules
    for token in ranks:
        if merge_bytes(token, rules) != [token]:
            raise UnsupportedTokenizerError(
                f"the format can't say whether {token!r} is a token as a word: merging does not arrive there"
            )


def _resolve_target(path: Path, name: str) -> Path:
    return path / name if path.is_dir() else path


def _write_with_config(
    vocabulary: Vocabulary,
    path: Path,
    format_: str,
    contents: Mapping[Path, str | bytes],
    **config_fields: object,
) -> tuple[Path, ...]:
    """Writes files, and in a directory one beside them that gives the special tokens' roles.

    If the process is killed meanwhile, the last of the files is missing, so that old ones and new ones are
    not read together.
    """
    files = dict(contents)
    if path.is_dir():
        names = {f"{role}_token": name for role, name in vocabulary.roles.items()}
        if format_ == "wordpiece":
            names = {_BERT_ROLES.get(role, role): name for role, name in names.items()}
        more = [name for name in vocabulary.special if name not in vocabulary.roles.values()]
        kind = {"tokenizer_class": _CLASSES[format_]} if format_ in _CLASSES else {}
        config = {**kind, **names, "additional_special_tokens": more, **config_fields}
        files = {path / CONFIG_FILE: json.dumps(config, ensure_ascii=False, indent=1), **files}
    write_files_atomically([(file, partial(_write_contents, value)) for file, value in files.items()])
    return tuple(contents)


def _write_contents(contents: str | bytes, file: BinaryIO) -> None:
    file.write(contents.encode("utf-8") if isinstance(contents, str) else contents)


_EXPORTERS: Mapping[Format, Callable[[Any, Path], tuple[Path, ...]]] = {
    "tokjax": _export_tokjax,
    "huggingface": _export_huggingface,
    "gpt2": _export_gpt2,
    "sentencepiece": _export_sentencepiece,
    "tiktoken": _export_tiktoken,
    "wordpiece": _export_wordpiece,
}
