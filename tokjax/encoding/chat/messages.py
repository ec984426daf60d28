r"""Chat messages: copies and checks of their data, and special tokens in their text.

Messages come from users, who could forge a turn with the text `<|im_end|>`. So by default special tokens in
messages raise an error (`ControlTokens.check`). If a caller wants them as ordinary text, they are
distinguished from those that the template writes by the sources of the rendered text (`text_sources`):

    message                 "say <|im_end|>"
    rendered                "<|im_start|>user\nsay <|im_end|><|im_end|>"
    sources                  template           message   template
    split                   "<|im_start|>" | "user\nsay <|im_end|>" | "<|im_end|>"

`encode_with_literals` encodes the outer parts as special tokens, and the middle one as ordinary text, if the
separate ids are those of the whole text. Otherwise it raises an error.
"""

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
from tokjax.core.vocabulary import share_names
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.special_tokens import (
    compile_matcher,
    has_special,
    reject_special,
    resolve_special,
    select_control_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokjax.core.encode_options import Special
    from tokjax.core.records import TokenizationBatch, TokenizationResult


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


def change_texts(value: Any) -> Any:
    """Copies messages or a part of them with another character in each text, except for roles and types."""

    def change(text: str, path: str) -> str:
        if path.startswith("a key of") or path.endswith(_PLAIN_PATHS):
            return text
        return re.sub(r"\S", lambda match: "y" if match[0] in "xX" else "x", text, count=1)

    return copy_json(value, "", change)


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


def find_unwritten_messages(
    messages: Sequence[Message], written: set[tuple[int, str]]
) -> list[tuple[int, Message]]:
    """Finds messages that have texts, or tool calls, of which a template writes nothing.

    Templates may drop reasoning, names, and the content of a message with tool calls. A part of a content
    that is not text has none.

    Args:
        messages: the messages.
        written: index of the message and field of each run of the rendered text.

    Returns:
        The index of each of these messages, and the message, or the part of it that is not written.
    """
    unwritten = []
    for i, message in enumerate(messages):
        calls = {key: message[key] for key in TOOL_CALL_KEYS if key in message}
        for part, fields in ((message, _WRITTEN_FIELDS), (calls, ("tool_call",))):
            if part and written.isdisjoint([(i, field) for field in fields]):
                texts = _list_texts(part, (*NAME_KEYS, *REASONING_KEYS))
                if any(map(str.strip, texts)):
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
            own_keys = OWN_KEYS if message["role"] == "assistant" else ()
            own = {key: message[key] for key in own_keys if key in message}
            others = {key: value for key, value in message.items() if key not in own}
            check_strings(others, f"messages[{i}]", self.disallowed)
            check_strings(own, f"messages[{i}]", in_answers)


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


def encode_with_literals(
    tokenizer: Any, text: str, names: frozenset[str], literals: Mapping[int, str]
) -> TokenizationResult:
    """Encodes a text with its control tokens recognized, except for some that are ordinary text.

    Args:
        tokenizer: any registered tokenizer.
        text: the rendered text.
        names: the control tokens.
        literals: those that are ordinary text, by their position in the text.

    Raises:
        InvalidArgumentError: the tokenizer can't encode one of them as ordinary text next to a control token
            of the template.
    """
    matched = frozenset(literals.values()) - protocol.get_vocabulary(tokenizer).special_names
    literal_tokenizer = protocol.make_special(tokenizer, matched) if matched else tokenizer
    pieces, position = [""], 0
    for match in compile_matcher(names).finditer(text):
        if match.start() not in literals:
            pieces += [text[position : match.start()], match.group()]
            position = match.end()
    pieces += [text[position:], ""]
    jobs: list[tuple[str, Any, Any]] = []  # the text, the tokenizer and the allowed tokens of each part
    recognized = ""
    # `pieces` alternates between control tokens and ordinary text. Text without literal ones is collected
    # with the control tokens around it, and encoded in one call.
    for special, ordinary, following in zip(pieces[:-1:2], pieces[1::2], pieces[2::2], strict=True):
        if not has_special(ordinary, names):
            recognized += special + ordinary
            continue
        jobs.append((recognized, tokenizer, "all"))
        recognized = ""
        # The text is split here. That is correct only if the tokenizer encodes both sides independently,
        # which is not the case, for example, if the special token removes the whitespace next to it.
        is_free_after = all(_is_separable(tokenizer, end, following) for end in ("x", "x \n"))
        if is_free_after and all(_is_separable(tokenizer, special, start) for start in ("x", " x", "\nx")):
            jobs += [(special, tokenizer, "all"), (ordinary, literal_tokenizer, ())]
        elif is_free_after and special not in ordinary:  # it changes the text after it: encode both together
            jobs.append((special + ordinary, literal_tokenizer, {special}))
        else:
            raise InvalidArgumentError(
                f"{type(tokenizer).__name__} can't encode {sorted({*literals.values()})} as ordinary text "
                f"between {special!r} and {following!r}, because the ids depend on the text beside these "
                "(SentencePiece can add or remove spaces there); remove them from the messages, or pass "
                "allowed_special= to recognize them"
            )
    jobs.append((recognized, tokenizer, "all"))
    jobs = [job for job in jobs if job[0]]
    options: dict[str, Any] = {"add_special_tokens": False, "disallowed_special": ()}
    parts = [
        protocol.encode_texts(model, [part], allowed_special=allowed, **options)
        for part, model, allowed in jobs
    ]
    return _concatenate_results(tokenizer, [part for part, *_ in jobs], parts)


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
    rows: list[dict[str, Any]] = []
    num_bytes, num_words = 0, 0
    for text, part in zip(texts, parts, strict=True):
        row = part.ragged._asdict()
        if part.offsets is not None:  # (0, 0) stays the sentinel for tokens without text
            row["offsets"] = np.where(part.offsets > 0, part.offsets + num_bytes, 0)
        if row["word_ids"] is not None:
            word_ids = np.asarray(row["word_ids"])
            row["word_ids"] = np.where(word_ids >= 0, word_ids + num_words, -1).astype(np.int32)
            num_words += int(word_ids.max(initial=-1)) + 1
        num_bytes += count_bytes(protocol.tokenization_view(tokenizer, text) if is_normalized else text)
        rows.append(row)
    joined: dict[str, Any] = {
        name: None if column is None else np.concatenate([row[name] for row in rows])
        for name, column in rows[0].items()
    }
    joined["row_splits"] = np.array([0, len(joined["ids"])], np.int64)
    get_token_strings = protocol.get_vocabulary(tokenizer).get_token_strings
    return make_batch_without_copy(Ragged(**joined), metadata, get_token_strings, has_attention_mask=True)[0]
