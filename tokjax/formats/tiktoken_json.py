"""JSON files that hold a tokenizer of tiktoken's kind as a whole: ranks, split pattern and special tokens.

Two are known: Mistral's `tekken.json`, and that of tiktoken's JavaScript ports, such as `claude.json`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core.vocabulary import MAX_ID
from tokjax.errors import TokenizerFormatError
from tokjax.pretokenize.patterns import find_pattern_name

if TYPE_CHECKING:
    from collections.abc import Mapping

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
