"""tiktoken's rank files and encodings, Mistral's `tekken.json`, and published encodings.

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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax._util.checks import check_choice
from tokjax._util.imports import import_optional
from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import MAX_ID, make_vocabulary, select_roles
from tokjax.errors import (
    Hint,
    InvalidArgumentError,
    TokenizerFormatError,
    TokenizerNotFoundError,
    UnsupportedTokenizerError,
)
from tokjax.formats.tokenizer_files import BYTE_ORDER_MARK, parse_json_object
from tokjax.models.byte_bpe import ByteLevelBPE, Normalizer, make_byte_level_bpe
from tokjax.models.format_errors import as_format_errors, check_vocab_size, read_bytes
from tokjax.models.roles_and_templates import replace_roles
from tokjax.pretokenize.patterns import find_pattern_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.pretokenize.patterns import Pattern

_END_OF_TEXT = "<|endoftext|>"
_TEKKEN_ROLES: dict[Role, str] = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
_TEKKEN_SPECIAL = [
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
]
"""Special tokens of a `tekken.json` without a list of them."""
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


def _make(
    pattern: str, num_ranks: int, names: str, reserved: str = "", roles: Mapping[Role, str] = _OPENAI_ROLES
) -> Encoding:
    """Makes an encoding whose special tokens have the ids after the ranks.

    Args:
        pattern: name of the split pattern.
        num_ranks: number of ranks.
        names: names of the special tokens, separated by spaces. `x-2:5` are the reserved tokens of the group
            `x`, which may be empty, with the numbers 2, 3 and 4.
        reserved: name of reserved tokens, with `{group}` and `{number}`, or `{id}`.
        roles: role to the name of the special token that has it.
    """
    special: dict[str, int] = {}
    for name in names.split():
        group, dash, numbers = name.rpartition("-")
        for number in range(*map(int, numbers.split(":"))) if dash else [0]:
            id_ = num_ranks + len(special)
            special[reserved.format(group=group, number=number, id=id_) if dash else name] = id_
    return Encoding(pattern, special, num_ranks, roles)


_GPT2 = Encoding("gpt2", {_END_OF_TEXT: 50256}, 50256, in_tiktoken=True)
_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_HARMONY = _make(
    "o200k",
    199998,
    "<|startoftext|> <|endoftext|> -0:2 <|return|> <|constrain|> -2:3 <|channel|> <|start|> <|end|> "
    "<|message|> -3:6 <|call|> -6:11 <|endofprompt|> -11:1080",
    "<|reserved_{id}|>",
)
_QWEN_TOKENS = "<|endoftext|> <|im_start|> <|im_end|>"
_LLAMA_ROLES: dict[Role, str] = {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>"}
_LLAMA_RESERVED = "<|{group}reserved_special_token_{number}|>"
_END_AND_PAD: dict[Role, str] = {"eos": _END_OF_TEXT, "pad": _END_OF_TEXT}
ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "gpt2": _GPT2,
        "r50k_base": _GPT2,
        "p50k_base": _GPT2._replace(num_ranks=50280),
        "p50k_edit": _GPT2._replace(
            special_tokens={_END_OF_TEXT: 50256} | {name: 50281 + i for i, name in enumerate(_FIM)},
            num_ranks=50280,
        ),
        "cl100k_base": Encoding(
            "cl100k",
            {_END_OF_TEXT: 100257, "<|endofprompt|>": 100276}
            | {name: 100258 + i for i, name in enumerate(_FIM)},
            100256,
            in_tiktoken=True,
        ),
        "o200k_base": Encoding(
            "o200k", {_END_OF_TEXT: 199999, "<|endofprompt|>": 200018}, 199998, in_tiktoken=True
        ),
        "o200k_harmony": _HARMONY._replace(
            # The token of a prompt's end has a second name.
            special_tokens={**_HARMONY.special_tokens, "<|reserved_200018|>": 200018},
            in_tiktoken=True,
        ),
        "llama3": _make(
            "llama3",
            128_000,
            "<|begin_of_text|> <|end_of_text|> -0:4 <|start_header_id|> <|end_header_id|> -4:5 <|eot_id|> "
            "-5:251",
            _LLAMA_RESERVED,
            _LLAMA_ROLES,
        ),
        "llama3_1": _make(
            "llama3",
            128_000,
            "<|begin_of_text|> <|end_of_text|> -0:2 <|finetune_right_pad_id|> -2:3 <|start_header_id|> "
            "<|end_header_id|> <|eom_id|> <|eot_id|> <|python_tag|> -3:248",
            _LLAMA_RESERVED,
            {**_LLAMA_ROLES, "pad": "<|finetune_right_pad_id|>"},
        ),
        "llama4": _make(
            "o200k",
            200_000,
            "<|begin_of_text|> <|end_of_text|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|header_start|> "
            "<|header_end|> <|eom|> <|eot|> <|step|> text_post_train_-0:6 <|python_start|> <|python_end|> "
            "<|finetune_right_pad|> text_post_train_-8:69 <|image_start|> <|image_end|> vision_-0:2 "
            "<|tile_x_separator|> <|tile_y_separator|> vision_-2:6 <|image|> vision_-6:7 <|patch|> "
            "vision_-7:1048 reasoning_-0:8 <|reasoning_thinking_start|> <|reasoning_thinking_end|> -0:904",
            _LLAMA_RESERVED,
            {**_LLAMA_ROLES, "pad": "<|finetune_right_pad|>"},
        ),
        "qwen": _make("qwen2", 151_643, f"{_QWEN_TOKENS} -0:205", "<|extra_{number}|>", _END_AND_PAD),
        "qwen2": _make("qwen2", 151_643, _QWEN_TOKENS, "", _END_AND_PAD),
        "glm4": _make(
            "llama3",
            151_329,
            "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> "
            "<|observation|> <|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|>",
            "",
            _END_AND_PAD,
        ),
        "kimi_k2": _make(
            "kimi_k2",
            163_584,
            "[BOS] [EOS] <|im_end|> <|im_user|> <|im_assistant|> -0:1 <|start_header_id|> <|end_header_id|> "
            "-1:2 [EOT] <|im_system|> <|tool_calls_section_begin|> <|tool_calls_section_end|> "
            "<|tool_call_begin|> <|tool_call_argument_begin|> <|tool_call_end|> -2:3 <|im_middle|> -3:239 "
            "[UNK] [PAD]",
            "<|reserved_token_{id}|>",
            {"bos": "[BOS]", "eos": "[EOS]", "pad": "[PAD]", "unk": "[UNK]"},
        ),
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
    source: Path,
    _: Mapping[Role, str | None],
    *,
    encoding: str | None = None,
    pattern: Pattern | None = None,
    special_tokens: Mapping[str, int] | None = None,
) -> ByteLevelBPE:
    r"""Reads a rank file, or Mistral's `tekken.json`.

    Each line of a rank file has the bytes of a token in base64, a space, and the rank of the token. The file
    contains neither the split pattern nor the special tokens. They are taken from the published encoding that
    the file is named after (`cl100k_base.tiktoken`), or from `encoding`, or from `pattern` and
    `special_tokens`. Lines may be in any order and may end in `\r\n`. Empty lines are ignored.

    A `tekken.json` contains the ranks, the pattern and the special tokens, which have the lowest ids.

    Args:
        source: path of the file.
        encoding: name of a published encoding: a key of `tokjax.formats.ENCODINGS`. A `tekken.json` takes
            none.
        pattern: split pattern, as in `byte_level_bpe`; overrides that of the encoding.
        special_tokens: name to id; overrides those of the encoding.

    Returns:
        A tokenizer that inserts no special tokens into texts, like tiktoken. Use `with_template` to insert
        some. It has the roles of the encoding, `<s>`, `</s>` and `<pad>` of a `tekken.json`, or otherwise
        `<|endoftext|>` as EOS, if that is a special token.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: the split pattern cannot be determined, or an option is invalid.
        TokenizerFormatError: a line is not a token and a rank, a token or rank is a duplicate, or a field of
            a JSON file is missing or invalid.
    """
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
    preset = preset or Encoding("", {}, len(ranks))
    if special_tokens is not None:
        preset = preset._replace(special_tokens=special_tokens)
    with as_format_errors(str(source)):
        return _make_tokenizer(ranks, preset._replace(pattern=pattern or preset.pattern), "auto")


def _make_tokenizer(
    ranks: Mapping[bytes, int], encoding: Encoding, normalizer: Normalizer | Literal["auto"] | None
) -> ByteLevelBPE:
    """Makes a tokenizer of ranks. Those roles of the encoding apply that its special tokens can have."""
    special = encoding.special_tokens
    vocabulary = make_vocabulary(ranks, special, select_roles(encoding.roles, {}, special), EMPTY_TEMPLATE)
    return make_byte_level_bpe(vocabulary, encoding.pattern, normalizer)


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
        if owner.setdefault(rank, token) != token:
            raise TokenizerFormatError(
                f"{where}, line {number}: rank {rank} is given to both {owner[rank]!r} and {token!r}"
            )
        ranks[token] = rank
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
    except ValueError:
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
        try:
            token, rank = base64.b64decode(entry["token_bytes"], validate=True), entry["rank"]
        except (KeyError, TypeError, ValueError):
            token, rank = b"", None
        if not token or rank != i:
            raise TokenizerFormatError(
                f"{where}: token {i} of 'vocab' must have the rank {i}, and bytes in base64: {entry!r:.80}"
            )
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
    if listed is None:  # up to version 7
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


def _parse_count(config: Mapping[str, Any], name: str, where: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ID + 1:
        raise TokenizerFormatError(f"{where}: its config has {name}={value!r}; expected a number of tokens")
    return value


def from_tiktoken(
    encoding: Any,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
) -> ByteLevelBPE:
    """Converts a `tiktoken.Encoding` to a built-in tokenizer with the same ids.

    Args:
        encoding: a `tiktoken.Encoding`. If an id has several names, such as `<|endofprompt|>` and
            `<|reserved_200018|>` in `o200k_harmony`, all are recognized in texts, and decoding gives the
            first.
        bos_token: special token in the role of BOS, or `None`.
        eos_token: special token in the role of EOS. `None` uses `<|endoftext|>` if the encoding has it.
        pad_token: special token that pads a batch, or `None`.

    Returns:
        A tokenizer that inserts no special tokens into texts, like tiktoken. Use `with_template` to insert
        some.

    Raises:
        InvalidArgumentError: the ranks do not define a byte-level BPE, or a role names a token that is not
            special.
        UnsupportedTokenizerError: `encoding` is not a `tiktoken.Encoding`.
    """
    try:
        ranks, pattern = encoding._mergeable_ranks, encoding._pat_str
        special: dict[str, int] = dict(encoding._special_tokens)
    except AttributeError:
        raise UnsupportedTokenizerError(
            f"from_tiktoken takes a tiktoken.Encoding, not {type(encoding).__name__}"
        ) from None
    preset = Encoding(find_pattern_name(pattern) or pattern, special, len(ranks))
    roles: dict[Role, str | None] = {"bos": bos_token, "eos": eos_token, "pad": pad_token}
    return replace_roles(_make_tokenizer(ranks, preset, None), roles)


def get_tiktoken_encoding(name: str) -> Any:
    """Returns a `tiktoken.Encoding`, whose ranks the library reads from its cache or downloads.

    Args:
        name: name of the encoding.

    Raises:
        InvalidArgumentError: `tiktoken` has no such encoding.
        MissingExtraError: `tiktoken` is not installed.
        TokenizerFormatError: the downloaded ranks are damaged.
        TokenizerNotFoundError: the ranks are not in the cache, and can't be downloaded.
    """
    tiktoken = import_optional("tiktoken", extra="tiktoken", purpose=f"loading the encoding {name!r}")
    try:
        return tiktoken.get_encoding(name)
    except ValueError as error:  # (not for an error of the network, which is an OSError)
        if name in tiktoken.list_encoding_names():
            raise TokenizerFormatError(f"the encoding {name!r}: {error}") from error
        advice = f"; {describe_missing_ranks(name)}" if name in ENCODINGS else ""
        message = f"tiktoken has no encoding {name!r}: {' '.join(str(error).split())}{advice}"
        raise InvalidArgumentError(message) from error
    except OSError as error:
        if error.errno is not None:
            raise  # an error of a disk, not of the network
        advice = (
            "set TIKTOKEN_CACHE_DIR to a directory in which tiktoken has stored them, or pass the path of a "
            "rank file"
        )
        raise TokenizerNotFoundError(
            f"the ranks of the encoding {name!r} are not in the cache of tiktoken, and can't be downloaded: "
            f"{type(error).__name__}: {error}",
            hint=Hint(advice, advice),
        ) from error
