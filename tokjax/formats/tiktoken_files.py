"""tiktoken's files of ranks, and the encodings that OpenAI published in them."""

from __future__ import annotations

import base64
import binascii
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import MAX_ID, make_vocabulary
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.tokenizer_files import (
    BYTE_ORDER_MARK,
    as_path,
    parse_json_object,
    read_bytes,
    resolve_roles,
)
from tokjax.models.byte_bpe import ByteLevelBPE, Normalizer, make_byte_level_bpe
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.pretokenize.patterns import find_pattern_name

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role


_TEKKEN_ROLES: dict[Role, str] = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
_TEKKEN_SPECIAL = [
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
]
"""The special tokens of files that list none, which are of a version up to 7."""
_LAST_VERSION_WITHOUT_LIST = 7


class JsonRanks(NamedTuple):
    """What such a file holds.

    Attributes:
        ranks: bytes to id, the lower id merging first.
        pattern: the name of a published split pattern, or a regular expression.
        special_tokens: name to id.
        roles: which special tokens have which role, if they are there.
    """

    ranks: dict[bytes, int]
    pattern: str
    special_tokens: dict[str, int]
    roles: Mapping[Role, str]


def describe_json_ranks(contents: Mapping[str, Any]) -> str | None:
    """Returns what kind of file of ranks a JSON object is, in words; `None` if it is none."""
    if isinstance(contents.get("bpe_ranks"), str):
        return "its 'bpe_ranks' are tokens in base64, as in tiktoken's JavaScript ports"
    if isinstance(contents.get("vocab"), list) and isinstance(contents.get("config"), dict):
        return "it has a 'config' and a 'vocab', as Mistral's tekken.json does"
    return None


def parse_json_ranks(contents: Mapping[str, Any], where: str) -> JsonRanks:
    """Returns the ranks, the pattern and the special tokens of a JSON object.

    Args:
        contents: the object.
        where: the file, for errors.

    Raises:
        TokenizerFormatError: it is neither of the two kinds, or a value in it makes no sense.
    """
    if describe_json_ranks(contents) is None:
        raise TokenizerFormatError(
            f"{where}: a JSON object without ranks: 'bpe_ranks', or 'vocab' and 'config', are expected; its "
            f"keys are {list(contents)[:10]}"
        )
    read = _parse_compressed if isinstance(contents.get("bpe_ranks"), str) else _parse_tekken
    return read(contents, where)


def _parse_compressed(contents: Mapping[str, Any], where: str) -> JsonRanks:
    """Lines of `! OFFSET TOKEN TOKEN ...`: the ids of the tokens count up from the offset."""
    ranks: dict[bytes, int] = {}
    num_tokens = 0
    for number, line in enumerate(contents["bpe_ranks"].splitlines(), 1):
        at = f"{where}, line {number} of 'bpe_ranks'"
        mark, *parts = line.split()
        if mark != "!" or not parts or not re.fullmatch("[0-9]{1,9}", parts[0]):
            raise TokenizerFormatError(f"{at}: '! OFFSET TOKEN ...' is expected, not {line[:60]!r}")
        tokens = [_decode_token(encoded, at) for encoded in parts[1:]]
        ranks |= zip(tokens, range(int(parts[0]), int(parts[0]) + len(tokens)), strict=True)
        num_tokens += len(tokens)
    special = contents.get("special_tokens", {})
    if not isinstance(special, dict):
        raise TokenizerFormatError(f"{where}: 'special_tokens' is {special!r}; names and ids are expected")
    found = JsonRanks(ranks, contents.get("pat_str", ""), special, {"eos": "<|endoftext|>"})
    return _check_ranks(found, num_tokens, where)


def _parse_tekken(contents: Mapping[str, Any], where: str) -> JsonRanks:
    """Ids begin with the special tokens, of which those without a name are called `<SPECIAL_id>`."""
    config = contents["config"]
    num_special, vocab_size = (
        _parse_count(config, name, where) for name in ("default_num_special_tokens", "default_vocab_size")
    )
    listed = _parse_tekken_special_tokens(contents, where)
    num_tokens = vocab_size - num_special
    if len(listed) > num_special or not 0 <= num_tokens <= len(contents["vocab"]):
        raise TokenizerFormatError(
            f"{where}: its config has default_vocab_size={vocab_size} and default_num_special_tokens="
            f"{num_special}, and it lists {len(contents['vocab'])} tokens and {len(listed)} special ones"
        )
    special = listed | {f"<SPECIAL_{id_}>": id_ for id_ in range(len(listed), num_special)}
    tokens: list[bytes] = []
    for i, entry in enumerate(contents["vocab"][:num_tokens]):
        if not isinstance(entry, dict) or entry.get("rank") != i:
            raise TokenizerFormatError(f"{where}: token {i} of 'vocab' has not the rank {i}: {entry!r:.80}")
        tokens.append(_decode_token(entry.get("token_bytes"), f"{where}, token {i} of 'vocab'"))
    ranks = dict(zip(tokens, range(num_special, vocab_size), strict=True))
    found = JsonRanks(ranks, config.get("pattern", ""), special, _TEKKEN_ROLES)
    return _check_ranks(found, num_tokens, where)


def _parse_tekken_special_tokens(contents: Mapping[str, Any], where: str) -> dict[str, int]:
    listed = contents.get("special_tokens")
    if listed is None:
        version = contents["config"].get("version")
        number = re.match("v([0-9]{1,4})", str(version))
        if number is None or int(number[1]) > _LAST_VERSION_WITHOUT_LIST:
            raise TokenizerFormatError(
                f"{where}: lists no special tokens, and its version is {version!r}; only those up to "
                f"v{_LAST_VERSION_WITHOUT_LIST} need no list"
            )
        return {name: id_ for id_, name in enumerate(_TEKKEN_SPECIAL)}
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise TokenizerFormatError(
            f"{where}: 'special_tokens' is {listed!r:.60}; a list of objects is expected"
        )
    special: dict[str, int] = {}
    for entry in listed:
        name = entry.get("token_str")
        if not isinstance(name, str) or name in special:
            raise TokenizerFormatError(f"{where}: the special token {name!r} is no name, or is listed twice")
        special[name] = entry.get("rank")
    return special


def _check_ranks(found: JsonRanks, num_tokens: int, where: str) -> JsonRanks:
    if len(found.ranks) != num_tokens:
        raise TokenizerFormatError(f"{where}: {num_tokens - len(found.ranks)} tokens are there twice")
    if not isinstance(found.pattern, str) or not found.pattern:
        raise TokenizerFormatError(
            f"{where}: the split pattern is {found.pattern!r}; an expression is expected"
        )
    return found._replace(pattern=find_pattern_name(found.pattern) or found.pattern)


def _decode_token(encoded: Any, where: str) -> bytes:
    try:
        token = base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        token = b""
    if not token:
        raise TokenizerFormatError(f"{where}: a token in base64 is expected, not {str(encoded)[:60]!r}")
    return token


def _parse_count(config: Mapping[str, Any], name: str, where: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ID + 1:
        raise TokenizerFormatError(
            f"{where}: its config has {name}={value!r}; a number of tokens is expected"
        )
    return value


_END_OF_TEXT = "<|endoftext|>"
_FIM_TOKENS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")


class Encoding(NamedTuple):
    """What a published encoding has besides its ranks.

    Attributes:
        pattern: the split pattern.
        special_tokens: name to id.
        num_ranks: how many ranks there are.
    """

    pattern: str
    special_tokens: Mapping[str, int]
    num_ranks: int


def _build_harmony_special_tokens() -> dict[str, int]:
    named = {
        "<|startoftext|>": 199998,
        _END_OF_TEXT: 199999,
        "<|return|>": 200002,
        "<|constrain|>": 200003,
        "<|channel|>": 200005,
        "<|start|>": 200006,
        "<|end|>": 200007,
        "<|message|>": 200008,
        "<|call|>": 200012,
        "<|endofprompt|>": 200018,
    }
    used_ids = set(named.values())
    return named | {f"<|reserved_{i}|>": i for i in range(200000, 201088) if i not in used_ids}


_GPT2 = Encoding("gpt2", {_END_OF_TEXT: 50256}, 50256)
ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "gpt2": _GPT2,
        "r50k_base": _GPT2,
        "p50k_base": Encoding("gpt2", {_END_OF_TEXT: 50256}, 50280),
        "p50k_edit": Encoding(
            "gpt2", {_END_OF_TEXT: 50256} | {name: 50281 + i for i, name in enumerate(_FIM_TOKENS)}, 50280
        ),
        "cl100k_base": Encoding(
            "cl100k",
            {_END_OF_TEXT: 100257, "<|endofprompt|>": 100276}
            | {name: 100258 + i for i, name in enumerate(_FIM_TOKENS)},
            100256,
        ),
        "o200k_base": Encoding("o200k", {_END_OF_TEXT: 199999, "<|endofprompt|>": 200018}, 199998),
        "o200k_harmony": Encoding("o200k", _build_harmony_special_tokens(), 199998),
    }
)
"""The published encodings, by tiktoken's names."""


def read_tiktoken(
    path: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
) -> ByteLevelBPE:
    r"""Read a file of tiktoken's ranks: in each line the bytes of a token in base64, a blank, and its rank.

    The file holds neither the split pattern nor the special tokens. They are those of the published encoding
    that it is named after (`cl100k_base.tiktoken`), or of `encoding`, or what you say.

    Lines may stand in any order and end in `\r\n`; empty ones are passed over.

    Also reads two JSON files with ranks, pattern and special tokens: Mistral's `tekken.json`, whose ids begin
    with the special tokens, and `claude.json` and others for tiktoken's JavaScript ports. (Anthropic's
    package normalizes texts to NFKC first: pass `unicodedata.normalize("NFKC", text)`.)

    Args:
        path: the file.
        encoding: the name of a published encoding: a key of `tokjax.formats.tiktoken_files.ENCODINGS`.
        pattern: as in `byte_level_bpe`; instead of the encoding's.
        special_tokens: name to id; instead of the encoding's.
        normalizer: as in `byte_level_bpe`.
        bos_token: which special token begins a text, if any.
        eos_token: which special token ends a text; `<|endoftext|>` unless said otherwise, where there is one.
        pad_token: which special token pads a batch, if any. A `tekken.json` has `<s>`, `</s>` and `<pad>`.

    Returns:
        A tokenizer that puts nothing around texts, as tiktoken does; `with_template` changes that.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidArgumentError: the pattern is not known, or an option makes no sense.
        TokenizerFormatError: a line is no token and rank, a rank or token is there twice, or JSON lacks some.
    """
    source = as_path(path)
    data = read_bytes(source)
    roles_in_file: Mapping[Role, str] = {"eos": _END_OF_TEXT}
    if data.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        if encoding is not None:
            raise InvalidArgumentError(f"{source}: holds a pattern and special tokens; leave encoding= out")
        found = parse_json_ranks(parse_json_object(data, str(source)), str(source))
        ranks, roles_in_file = found.ranks, found.roles
        preset: Encoding | None = Encoding(found.pattern, found.special_tokens, len(ranks))
    else:
        preset = _find_encoding(source, encoding, pattern)
        ranks = parse_ranks(data, str(source))
    if preset is not None and pattern is None and len(ranks) != preset.num_ranks:
        raise TokenizerFormatError(
            f"{source}: holds {len(ranks)} ranks, and the encoding {encoding or source.stem!r} has "
            f"{preset.num_ranks}; if it is another one, pass pattern= and special_tokens="
        )
    if special_tokens is None:
        special_tokens = preset.special_tokens if preset else {}
    roles = resolve_roles(
        special_tokens, {"bos": bos_token, "eos": eos_token, "pad": pad_token}, roles_in_file
    )
    with as_format_errors(str(source)):
        return make_byte_level_bpe(
            make_vocabulary(ranks, special_tokens, roles, EMPTY_TEMPLATE),
            pattern or (preset.pattern if preset else ""),
            normalizer,
        )


def parse_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """The ranks of a file's contents; `where` they are, for errors."""
    ranks: dict[bytes, int] = {}
    owner: dict[int, bytes] = {}
    for number, line in enumerate(data.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1):
        if not line.strip():
            continue
        token, rank = _parse_token_and_rank(line, f"{where}, line {number}")
        if token in ranks:
            raise TokenizerFormatError(f"{where}, line {number}: the token {token!r} stands twice")
        if rank in owner:
            raise TokenizerFormatError(
                f"{where}, line {number}: rank {rank} is given to both {owner[rank]!r} and {token!r}"
            )
        ranks[token] = rank
        owner[rank] = token
    check_vocab_size(len(ranks), where)
    return ranks


def is_rank_file(beginning: bytes) -> bool:
    """Whether a file that begins like this is one of ranks."""
    line, ended, _ = beginning.partition(b"\n")
    try:
        _parse_token_and_rank(line, "")
    except TokenizerFormatError:
        return False
    return bool(ended)


def _parse_token_and_rank(line: bytes, where: str) -> tuple[bytes, int]:
    parts = line.split()
    try:
        encoded, number = parts
        token, rank = base64.b64decode(encoded, validate=True), int(number)
    except (ValueError, binascii.Error):
        raise TokenizerFormatError(
            f"{where}: a token in base64, a blank and its rank are expected, not {line[:60]!r}"
        ) from None
    if not token or not 0 <= rank <= MAX_ID:
        raise TokenizerFormatError(
            f"{where}: the token {token!r} has rank {rank}; tokens have at least one byte, and ranks go from "
            f"0 to {MAX_ID}"
        )
    return token, rank


def _find_encoding(source: Path, name: str | None, pattern: str | None) -> Encoding | None:
    if name is not None and name not in ENCODINGS:
        raise InvalidArgumentError(f"encoding must be one of {', '.join(ENCODINGS)}, not {name!r}")
    preset = ENCODINGS.get(name or source.stem)
    if preset is None and pattern is None:
        raise InvalidArgumentError(
            f"{source}: a file of ranks does not say how text is split, and {source.stem!r} is no published "
            f"encoding ({', '.join(ENCODINGS)}); pass encoding=NAME, or pattern= and special_tokens="
        )
    return preset
