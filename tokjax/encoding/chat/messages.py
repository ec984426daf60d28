"""Chat messages: copies and checks of their data, and the control tokens that they may contain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core import protocol
from tokjax.core.vocabulary import share_names
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.special_tokens import (
    has_special,
    reject_special,
    resolve_special,
    select_control_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokjax.core.encode_options import Special


_PLAIN_TEXT = re.compile(r"[\w -]*")
PLAIN_KEYS = ("role", "type")
"""Keys whose values select branches of a template. They must match `_PLAIN_TEXT`."""
_PLAIN_PATHS = tuple(f"[{key!r}]" for key in PLAIN_KEYS)
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
NAME_KEYS = ("role", "type", "name", "id", "tool_call_id")
"""Keys whose values name something. A template may drop them, and reasoning."""
_WRITTEN_FIELDS = ("content", "tool_result", "tool_call")
"""Fields of the texts of a message of which a template must write one."""
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


def exclude_answer(message: Message) -> Message:
    """Returns an answer that does not count as a target. Invalid weights stay, and are errors later."""
    is_counted = message.get("weight") in (None, 1) and message.get("train") in (None, True)
    others = {key: value for key, value in message.items() if key not in ("weight", "train")}
    return others | {"weight": 0} if is_counted else message


def copy_json(
    value: Any, path: str, change: Callable[[str, str], str] | None = None, *, depth: int = 0
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
        return change(str(value), path) if change else str(value)
    if depth > _MAX_DEPTH:
        raise InvalidArgumentError(f"{path[:60]}... has mappings or lists nested more than {_MAX_DEPTH} deep")
    if type(value) is dict and not change and all(type(x) is str for pair in value.items() for x in pair):
        return value.copy()  # the most frequent case, without paths
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
        if text_path.endswith(_PLAIN_PATHS) and not _PLAIN_TEXT.fullmatch(text):
            raise InvalidArgumentError(f"{text_path} is {text!r}; roles and types are words")
        return text

    copy_json(value, path, check)


def find_unwritten_messages(
    messages: Sequence[Message], written: set[tuple[int, str]]
) -> list[tuple[int, Message, Sequence[str]]]:
    """Finds messages that have texts, or tool calls, of which a template writes nothing.

    Templates may drop reasoning, names, and the content of a message with tool calls. A part of a content
    that is not text has none.

    Args:
        messages: the messages.
        written: index of the message and field of each run of the rendered text.

    Returns:
        The index of each of these messages; the message, or the part of it that is not written; and the
        fields of which a template must write one.
    """
    unwritten: list[tuple[int, Message, Sequence[str]]] = []
    for i, message in enumerate(messages):
        calls = {key: message[key] for key in TOOL_CALL_KEYS if key in message}
        for part, fields in ((message, _WRITTEN_FIELDS), (calls, ("tool_call",))):
            if part and written.isdisjoint([(i, field) for field in fields]):
                texts = list_texts(part, (*NAME_KEYS, *REASONING_KEYS))
                if any(map(str.strip, texts)):
                    unwritten.append((i, part, fields))
                    break
    return unwritten


def list_texts(value: Any, keys_without_text: Collection[str] = PLAIN_KEYS) -> list[str]:
    """Returns the texts of a message or of a part of it, except those under some keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        if value.get("type") not in (None, "text", "function"):  # an image, for example
            return []
        value = [inner for key, inner in value.items() if key not in keys_without_text]
    return [text for inner in value for text in list_texts(inner)] if isinstance(value, list) else []


class ControlTokens(NamedTuple):
    """Control tokens of a tokenizer, and where texts of a conversation may contain them.

    Attributes:
        names: all of them: special tokens, and those that the tokenizer matches in any text.
        disallowed: those that are an error in messages.
        not_allowed: those that are not recognized in messages.
        trusted: those that are recognized in the assistant's own texts.
    """

    names: frozenset[str]
    disallowed: frozenset[str]
    not_allowed: frozenset[str]
    trusted: frozenset[str]

    def check(self, messages: Sequence[Message]) -> None:
        """Checks messages, as `check_strings` does."""
        in_answers = share_names(self.disallowed - self.trusted)
        for i, message in enumerate(messages):
            for key, value in message.items():
                is_own = key in OWN_KEYS and message["role"] == "assistant"
                names = in_answers if is_own else self.disallowed
                is_plain = key in OWN_KEYS and isinstance(value, str) and not has_special(value, names)
                if not (is_plain or (key == "role" and value in ROLES)):  # the check with paths is slower
                    check_strings({key: value}, f"messages[{i}]", names)


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
    return ControlTokens(share_names(special | matched), disallowed, not_allowed, trusted)
