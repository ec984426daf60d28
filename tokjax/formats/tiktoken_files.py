"""tiktoken's rank files, Mistral's `tekken.json`, and published encodings.

A rank file has one line per token: its bytes in base64, and its rank. The rank is the id, and the order in
which tokens merge. The split pattern and the special tokens are not in the file; `ENCODINGS` has them for the
published files. A `tekken.json` contains all three.

    bytes   rank file    tekken.json, 'vocab'
    "!"     IQ== 0       {"rank": 0, "token_bytes": "IQ=="}
    '"'     Ig== 1       {"rank": 1, "token_bytes": "Ig=="}
    ids     0, 1         rank + number of special tokens
"""

from __future__ import annotations

import base64
import binascii
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax._util.atomic_files import check_path
from tokjax._util.checks import check_choice
from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import MAX_ID, make_vocabulary
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.tokenizer_files import (
    BYTE_ORDER_MARK,
    parse_json_object,
    read_bytes,
    resolve_roles,
)
from tokjax.models.byte_bpe import ByteLevelBPE, Normalizer, make_byte_level_bpe
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.pretokenize.patterns import find_pattern_name

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.pretokenize.patterns import Pattern

_END_OF_TEXT = "<|endoftext|>"
_FIM_TOKENS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_TEKKEN_ROLES: dict[Role, str] = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
_TEKKEN_SPECIAL = [
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
]
"""Special tokens of a `tekken.json` without a list of them, which is valid up to version 7."""
_LAST_VERSION_WITHOUT_LIST = 7
_NUM_SPECIAL = 256
"""Number of special tokens of Llama 3 and Kimi K2, named and reserved ones."""
_NUM_LLAMA4_SPECIAL = 2048
_OPENAI_ROLES: dict[Role, str] = {"eos": _END_OF_TEXT}


class Encoding(NamedTuple):
    """Published encoding, without its ranks.

    Attributes:
        pattern: name of the split pattern.
        special_tokens: name to id.
        num_ranks: number of ranks in the published file.
        roles: role to the name of the special token that has it.
        in_tiktoken: whether the `tiktoken` library has the encoding, so that `load_tokenizer` can load it by
            its name. For the others, a rank file is required.
    """

    pattern: Pattern
    special_tokens: Mapping[str, int]
    num_ranks: int
    roles: Mapping[Role, str] = _OPENAI_ROLES
    in_tiktoken: bool = False

    @property
    def vocab_size(self) -> int:
        """The largest id plus one, as `vocab_size` returns it for the tokenizer."""
        ids = self.special_tokens.values()
        num_ids = self.num_ranks + sum(id_ < self.num_ranks for id_ in ids)  # p50k_base: one among the ranks
        return max(num_ids, *(id_ + 1 for id_ in ids))


def _build_harmony_special_tokens() -> dict[str, int]:
    named_tokens = {
        "<|startoftext|>": 199998,
        _END_OF_TEXT: 199999,
        "<|return|>": 200002,
        "<|constrain|>": 200003,
        "<|channel|>": 200005,
        "<|start|>": 200006,
        "<|end|>": 200007,
        "<|message|>": 200008,
        "<|call|>": 200012,
        "<|endofprompt|>": 200018,  # `<|reserved_200018|>` is a second name
    }
    return _reserve(named_tokens, range(200000, 201088), "<|reserved_{}|>") | {"<|reserved_200018|>": 200018}


def _reserve(named_tokens: Mapping[str, int], ids: Iterable[int], name: str) -> dict[str, int]:
    """Returns named special tokens, and those that are named after the other ids."""
    unused_ids = set(ids).difference(named_tokens.values())
    return {**named_tokens, **{name.format(id_): id_ for id_ in unused_ids}}


def _number(names: Iterable[str], first_id: int) -> dict[str, int]:
    """Returns name to id of special tokens with consecutive ids."""
    return {name: id_ for id_, name in enumerate(names, first_id)}


def _make_llama3(named_tokens: str, pad_token: str | None) -> Encoding:
    """Returns Llama 3's encoding.

    Args:
        named_tokens: the first special tokens, separated by spaces, without `<|` and `|>`. A number is that
            of a reserved token. The reserved tokens with higher numbers follow, up to 256 special tokens.
        pad_token: special token that pads a batch, if any.
    """
    names = [f"reserved_special_token_{name}" if name.isdigit() else name for name in named_tokens.split()]
    first = 1 + max(int(name) for name in named_tokens.split() if name.isdigit())
    names += [f"reserved_special_token_{first + i}" for i in range(_NUM_SPECIAL - len(names))]
    roles: dict[Role, str] = {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>"}
    if pad_token is not None:
        roles["pad"] = pad_token
    return Encoding("llama3", _number([f"<|{name}|>" for name in names], 128_000), 128_000, roles)


def _make_llama4() -> Encoding:
    """Returns Llama 4's encoding. Each group of special tokens has reserved ones among them."""

    def reserve(group: str, numbers: Iterable[int]) -> list[str]:
        return [f"{group}reserved_special_token_{i}" for i in numbers]

    names = [
        *("begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix"),
        *("header_start", "header_end", "eom", "eot", "step"),
        *reserve("text_post_train_", range(6)),
        *("python_start", "python_end", "finetune_right_pad"),
        *reserve("text_post_train_", range(8, 69)),
        *("image_start", "image_end", *reserve("vision_", range(2))),
        *("tile_x_separator", "tile_y_separator", *reserve("vision_", range(2, 6))),
        *("image", *reserve("vision_", [6]), "patch", *reserve("vision_", range(7, 1048))),
        *reserve("reasoning_", range(8)),
        *("reasoning_thinking_start", "reasoning_thinking_end"),
    ]
    names += reserve("", range(_NUM_LLAMA4_SPECIAL - len(names)))
    roles: dict[Role, str] = {
        "bos": "<|begin_of_text|>",
        "eos": "<|end_of_text|>",
        "pad": "<|finetune_right_pad|>",
    }
    return Encoding("o200k", _number([f"<|{name}|>" for name in names], 200_000), 200_000, roles)


def _make_kimi_k2() -> Encoding:
    named_tokens = {
        "[BOS]": 163584,
        "[EOS]": 163585,
        "<|im_end|>": 163586,
        "<|im_user|>": 163587,
        "<|im_assistant|>": 163588,
        "<|start_header_id|>": 163590,
        "<|end_header_id|>": 163591,
        "[EOT]": 163593,
        "<|im_system|>": 163594,
        "<|tool_calls_section_begin|>": 163595,
        "<|tool_calls_section_end|>": 163596,
        "<|tool_call_begin|>": 163597,
        "<|tool_call_argument_begin|>": 163598,
        "<|tool_call_end|>": 163599,
        "<|im_middle|>": 163601,
        "[UNK]": 163838,
        "[PAD]": 163839,
    }
    num_ranks = 163584
    ids = range(num_ranks, num_ranks + _NUM_SPECIAL)
    roles: dict[Role, str] = {"bos": "[BOS]", "eos": "[EOS]", "pad": "[PAD]", "unk": "[UNK]"}
    return Encoding("kimi_k2", _reserve(named_tokens, ids, "<|reserved_token_{}|>"), num_ranks, roles)


_GPT2 = Encoding("gpt2", {_END_OF_TEXT: 50256}, 50256, in_tiktoken=True)
_QWEN_TOKENS = (_END_OF_TEXT, "<|im_start|>", "<|im_end|>")
_END_AND_PAD_ROLES: dict[Role, str] = {"eos": _END_OF_TEXT, "pad": _END_OF_TEXT}
_GLM4_TOKENS = (
    *(_END_OF_TEXT, "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"),
)
ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "gpt2": _GPT2,
        "r50k_base": _GPT2,
        "p50k_base": Encoding("gpt2", {_END_OF_TEXT: 50256}, 50280, in_tiktoken=True),
        "p50k_edit": Encoding(
            "gpt2",
            {_END_OF_TEXT: 50256} | {name: 50281 + i for i, name in enumerate(_FIM_TOKENS)},
            50280,
            in_tiktoken=True,
        ),
        "cl100k_base": Encoding(
            "cl100k",
            {_END_OF_TEXT: 100257, "<|endofprompt|>": 100276}
            | {name: 100258 + i for i, name in enumerate(_FIM_TOKENS)},
            100256,
            in_tiktoken=True,
        ),
        "o200k_base": Encoding(
            "o200k", {_END_OF_TEXT: 199999, "<|endofprompt|>": 200018}, 199998, in_tiktoken=True
        ),
        "o200k_harmony": Encoding("o200k", _build_harmony_special_tokens(), 199998, in_tiktoken=True),
        "llama3": _make_llama3(
            "begin_of_text end_of_text 0 1 2 3 start_header_id end_header_id 4 eot_id", None
        ),
        "llama3_1": _make_llama3(
            "begin_of_text end_of_text 0 1 finetune_right_pad_id 2 start_header_id end_header_id eom_id "
            "eot_id python_tag",
            "<|finetune_right_pad_id|>",
        ),
        "llama4": _make_llama4(),
        "qwen": Encoding(
            "qwen2",
            _number([*_QWEN_TOKENS, *(f"<|extra_{i}|>" for i in range(205))], 151_643),
            151_643,
            _END_AND_PAD_ROLES,
        ),
        "qwen2": Encoding("qwen2", _number(_QWEN_TOKENS, 151_643), 151_643, _END_AND_PAD_ROLES),
        "glm4": Encoding("llama3", _number(_GLM4_TOKENS, 151_329), 151_329, _END_AND_PAD_ROLES),
        "kimi_k2": _make_kimi_k2(),
    }
)
"""Published encodings: OpenAI's by their names in tiktoken, and those of other models with rank files.

`list(ENCODINGS)` lists the names, and `ENCODINGS["cl100k_base"]` describes an encoding. The table has no
ranks: `load_tokenizer` loads them by the name, or from a rank file with this name or with `encoding=`.
"""


def describe_missing_ranks(name: str) -> str:
    """Returns advice for an encoding of `ENCODINGS` whose ranks the `tiktoken` library does not have."""
    return (
        f"{name!r} is an encoding that tiktoken lacks: pass the path of its rank file, and encoding={name!r}"
    )


def read_tiktoken(
    path: str | os.PathLike[str],
    roles: Mapping[Role, str | None],
    *,
    encoding: str | None = None,
    pattern: Pattern | None = None,
    special_tokens: Mapping[str, int] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
) -> ByteLevelBPE:
    r"""Reads a rank file, or Mistral's `tekken.json`.

    Each line of a rank file has the bytes of a token in base64, a space, and the rank of the token. The file
    contains neither the split pattern nor the special tokens. They are taken from the published encoding that
    the file is named after (`cl100k_base.tiktoken`), or from `encoding`, or from `pattern` and
    `special_tokens`. Lines may be in any order and may end in `\r\n`. Empty lines are ignored.

    A `tekken.json` contains the ranks, the pattern and the special tokens, which have the lowest ids.

    Args:
        path: path of the file.
        roles: role to the name of a special token. Without a name, it is that of the encoding; `<s>`, `</s>`
            and `<pad>` of a `tekken.json`; and otherwise `<|endoftext|>` for EOS, if it is a special token.
        encoding: name of a published encoding: a key of `tokjax.formats.ENCODINGS`. A `tekken.json` takes
            none.
        pattern: split pattern, as in `byte_level_bpe`; overrides that of the encoding.
        special_tokens: name to id; overrides those of the encoding.
        normalizer: normalization of texts, as in `byte_level_bpe`.

    Returns:
        A tokenizer that inserts no special tokens into texts, like tiktoken. Use `with_template` to insert
        some.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: the split pattern cannot be determined, or an option is invalid.
        TokenizerFormatError: a line is not a token and a rank, a token or rank is a duplicate, or a field of
            a JSON file is missing or invalid.
    """
    source = check_path(path)
    data = read_bytes(source)
    preset: Encoding | None
    if data.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        contents = parse_json_object(data, str(source))
        if encoding is not None:
            raise InvalidArgumentError(
                f"{source}: contains a pattern and special tokens; leave out encoding="
            )
        ranks, preset = _parse_tekken(contents, str(source))
    else:
        preset = _find_encoding(source, encoding, pattern)
        ranks = _parse_ranks(data, str(source))
    if preset is not None and pattern is None and len(ranks) != preset.num_ranks:
        raise TokenizerFormatError(
            f"{source}: has {len(ranks)} ranks, but the encoding {encoding or source.stem!r} has "
            f"{preset.num_ranks}; if it is a different encoding, pass pattern= and special_tokens="
        )
    if special_tokens is None:
        special_tokens = preset.special_tokens if preset else {}
    all_roles = resolve_roles(special_tokens, roles, preset.roles if preset else _OPENAI_ROLES)
    with as_format_errors(str(source)):
        return make_byte_level_bpe(
            make_vocabulary(ranks, special_tokens, all_roles, EMPTY_TEMPLATE),
            pattern or (preset.pattern if preset else ""),
            normalizer,
        )


def _find_encoding(source: Path, name: str | None, pattern: Pattern | None) -> Encoding | None:
    """Returns the published encoding of a rank file, found by argument or file name.

    Returns `None` if the file is not named after one, but the caller passes a pattern.
    """
    check_choice("encoding", name, (*ENCODINGS, None))
    preset = ENCODINGS.get(name or source.stem)
    if preset is None and pattern is None:
        raise InvalidArgumentError(
            f"{source}: a rank file has no split pattern, and {source.stem!r} is not a published "
            f"encoding ({', '.join(ENCODINGS)}); pass encoding=NAME, or pattern= and special_tokens="
        )
    return preset


def _parse_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """Parses the contents of a rank file.

    Args:
        data: contents of the file.
        where: name of the file, for errors.

    Returns:
        Token bytes to rank.
    """
    ranks: dict[bytes, int] = {}
    owner: dict[int, bytes] = {}
    for number, line in enumerate(data.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1):
        if not line.strip():
            continue
        token, rank = _parse_token_and_rank(line, f"{where}, line {number}")
        if token in ranks:
            raise TokenizerFormatError(f"{where}, line {number}: duplicate token {token!r}")
        if rank in owner:
            raise TokenizerFormatError(
                f"{where}, line {number}: rank {rank} is given to both {owner[rank]!r} and {token!r}"
            )
        ranks[token] = rank
        owner[rank] = token
    check_vocab_size(len(ranks), where)
    return ranks


def is_rank_file(header: bytes) -> bool:
    """Returns whether a file begins with a line of a base64 token and a rank."""
    line, line_end, _ = header.partition(b"\n")
    try:
        _parse_token_and_rank(line, "")
    except TokenizerFormatError:
        return False
    return bool(line_end)


def _parse_token_and_rank(line: bytes, where: str) -> tuple[bytes, int]:
    parts = line.split()
    try:
        encoded, number = parts
        # Whisper's file has a token without bytes, written as `=`.
        token, rank = b"" if encoded == b"=" else base64.b64decode(encoded, validate=True), int(number)
    except (ValueError, binascii.Error):
        raise TokenizerFormatError(
            f"{where}: expected a base64 token, a space and a rank, got {line[:60]!r}"
        ) from None
    if not 0 <= rank <= MAX_ID:
        raise TokenizerFormatError(
            f"{where}: the token {token!r} has rank {rank}; ranks must be from 0 to {MAX_ID}"
        )
    return token, rank


def is_tekken(contents: Mapping[str, Any]) -> bool:
    """Returns whether a JSON object is a `tekken.json`."""
    return isinstance(contents.get("vocab"), list) and isinstance(contents.get("config"), dict)


def _parse_tekken(contents: Mapping[str, Any], where: str) -> tuple[dict[bytes, int], Encoding]:
    """Parses a `tekken.json`: token bytes to id, and the pattern and special tokens.

    The lowest ids are those of special tokens. Special tokens without a name are called `<SPECIAL_id>`. Only
    the first `default_vocab_size - default_num_special_tokens` entries of `vocab` are tokens.

    Args:
        contents: parsed JSON object.
        where: name of the file, for errors.
    """
    if not is_tekken(contents):
        raise TokenizerFormatError(
            f"{where}: a JSON object without ranks: expected 'vocab' and 'config', as in Mistral's "
            f"tekken.json; its keys are {list(contents)[:10]}"
        )
    config = contents["config"]
    num_special, vocab_size = (
        _parse_count(config, name, where) for name in ("default_num_special_tokens", "default_vocab_size")
    )
    listed = _parse_tekken_special_tokens(contents, where)
    num_tokens = vocab_size - num_special
    if len(listed) > num_special or not 0 <= num_tokens <= len(contents["vocab"]):
        raise TokenizerFormatError(
            f"{where}: its config has default_vocab_size={vocab_size} and default_num_special_tokens="
            f"{num_special}, but it lists {len(contents['vocab'])} tokens and {len(listed)} special tokens"
        )
    special = listed | {f"<SPECIAL_{id_}>": id_ for id_ in range(len(listed), num_special)}
    ranks: dict[bytes, int] = {}
    for i, entry in enumerate(contents["vocab"][:num_tokens]):
        if not isinstance(entry, dict) or entry.get("rank") != i:
            raise TokenizerFormatError(f"{where}: token {i} of 'vocab' must have the rank {i}: {entry!r:.80}")
        token = _decode_token(entry.get("token_bytes"), f"{where}, token {i} of 'vocab'")
        if ranks.setdefault(token, i + num_special) != i + num_special:
            raise TokenizerFormatError(f"{where}: token {i} of 'vocab' is a duplicate: {token!r:.80}")
    pattern = config.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        raise TokenizerFormatError(
            f"{where}: the split pattern is {pattern!r}; expected a regular expression"
        )
    return ranks, Encoding(find_pattern_name(pattern) or pattern, special, len(ranks), _TEKKEN_ROLES)


def _parse_tekken_special_tokens(contents: Mapping[str, Any], where: str) -> dict[str, int]:
    """Returns name to id of the special tokens that have a name."""
    listed = contents.get("special_tokens")
    if listed is None:
        version = contents["config"].get("version")
        number = re.match("v([0-9]{1,4})", str(version))
        if number is None or int(number[1]) > _LAST_VERSION_WITHOUT_LIST:
            raise TokenizerFormatError(
                f"{where}: has no list of special tokens, and its version is {version!r}; the list is "
                f"optional only up to v{_LAST_VERSION_WITHOUT_LIST}"
            )
        return {name: id_ for id_, name in enumerate(_TEKKEN_SPECIAL)}
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise TokenizerFormatError(f"{where}: 'special_tokens' is {listed!r:.60}; expected a list of objects")
    special: dict[str, int] = {}
    for entry in listed:
        name = entry.get("token_str")
        if not isinstance(name, str) or name in special:
            raise TokenizerFormatError(
                f"{where}: the special token {name!r} is not a string, or is a duplicate"
            )
        special[name] = entry.get("rank")
    return special


def _decode_token(encoded: Any, where: str) -> bytes:
    try:
        token = base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        token = b""
    if not token:
        raise TokenizerFormatError(f"{where}: expected a base64 token, got {str(encoded)[:60]!r}")
    return token


def _parse_count(config: Mapping[str, Any], name: str, where: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ID + 1:
        raise TokenizerFormatError(f"{where}: its config has {name}={value!r}; expected a number of tokens")
    return value
