r"""Chat messages: copies and checks of their data, and special tokens in their text.

Messages come from users, who could forge a turn with the text `<|im_end|>`. So by default special tokens in
messages raise an error (`check_strings`). If a caller wants them as ordinary text, they must be
distinguished from those that the template writes. For this, they are hidden while the template is rendered:
each of their characters is replaced by an unused one from Unicode's private use area (`HiddenTokens`). Below,
a hidden character is shown as `#`.

    message                 "say <|im_end|>"
    hidden                  "say ##########"
    rendered                "<|im_start|>user\nsay ##########<|im_end|>"
    split at special tokens "<|im_start|>" | "user\nsay ##########" | "<|im_end|>"
    restored and encoded    the outer parts as special tokens, "user\nsay <|im_end|>" as ordinary text

The replacement has the same number of characters, so a template that measures or slices the text has the same
output. `encode_with_hidden` encodes the parts separately where this gives the ids of the whole text, and
raises an error otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core import protocol
from tokjax.core.ragged import Ragged
from tokjax.core.records import make_batch_without_copy
from tokjax.core.utf8 import count_bytes
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.special_tokens import (
    find_matches,
    reject_special,
    resolve_special,
    select_control_names,
    split_at_special,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokjax.core.protocol import Special
    from tokjax.core.records import TokenizationBatch, TokenizationResult


_PLAIN_TEXT = re.compile(r"[\w -]*")
_PLACEHOLDER = re.compile(r"x\d+")
PLAIN_KEYS = ("role", "type")
"""Keys whose values select branches of a template. They must match `_PLAIN_TEXT`."""
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
OWN_KEYS = ("content", *REASONING_KEYS)
"""Keys of the assistant's own texts in its messages."""
TOOL_ROLES = ("tool", "function", "ipython", "observation", "environment")
"""Roles of messages with results of tools."""
ROLES = (*TOOL_ROLES, "system", "developer", "user", "assistant")
"""Roles that templates know. A template may write `<|user|>` for the role `user`."""
TOOL_CALL_KEYS = ("tool_calls", "function_call", "function_calls")
_SHAREGPT_KEYS = {"from": "role", "value": "content"}
_SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant"}
_WEIGHT_KEY = re.compile(r"(?<![A-Za-z])(?:weight|train|loss|mask)|Weight|Train|Loss|Mask")
"""Matches keys that look like weights of messages."""
_KEYS_WITHOUT_TEXT = (*PLAIN_KEYS, *REASONING_KEYS, "name", "id", "tool_call_id")
"""Keys of a message whose values a template may drop."""
_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_MAX_DEPTH = 100
"""Maximum nesting depth of messages. It keeps recursive functions below Python's recursion limit."""

Message = dict[str, Any]


def copy_messages(messages: Sequence[Mapping[str, Any]], name: str = "messages") -> list[Message]:
    """Copies messages to lists and dicts. Messages in ShareGPT's format become those of OpenAI's.

    Args:
        messages: the messages.
        name: their name in error messages.

    Raises:
        InvalidArgumentError: `messages` is not a sequence of mappings, a message has no role, or contains
            something that is not JSON data.
    """
    untyped: object = messages
    if isinstance(untyped, (str, bytes)) or not isinstance(untyped, Sequence):
        raise InvalidArgumentError(f"{name} must be a list of messages, not {messages!r:.80}")
    copied = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidArgumentError(f"{name}[{i}] must map 'role' and 'content', not be {message!r:.80}")
        copy = copy_json(message, f"{name}[{i}]")
        if _SHAREGPT_KEYS.keys() <= copy.keys() and copy.keys().isdisjoint(_SHAREGPT_KEYS.values()):
            copy = {_SHAREGPT_KEYS.get(key, key): value for key, value in copy.items()}
        role = copy.get("role")
        if not isinstance(role, str):
            raise InvalidArgumentError(
                f"{name}[{i}] has the role {role!r:.80}, and the keys {list(copy)[:20]}; pass a message "
                "such as {'role': 'user', 'content': TEXT}, or {'from': 'human', 'value': TEXT}"
            )
        copied.append(copy | {"role": _SHAREGPT_ROLES.get(role, role)})
    return copied


def pop_weights(messages: list[Message]) -> list[int]:
    """Removes the keys `weight` and `train` of messages, which a template must not see. Null is no weight.

    Returns:
        The indices of the answers that do not count as targets.

    Raises:
        InvalidArgumentError: a value is invalid, a message that is not one of the assistant has such a key,
            or another key looks like one of the two.
    """
    excluded = []
    for i, message in enumerate(messages):
        keys = [key for key in message if isinstance(key, str) and _WEIGHT_KEY.search(key)]
        popped = {key: message.pop(key) for key in keys}
        weights = {key: value for key, value in popped.items() if value is not None}
        for key, value in weights.items():
            path = f"messages[{i}][{key!r}]"
            if len(weights) > 1 or key not in ("weight", "train"):
                raise InvalidArgumentError(
                    f"messages[{i}] has {keys}, and a message has one key for its weight: pass 'weight': 0 "
                    "to leave an answer out of the mask, or 'train': false; otherwise remove the key"
                )
            if isinstance(value, bool) != (key == "train") or value not in (0, 1):
                expected = "0 or 1" if key == "weight" else "true or false"
                raise InvalidArgumentError(f"{path} is {value!r:.80}; the weight of a message is {expected}")
            if message["role"] != "assistant":
                raise InvalidArgumentError(
                    f"{path} is {value!r}, and the role is {message['role']!r}; only messages of the "
                    "assistant count, so remove the key"
                )
            excluded += [] if value else [i]
    return excluded


def copy_json(
    value: Any, path: str, change: Callable[[str, str], str] = lambda text, _: text, *, depth: int = 0
) -> Any:
    """Copies JSON data to lists and dicts.

    Args:
        value: the value to copy.
        path: the expression for the value in error messages, for example `"messages[0]['content']"`.
        change: a function of a string and its path, which returns the string for the copy.
        depth: the number of mappings and lists that contain the value.

    Raises:
        InvalidArgumentError: the value contains something that is not JSON data, or is nested too deeply.
    """
    if isinstance(value, str):
        return change(str(value), path)
    if depth > _MAX_DEPTH:
        raise InvalidArgumentError(f"{path[:60]}... has mappings or lists nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return {
            copy_json(key, f"a key of {path}", change, depth=depth + 1): copy_json(
                inner, f"{path}[{key!r}]", change, depth=depth + 1
            )
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [copy_json(inner, f"{path}[{i}]", change, depth=depth + 1) for i, inner in enumerate(value)]
    if isinstance(value, (int, float, NoneType)):
        return value
    advice = "; a function is passed as its JSON schema" if callable(value) else ""
    raise InvalidArgumentError(f"{path} is a {type(value).__name__}; it must be JSON data{advice}")


def add_reasoning_aliases(messages: list[Message]) -> list[Message]:
    """Returns the messages with their reasoning under both names that templates read.

    The names are `reasoning_content` and `thinking`. The value is that of the first key of `REASONING_KEYS`
    that is not null. A message that has its own `thinking` keeps it.
    """
    completed = []
    for message in messages:
        reasoning = next((message[key] for key in REASONING_KEYS if message.get(key) is not None), None)
        aliases = {} if reasoning is None else {"reasoning_content": reasoning}
        completed.append({"thinking": reasoning} | message | aliases if aliases else message)
    return completed


def collect_strings(value: Any) -> list[str]:
    """Lists all strings in JSON data, including the keys of mappings."""
    strings: list[str] = []
    copy_json(value, "", lambda text, _: strings.append(text) or text)  # type: ignore[func-returns-value]
    return strings


def has_other_texts(message: Message) -> bool:
    """Returns whether a message has more than a known role, a content and reasoning."""
    return message["role"] not in ROLES or not message.keys() <= {"role", *OWN_KEYS}


def check_strings(value: Any, path: str, disallowed: frozenset[str]) -> None:
    r"""Checks that strings contain no disallowed special tokens, and that roles and types are plain words.

    Args:
        value: JSON data, for example messages.
        path: the expression for the value in error messages.
        disallowed: the disallowed special tokens.

    Raises:
        DisallowedSpecialTokenError: a string contains a disallowed special token.
        InvalidArgumentError: a role or type has other characters than `\w`, spaces and hyphens.
    """

    def check(text: str, text_path: str) -> str:
        reject_special(text, disallowed, text_path)
        if text_path.endswith(tuple(f"[{key!r}]" for key in PLAIN_KEYS)) and not _PLAIN_TEXT.fullmatch(text):
            raise InvalidArgumentError(f"{text_path} is {text!r}; roles and types are words")
        return text

    copy_json(value, path, check)


def replace_with_placeholders(value: Any, placeholders: dict[str, str], key: str = "") -> Any:
    """Copies messages and replaces each text by a placeholder: `x0`, `x1yyy` and so on.

    Rendering the copy shows which special tokens a template writes for any messages.
    Equal texts have equal placeholders, because templates compare messages. A placeholder is as long as its
    text if possible, because templates check the lengths of ids of tool calls. Roles, types and texts of
    whitespace are not changed, because templates branch on them.

    Args:
        value: messages, or a part of a message.
        placeholders: the placeholder of each text so far. This function adds entries.
        key: the key of the value if it belongs to a mapping.
    """
    if isinstance(value, str):
        is_unchanged = key in PLAIN_KEYS or not value.strip()
        placeholder = f"x{len(placeholders)}".ljust(len(value), "y")
        return value if is_unchanged else placeholders.setdefault(value, placeholder)
    if isinstance(value, dict):
        return {name: replace_with_placeholders(inner, placeholders, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [replace_with_placeholders(inner, placeholders) for inner in value]
    return value


def mark_end(messages: list[Message], marker: str) -> list[Message]:
    """Appends a marker to the content of the last message, or to the last text of its parts.

    Raises:
        InvalidArgumentError: there is no such text.
    """
    content = messages[-1].get("content") if messages else None
    if isinstance(content, str):
        return [*messages[:-1], messages[-1] | {"content": content + marker}]
    parts = content if isinstance(content, list) else []
    for i, part in reversed(list(enumerate(parts))):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            marked = [*parts[:i], part | {"text": part["text"] + marker}, *parts[i + 1 :]]
            return [*messages[:-1], messages[-1] | {"content": marked}]
    raise InvalidArgumentError(
        "continue_final_message=True ends after the content of the last message, which is "
        f"{content!r:.80}; pass messages whose last one has a text"
    )


def find_unwritten_messages(messages: Sequence[Message], text: str) -> list[tuple[int, Message]]:
    """Finds messages that have texts, or tool calls, none of which occurs in a rendered text.

    Templates may drop reasoning, names, and the content of a message with tool calls. A part of a content
    that is not text has none.

    Args:
        messages: messages with placeholders for their texts.
        text: the text that a template writes for them.

    Returns:
        The index of each of these messages, and the message, or the part of it that is not written.
    """
    written = Counter(_PLACEHOLDER.findall(text))

    def find_names(value: Message) -> set[str]:
        return set(_PLACEHOLDER.findall(" ".join(_list_texts(value, _KEYS_WITHOUT_TEXT))))

    names = [find_names(message) for message in messages]
    owners = Counter(name for own in names for name in own)
    unwritten = []
    for i, message in enumerate(messages):
        calls = {key: message[key] for key in TOOL_CALL_KEYS if key in message}
        for part, own in ((message, names[i]), (calls, find_names(calls))):
            if own and all(written[name] < owners[name] for name in own):
                unwritten.append((i, part))
                break
    return unwritten


def _list_texts(value: Any, keys_without_text: Collection[str] = PLAIN_KEYS) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        if value.get("type") not in (None, "text", "function"):  # an image, for example
            return []
        value = [inner for key, inner in value.items() if key not in keys_without_text]
    return [text for inner in value for text in _list_texts(inner)] if isinstance(value, list) else []


class HiddenTokens(NamedTuple):
    """Replacements of special tokens that are ordinary text in messages.

    Create one with `hide_special_tokens`.

    Attributes:
        names: the replacement of each special token, of the same number of characters.
        restore_table: a table for `str.translate` that maps the code point of each replacement character to
            the original character.
    """

    names: dict[str, str]
    restore_table: dict[int, str]

    def hide(self, text: str, kept: frozenset[str] = frozenset()) -> str:
        """Returns the text with the special tokens replaced, except those that are kept."""
        pieces = split_at_special(text, frozenset(self.names) - kept)
        return "".join(self.names.get(piece, piece) if i % 2 else piece for i, piece in enumerate(pieces))

    def restore(self, text: str) -> str:
        """Returns the text with the original characters."""
        return text.translate(self.restore_table)

    def occurs_in(self, text: str) -> bool:
        """Returns whether a text contains a replacement character."""
        return any(chr(point) in text for point in self.restore_table)


def hide_special_tokens(names: Collection[str], texts: Sequence[str]) -> HiddenTokens:
    """Makes replacements for special tokens.

    Args:
        names: the special tokens that are ordinary text in messages.
        texts: texts whose characters must not be used as replacements.
    """
    used_characters = set().union(*texts) if names else set()
    free = (chr(point) for point in _PRIVATE_USE if chr(point) not in used_characters)
    replacements = {name: "".join(next(free) for _ in name) for name in names}
    pairs = [pair for name, hidden in replacements.items() for pair in zip(hidden, name, strict=True)]
    return HiddenTokens(replacements, {ord(hidden): character for hidden, character in pairs})


class ControlTokens(NamedTuple):
    """Control tokens of a tokenizer, and where texts of a conversation may contain them.

    Attributes:
        matched: those that are not special, and that the tokenizer matches in any text.
        disallowed: those that are an error in messages.
        not_allowed: those that are not recognized in messages.
        trusted: those that are recognized in the assistant's own texts.
    """

    matched: frozenset[str]
    disallowed: frozenset[str]
    not_allowed: frozenset[str]
    trusted: frozenset[str]

    def get_trusted(self, message: Message, key: str) -> frozenset[str]:
        """Returns the tokens that are recognized in a value of a message, as the assistant's own text."""
        is_own = message["role"] == "assistant" and key in OWN_KEYS
        return self.trusted if is_own else frozenset()

    def check(self, messages: Sequence[Message]) -> None:
        """Checks messages, as `check_strings` does."""
        for i, message in enumerate(messages):
            for key, value in message.items():
                names = self.disallowed - self.get_trusted(message, key)
                check_strings({key: value}, f"messages[{i}]", names)

    def hide_names(self, messages: Sequence[Message], untrusted: Any, others: Sequence[str]) -> HiddenTokens:
        """Makes replacements for the tokens that are ordinary text in messages.

        Args:
            messages: the messages.
            untrusted: other values with untrusted texts.
            others: more texts whose characters must not be used as replacements.
        """
        literal = self.not_allowed - self.disallowed
        if not literal:
            return HiddenTokens({}, {})
        answers: list[str] = []
        texts = collect_strings(untrusted)
        for message in messages:
            for key, value in message.items():
                is_own = bool(self.get_trusted(message, key))
                (answers if is_own else texts).extend(collect_strings({key: value}))
        names = {*find_matches(literal, texts), *find_matches(literal - self.trusted, answers)}
        return hide_special_tokens(names, [*texts, *answers, *others])

    def hide_in(self, message: Message, hidden: HiddenTokens) -> Message:
        """Returns a message with tokens replaced, except for trusted ones."""
        changed: Message = {}
        for key, value in message.items():

            def hide(text: str, _: str, kept: frozenset[str] = self.get_trusted(message, key)) -> str:
                return hidden.hide(text, kept)

            changed |= copy_json({key: value}, "", hide)
        return changed

    def restore_answers(self, messages: Sequence[Message], originals: Sequence[Message]) -> list[Message]:
        """Returns messages with the originals of texts that can have trusted tokens."""
        return [
            message | {key: value for key, value in original.items() if self.get_trusted(original, key)}
            for message, original in zip(messages, originals, strict=True)
        ]


def find_control_tokens(
    tokenizer: Any,
    template: str,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    *,
    trust_answers: bool = True,
) -> ControlTokens:
    """Finds the control tokens of a tokenizer. The arguments are those of `encode_chat`."""
    vocabulary = protocol.get_vocabulary(tokenizer)
    special = vocabulary.special_names
    # Symbols of a SentencePiece model are special, too, but an answer can have those without a role.
    others = special - vocabulary.unmatched_names.difference(vocabulary.roles.values())
    matched = select_control_names(protocol.find_matched_names(tokenizer), template) - others
    allowed, disallowed = resolve_special(special | matched, allowed_special, disallowed_special)
    not_allowed = (special | matched) - allowed
    trusted = matched & not_allowed if trust_answers else frozenset[str]()
    return ControlTokens(matched, disallowed, not_allowed, trusted)


def encode_with_hidden(
    tokenizer: Any, text: str, hidden: HiddenTokens, control: frozenset[str]
) -> TokenizationResult:
    """Encodes a text with its special tokens recognized, and its hidden special tokens as ordinary text.

    The result is that of encoding the restored text, except that hidden special tokens are not recognized.

    Args:
        tokenizer: any registered tokenizer.
        text: the rendered text, with replacements for the hidden special tokens.
        hidden: the replacements.
        control: control tokens that are not special, and that the tokenizer matches in any text.

    Raises:
        InvalidArgumentError: the tokenizer can't encode a hidden special token as ordinary text next to a
            special token of the template.
    """
    without_control = (
        protocol.make_special(tokenizer, control) if control & hidden.names.keys() else tokenizer
    )
    names = frozenset(protocol.get_vocabulary(without_control).special)
    pieces = ["", *split_at_special(text, names), ""]
    parts: list[TokenizationBatch] = []
    recognized = ""
    texts: list[str] = []

    def encode(part: str, allowed: Any = "all") -> None:
        if part:
            texts.append(part)
            parts.append(
                protocol.encode_texts(
                    tokenizer if allowed == "all" else without_control,
                    [part],
                    add_special_tokens=False,
                    allowed_special=allowed,
                    disallowed_special=(),
                )
            )

    # `pieces` alternates between special tokens and ordinary text. Text without hidden characters is
    # collected with the special tokens around it, and encoded in one call.
    for special, ordinary, following in zip(pieces[:-1:2], pieces[1::2], pieces[2::2], strict=True):
        if not hidden.occurs_in(ordinary):
            recognized += special + ordinary
            continue
        encode(recognized)
        recognized, ordinary = "", hidden.restore(ordinary)  # noqa: PLW2901
        # The text is split here. That is correct only if the tokenizer encodes both sides independently,
        # which is not the case, for example, if the special token removes the whitespace next to it.
        if not _is_separable(tokenizer, "x \n", following):
            raise _make_error(tokenizer, hidden, following)
        if all(_is_separable(tokenizer, special, start) for start in ("x", " x", "\nx")):
            encode(special)
            encode(ordinary, ())
        elif special not in ordinary:  # the special token changes the text after it: encode both together
            encode(special + ordinary, {special})
        else:
            raise _make_error(tokenizer, hidden, special)
    encode(recognized)
    if not parts:  # the template wrote an empty text
        return protocol.encode_texts(tokenizer, [""], add_special_tokens=False)[0]
    return _concatenate_results(tokenizer, texts, parts)


def _is_separable(tokenizer: Any, first: str, second: str) -> bool:
    """Returns whether the ids of two concatenated texts are the concatenated ids of each.

    One of the texts is a special token or empty.
    """
    if not first or not second:
        return True
    options: dict[str, Any] = {"add_special_tokens": False, "return_offsets": False, "return_masks": False}
    batch = protocol.encode_texts(
        tokenizer, [first + second, first, second], allowed_special="all", **options
    )
    combined, *separate = (row.ids for row in batch)
    return bool(np.array_equal(combined, np.concatenate(separate)))


def _make_error(tokenizer: Any, hidden: HiddenTokens, name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(tokenizer).__name__} can't encode {sorted(hidden.names)} as ordinary text next to the "
        f"special token {name!r} that the template writes; remove them from the messages, or pass "
        "allowed_special= to recognize them"
    )


def _concatenate_results(
    tokenizer: Any, texts: list[str], parts: list[TokenizationBatch]
) -> TokenizationResult:
    """Concatenates the results of consecutive parts of a text.

    Args:
        tokenizer: the tokenizer that encoded the parts.
        texts: the parts of the text.
        parts: their results, each a batch of one row.

    Returns:
        One result. Offsets and `word_ids` refer to the whole text.
    """
    metadata = parts[0].metadata
    is_normalized = metadata.offsets_reference == "tokenizer_normalized_text"
    columns: dict[str, list[Any]] = {}
    num_bytes, num_words = 0, 0
    for text, part in zip(texts, parts, strict=True):
        for name, column in part.ragged._asdict().items():
            columns.setdefault(name, []).append(column)
        if part.offsets is not None:  # (0, 0) stays the sentinel for tokens without text
            columns["offsets"][-1] = np.where(part.offsets > 0, part.offsets + num_bytes, 0)
        if part.ragged.word_ids is not None:
            word_ids = np.asarray(part.ragged.word_ids)
            columns["word_ids"][-1] = np.where(word_ids >= 0, word_ids + num_words, -1).astype(np.int32)
            num_words += int(word_ids.max(initial=-1)) + 1
        num_bytes += count_bytes(protocol.tokenization_view(tokenizer, text) if is_normalized else text)
    joined: dict[str, Any] = {
        name: None if column[0] is None else np.concatenate(column) for name, column in columns.items()
    }
    joined["row_splits"] = np.array([0, len(joined["ids"])], np.int64)
    get_token_strings = protocol.get_vocabulary(tokenizer).get_token_strings
    return make_batch_without_copy(Ragged(**joined), metadata, get_token_strings, has_attention_mask=True)[0]
