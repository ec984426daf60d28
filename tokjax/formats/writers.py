"""Writers of tokenizer files in the formats of other libraries. `export_tokenizer` calls them."""

from __future__ import annotations

import base64
import json
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.atomic_files import write_atomically, write_files_atomically
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_bytes
from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
from tokjax.formats.huggingface.export import build_tokenizer_json, iter_merges
from tokjax.formats.huggingface.metaspace_export import build_forms
from tokjax.formats.tokenizer_files import BERT_ROLES, CONFIG_FILE
from tokjax.formats.tokjax_json import save_tokenizer
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode
from tokjax.pretokenize.patterns import make_pattern_splitter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.byte_bpe import ByteLevelBPE

_BERT_SPECIAL = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}


class Target(NamedTuple):
    """Where to write.

    Attributes:
        file: path of the first file.
        is_directory: whether the caller passed a directory, for which the names of files are fixed.
    """

    file: Path
    is_directory: bool


def write_tokjax(tokenizer: Any, target: Target) -> tuple[Path, ...]:
    """Writes tokjax's own format. Like the other writers, returns the paths of the files."""
    target.file.parent.mkdir(parents=True, exist_ok=True)
    return (save_tokenizer(tokenizer, target.file),)


def write_huggingface(tokenizer: Any, target: Target) -> tuple[Path, ...]:
    """Writes a `tokenizer.json`."""
    if isinstance(tokenizer, HuggingFaceTokenizer):
        contents = tokenizer.contents
    else:
        contents = build_tokenizer_json(tokenizer)
    text = json.dumps(contents, ensure_ascii=False, indent=1)
    return _write_with_config(
        tokenizer.vocabulary, target, {target.file: text}, tokenizer_class="PreTrainedTokenizerFast"
    )


def write_tiktoken(tokenizer: Any, target: Target) -> tuple[Path, ...]:
    """Writes a rank file."""
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
    target.file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target.file, lambda file: file.write(b"".join(lines)))
    return (target.file,)


def write_gpt2(tokenizer: Any, target: Target) -> tuple[Path, ...]:
    """Writes `vocab.json` and `merges.txt`."""
    _check_plain(tokenizer, "GPT-2's format")
    if make_pattern_splitter(tokenizer.pattern).name != "gpt2":
        raise UnsupportedTokenizerError(
            f"GPT-2's format implies the pattern 'gpt2', not {tokenizer.pattern!r}; pass format='huggingface'"
        )
    ranks = tokenizer.vocabulary.mergeable
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
    return _write_with_config(tokenizer.vocabulary, target, texts, tokenizer_class="GPT2Tokenizer")


def write_wordpiece(tokenizer: Any, target: Target) -> tuple[Path, ...]:
    """Writes a `vocab.txt`."""
    _check_expressible(
        tokenizer, "a vocab.txt", continuing_prefix="##", max_word_characters=100, cleanup=True
    )
    _check_expressible(tokenizer.normalizer, "a vocab.txt", clean_text=True)
    _check_no_added_tokens(tokenizer.vocabulary.added_names, "a vocab.txt")
    if not target.is_directory and dict(tokenizer.vocabulary.special).keys() - _BERT_SPECIAL:
        raise UnsupportedTokenizerError(
            f"a vocab.txt can't mark special tokens, which are {list(tokenizer.vocabulary.special)}; pass a "
            "directory, so that a tokenizer_config.json is written as well"
        )
    forms = tokenizer.vocabulary.strings.tolist()
    for id_, form in enumerate(forms):
        if form is None:
            raise UnsupportedTokenizerError(f"a vocab.txt needs consecutive ids, and no token has id {id_}")
        if form.endswith("\r") or "\n" in form:
            raise UnsupportedTokenizerError(f"a vocab.txt can't contain {form!r}, which has a line break")
    roles = dict(tokenizer.vocabulary.roles)
    for role, other in BERT_ROLES.items():
        if role in roles and roles.setdefault(other, roles[role]) == roles[role]:
            del roles[role]  # BERT's files declare [CLS] as CLS only, and [SEP] as SEP only
    return _write_with_config(
        tokenizer.vocabulary,
        target,
        {target.file: "".join(form + "\n" for form in forms)},
        roles,
        tokenizer_class="BertTokenizer",
        do_lower_case=tokenizer.normalizer.lowercase,
        strip_accents=tokenizer.normalizer.strip_accents,
        tokenize_chinese_chars=tokenizer.normalizer.handle_chinese_chars,
    )


def write_sentencepiece(tokenizer: Any, target: Target) -> tuple[Path, ...]:
    """Writes a `tokenizer.model`."""
    vocabulary = tokenizer.vocabulary
    _check_no_added_tokens(vocabulary.added_tokens, "a SentencePiece model")
    before, after = vocabulary.template_token_ids
    return _write_with_config(
        vocabulary,
        target,
        {target.file: tokenizer.model_proto},
        add_bos_token=before == (vocabulary.get_role_id("bos"),),
        add_eos_token=after == (vocabulary.get_role_id("eos"),),
    )


def _check_expressible(tokenizer: Any, format_name: str, **expected: object) -> None:
    """Raises `UnsupportedTokenizerError` if an option differs from the only value that a format implies."""
    for name, value in expected.items():
        if getattr(tokenizer, name) != value:
            raise UnsupportedTokenizerError(
                f"{format_name} can't represent {name}={getattr(tokenizer, name)!r}"
            )


def _check_plain(tokenizer: ByteLevelBPE, format_name: str) -> None:
    options = {"normalizer": None, "add_prefix_space": False, "trim_offsets": None, "dropout": None}
    _check_expressible(tokenizer, format_name, **options)
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


def _write_with_config(
    vocabulary: Vocabulary,
    target: Target,
    contents: Mapping[Path, str | bytes],
    roles: Mapping[Role, str] | None = None,
    **config_fields: object,
) -> tuple[Path, ...]:
    """Writes files, and in a directory also a `tokenizer_config.json` with the roles of the special tokens.

    If the process is killed while it writes, the last of the files is missing. So old and new files are never
    read together.

    Args:
        vocabulary: vocabulary of the tokenizer.
        target: where to write.
        contents: contents by path of the file.
        roles: role to the name of a token, if not those of the vocabulary.
        **config_fields: additional fields of the `tokenizer_config.json`.

    Returns:
        The paths of the files, without the `tokenizer_config.json`.
    """
    files = dict(contents)
    directory = target.file.parent
    directory.mkdir(parents=True, exist_ok=True)
    if target.is_directory:
        roles = vocabulary.roles if roles is None else roles
        # Classes match the tokens that the configuration declares in texts, and new ones get other ids.
        left_out = vocabulary.unmatched_names | vocabulary.second_names
        without_role = left_out if "tokenizer_class" in config_fields else vocabulary.second_names
        additional = vocabulary.special.keys() - left_out - set(vocabulary.roles.values())
        config = {
            **{f"{role}_token": name for role, name in roles.items() if name not in without_role},
            "additional_special_tokens": sorted(additional, key=vocabulary.get_id),
            **config_fields,
        }
        files = {directory / CONFIG_FILE: json.dumps(config, ensure_ascii=False, indent=1), **files}
    write_files_atomically([(file, partial(_write_contents, value)) for file, value in files.items()])
    return tuple(contents)


def _write_contents(contents: str | bytes, file: BinaryIO) -> None:
    file.write(contents.encode("utf-8") if isinstance(contents, str) else contents)
