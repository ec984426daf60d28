"""Messages as a template sees them: copied, checked, with special tokens in them hidden or rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core import protocol
from tokjax.core.ragged import Ragged
from tokjax.core.records import make_batch_without_copy
from tokjax.core.utf8 import count_bytes
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.special_tokens import reject_special, split_at_special

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokjax.core.records import TokenizationBatch, TokenizationResult


_PLAIN_TEXT = re.compile(r"[\w -]*")
_PLAIN_KEYS = ("role", "type")
_REASONING = ("reasoning_content", "thinking", "reasoning")
_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_MAX_DEPTH = 100

Message = dict[str, Any]


class HiddenTokens(NamedTuple):
    """Special tokens that are ordinary text where messages hold them.

    A template is rendered with each of their characters replaced by another one, so that they differ from the
    special tokens that the template itself writes.

    Attributes:
        names: the special tokens, each with its replacement, of the same length.
        restore_table: the code point of each of these characters, and the character that it replaces; for
            `str.translate`.
    """

    names: dict[str, str]
    restore_table: dict[int, str]

    def hide(self, text: str) -> str:
        """Returns the text with the special tokens replaced."""
        pieces = split_at_special(text, frozenset(self.names))
        return "".join(self.names.get(piece, piece) for piece in pieces)

    def restore(self, text: str) -> str:
        """Returns the text with the special tokens restored."""
        return text.translate(self.restore_table)

    def is_in(self, text: str) -> bool:
        """Whether a text has any of the replacements' characters."""
        return any(chr(point) in text for point in self.restore_table)


def hide_special_tokens(names: Iterable[str], texts: Sequence[str], others: Sequence[str]) -> HiddenTokens:
    """Makes a `HiddenTokens` of the special tokens in any of the texts.

    Args:
        names: the special tokens that are ordinary text in messages.
        texts: the texts of messages.
        others: more texts whose characters are not used.
    """
    found = [name for name in names if any(name in text for text in texts)]
    used_characters = set().union(*texts, *others) if found else set()
    free = (chr(point) for point in _PRIVATE_USE if chr(point) not in used_characters)
    replaced = {name: "".join(next(free) for _ in name) for name in found}
    pairs = [pair for name, hidden in replaced.items() for pair in zip(hidden, name, strict=True)]
    return HiddenTokens(replaced, {ord(hidden): character for hidden, character in pairs})


def copy_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Copies messages to lists and dicts, without the keys whose value is `None`.

    Raises:
        InvalidArgumentError: they are not a list of mappings, or hold something that is not JSON data.
    """
    untyped: object = messages
    if isinstance(untyped, (str, bytes)) or not isinstance(untyped, Sequence):
        raise InvalidArgumentError(f"messages must be a list of messages, not {messages!r:.80}")
    copied = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidArgumentError(f"messages[{i}] must map 'role' and 'content', not be {message!r:.80}")
        copied.append(
            copy_json({key: value for key, value in message.items() if value is not None}, f"messages[{i}]")
        )
    return copied


def add_reasoning_aliases(messages: list[Message]) -> list[Message]:
    """Returns the messages, with reasoning under both names that templates read.

    They are `reasoning_content` and `thinking`.
    """
    filled = []
    for message in messages:
        reasoning = next((message[key] for key in _REASONING if key in message), None)
        aliases = {} if reasoning is None else {"reasoning_content": reasoning}
        filled.append({"thinking": reasoning} | message | aliases if aliases else message)
    return filled


def copy_json(
    value: Any, where: str, change: Callable[[str, str], str] = lambda text, _: text, *, depth: int = 0
) -> Any:
    """Copies JSON data to lists and dicts.

    Args:
        value: what to copy.
        where: its name in errors.
        change: a function of a string and its name in errors; returns the string of the copy.
        depth: the number of mappings and lists that contain the value.

    Raises:
        InvalidArgumentError: something in it is not JSON data, or it is nested too deeply.
    """
    if isinstance(value, str):
        return change(str(value), where)
    if depth > _MAX_DEPTH:
        raise InvalidArgumentError(
            f"{where[:60]}... has mappings or lists nested more than {_MAX_DEPTH} deep"
        )
    if isinstance(value, Mapping):
        return {
            copy_json(key, f"a key of {where}", change, depth=depth + 1): copy_json(
                inner, f"{where}[{key!r}]", change, depth=depth + 1
            )
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [copy_json(inner, f"{where}[{i}]", change, depth=depth + 1) for i, inner in enumerate(value)]
    if isinstance(value, (int, float, NoneType)):
        return value
    advice = "; a function is passed as its JSON schema" if callable(value) else ""
    raise InvalidArgumentError(f"{where} is a {type(value).__name__}; it must be what JSON can hold{advice}")


def collect_strings(value: Any) -> list[str]:
    """Lists all strings in JSON data, with the keys of mappings."""
    found: list[str] = []
    copy_json(value, "", lambda text, _: found.append(text) or text)  # type: ignore[func-returns-value]
    return found


def check_strings(value: Any, where: str, disallowed: frozenset[str]) -> None:
    """Checks that strings hold no special tokens, and that roles and types are words.

    Raises:
        DisallowedSpecialTokenError: a string holds a special token.
        InvalidArgumentError: a role or a type has other characters than those of words.
    """

    def check(text: str, path: str) -> str:
        reject_special(text, disallowed, path)
        if path.endswith(tuple(f"[{key!r}]" for key in _PLAIN_KEYS)) and not _PLAIN_TEXT.fullmatch(text):
            raise InvalidArgumentError(f"{path} is {text!r}; roles and types are words")
        return text

    copy_json(value, where, check)


def neutralize(value: Any, replacements: dict[str, str], key: str = "") -> Any:
    """Copies messages, with texts that say nothing except in roles and types. Equal texts stay equal.

    Args:
        value: messages, or a part of one.
        replacements: the texts that were replaced so far, and their replacements.
        key: the key of the value, if it is that of a mapping.
    """
    if isinstance(value, str):
        is_unchanged = key in _PLAIN_KEYS or not value.strip()
        return value if is_unchanged else replacements.setdefault(value, f"x{len(replacements)}")
    if isinstance(value, dict):
        return {name: neutralize(inner, replacements, name) for name, inner in value.items()}
    return [neutralize(inner, replacements) for inner in value] if isinstance(value, list) else value


def encode_with_hidden(tokenizer: Any, text: str, hidden: HiddenTokens) -> TokenizationResult:
    """Encode a text whose special tokens are recognised, except those that are hidden.

    Args:
        tokenizer: any registered tokenizer.
        text: the text, in which the special tokens that are ordinary text are replaced.
        hidden: their replacements.

    Raises:
        InvalidArgumentError: the tokenizer can't encode them as ordinary text there.
    """
    names = frozenset(protocol.get_vocabulary(tokenizer).special)
    pieces = ["", *split_at_special(text, names), ""]
    parts: list[TokenizationBatch] = []
    recognised = ""
    texts: list[str] = []

    def encode(part: str, allowed: Any = "all") -> None:
        if part:
            texts.append(part)
            parts.append(
                protocol.encode_texts(
                    tokenizer,
                    [part],
                    add_special_tokens=False,
                    allowed_special=allowed,
                    disallowed_special=(),
                )
            )

    for special, ordinary, following in zip(pieces[:-1:2], pieces[1::2], pieces[2::2], strict=True):
        if not hidden.is_in(ordinary):
            recognised += special + ordinary
            continue
        encode(recognised)
        recognised, ordinary = "", hidden.restore(ordinary)  # noqa: PLW2901
        if not _is_separate(tokenizer, "x \n", following):
            raise _make_error(tokenizer, hidden, following)
        if all(_is_separate(tokenizer, special, start) for start in ("x", " x", "\nx")):
            encode(special)
            encode(ordinary, ())
        elif special not in ordinary:
            encode(special + ordinary, {special})
        else:
            raise _make_error(tokenizer, hidden, special)
    encode(recognised)
    return _concatenate_results(tokenizer, texts, parts)


def _is_separate(tokenizer: Any, first: str, second: str) -> bool:
    """Whether two texts, one of which is a special token, have the ids together that they have alone."""
    if not first or not second:
        return True
    options: dict[str, Any] = {"add_special_tokens": False, "return_offsets": False, "return_masks": False}
    batch = protocol.encode_texts(
        tokenizer, [first + second, first, second], allowed_special="all", **options
    )
    combined, *alone = (row.ids for row in batch)
    return bool(np.array_equal(combined, np.concatenate(alone)))


def _make_error(tokenizer: Any, hidden: HiddenTokens, name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(tokenizer).__name__} can't encode {sorted(hidden.names)} as ordinary text beside the special "
        f"token {name!r} that the template writes; leave them out of the messages, or pass allowed_special= "
        "to recognise them"
    )


def _concatenate_results(
    tokenizer: Any, texts: list[str], parts: list[TokenizationBatch]
) -> TokenizationResult:
    """One result of the parts of a text."""
    metadata = parts[0].metadata
    in_view = metadata.offsets_reference == "tokenizer_normalized_text"
    columns: dict[str, list[Any]] = {}
    start, words = 0, 0
    for text, part in zip(texts, parts, strict=True):
        for name, column in part.ragged._asdict().items():
            columns.setdefault(name, []).append(column)
        if part.offsets is not None:
            columns["offsets"][-1] = np.where(part.offsets > 0, part.offsets + start, 0)
        if part.ragged.word_ids is not None:
            word_ids = np.asarray(part.ragged.word_ids)
            columns["word_ids"][-1] = np.where(word_ids >= 0, word_ids + words, -1).astype(np.int32)
            words += int(word_ids.max(initial=-1)) + 1
        start += count_bytes(protocol.tokenization_view(tokenizer, text) if in_view else text)
    joined: dict[str, Any] = {
        name: None if column[0] is None else np.concatenate(column) for name, column in columns.items()
    }
    joined["row_splits"] = np.array([0, len(joined["ids"])], np.int64)
    get_token_strings = protocol.get_vocabulary(tokenizer).get_token_strings
    return make_batch_without_copy(Ragged(**joined), metadata, get_token_strings, has_attention_mask=True)[0]
