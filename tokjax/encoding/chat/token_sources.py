r"""The role, the field and the message of each token of a conversation.

The rendered text has a source for each run of characters (`text_sources`). Here the text in front of an
answer is marked as its header (`turns`), and each token gets one run. With the generation prompt `"A:"`:

    text       "U: "       "hi\n"     "A:"       "low."     "\n"        "A:"
    message    0           0          1          1          1           -1
    role       user        user       assistant  assistant  assistant   assistant
    field      scaffold    content    header     content    scaffold    generation_prompt
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.utf8 import find_character_starts
from tokjax.encoding.chat.messages import TOOL_ROLES
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.completion_masks import ANSWER_FIELDS, CHAT_FIELDS, CHAT_ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.encoding.chat.text_sources import SourceRun
    from tokjax.encoding.chat.turns import Turn

_ROLE_NAMES = {role: role for role in CHAT_ROLES} | dict.fromkeys(TOOL_ROLES, "tool")
_SCAFFOLD, _HEADER, _PROMPT = map(CHAT_FIELDS.index, ("scaffold", "header", "generation_prompt"))
_NONE, _ASSISTANT = map(CHAT_ROLES.index, ("none", "assistant"))
_MAX_SHOWN = 60


class TokenSources(NamedTuple):
    """Sources of the tokens of a conversation.

    Attributes:
        codes: role and field of each token, `int8`, shape `(num_tokens,)`.
        messages: index of the message of each token, -1 outside the messages, `int32`, the same shape.
    """

    codes: NDArray[np.int8]
    messages: NDArray[np.int32]


def find_sources(
    text: str,
    runs: Sequence[SourceRun],
    roles: Sequence[str],
    turns: Mapping[int, Turn],
    prompt_start: int,
    *,
    allow_lost: bool,
) -> TokenSources:
    """Returns the role, the field and the message of each character of a rendered conversation.

    Args:
        text: the rendered text.
        runs: the sources of its characters.
        roles: the role of each message.
        turns: the turns of the answers.
        prompt_start: position of the generation prompt at the end of the text.
        allow_lost: whether text whose sources were lost becomes scaffold outside the messages.

    Raises:
        InvalidArgumentError: the sources of a part of the text were lost.
    """
    if not allow_lost:
        _check_known(text, runs)
    origins = [(-1, "scaffold") if source.lost_by else source[:2] for *_, source in runs]
    lengths = [stop - start for start, stop, _ in runs]
    messages = np.repeat(np.array([message for message, _ in origins], np.int32), lengths)
    fields = np.repeat(np.array([CHAT_FIELDS.index(field) for _, field in origins], np.int8), lengths)
    _assign_turns(messages, fields, turns, len(roles))
    fields[prompt_start:], messages[prompt_start:] = _PROMPT, -1
    _assign_text_outside_loops(messages, fields)
    codes = [CHAT_ROLES.index(_ROLE_NAMES.get(role, "other")) for role in roles]
    role_codes = np.array([*codes, _NONE], np.int8)[messages]
    role_codes[prompt_start:] = _ASSISTANT
    return TokenSources(role_codes * np.int8(len(CHAT_FIELDS)) + fields, messages)


def _check_known(text: str, sources: Sequence[SourceRun]) -> None:
    """Raises `InvalidArgumentError` if the sources of a part of a text were lost."""
    for start, stop, source in sources:
        if source.lost_by:
            shown = text[start:stop][:_MAX_SHOWN]
            raise InvalidArgumentError(
                f"the chat template makes {shown!r} with {source.lost_by}, which combines "
                "texts of different origin, so that the assistant's tokens can't be determined. Pass "
                "mask=False to get the ids without a mask, or put {% generation %} and "
                "{% endgeneration %} around the assistant's text in the template"
            )


def _assign_turns(
    messages: NDArray[np.int32], fields: NDArray[np.int8], turns: Mapping[int, Turn], num_messages: int
) -> None:
    """Assigns scaffold at the bounds of turns to the answer or to the next message, and marks the headers."""
    is_scaffold = fields == _SCAFFOLD
    for index, turn in turns.items():
        after, rest = slice(turn.last_text, turn.stop), slice(turn.stop, turn.end)
        following = index + 1 if index + 1 < num_messages else -1
        messages[rest][is_scaffold[rest] & (messages[rest] == index)] = following
        messages[after][is_scaffold[after]] = index
    for index, turn in turns.items():
        before = slice(turn.begin, turn.first)
        if is_scaffold[before].all():
            messages[before] = index
        header = slice(min(turn.first, turn.before), turn.begin)
        fields[header][messages[header] == index] = _HEADER


def _assign_text_outside_loops(messages: NDArray[np.int32], fields: NDArray[np.int8]) -> None:
    """Assigns text outside of loops, between two texts of a message, to this message."""
    known = np.flatnonzero(messages >= 0)
    outside = np.flatnonzero((messages < 0) & (fields == _SCAFFOLD))
    following = np.searchsorted(known, outside)
    outside, following = (each[(following > 0) & (following < len(known))] for each in (outside, following))
    before, after = messages[known[following - 1]], messages[known[following]]
    messages[outside[before == after]] = before[before == after]


def compute_token_sources(
    sources: TokenSources, text: str, offsets: NDArray[np.integer[Any]]
) -> TokenSources:
    """Returns the role, the field and the message of each token.

    A token with characters of several sources gets the first one of the highest rank: text of an answer, then
    other text of a message, then scaffold of a message, then everything else.

    Args:
        sources: those of each character.
        text: the text.
        offsets: byte spans of the tokens in the text, 1-based and half-open, shape `(num_tokens, 2)`.
    """
    if not text:
        return TokenSources(np.zeros(len(offsets), np.int8), np.full(len(offsets), -1, np.int32))
    changes = np.flatnonzero(np.diff(sources.codes) | np.diff(sources.messages)) + 1
    starts = np.concatenate([[0], changes])  # of runs of characters with the same source
    sources, indices = TokenSources(sources.codes[starts], sources.messages[starts]), np.arange(len(starts))
    bounds = find_character_starts(text)[np.append(starts, len(text))] + 1
    first = np.minimum(np.searchsorted(bounds[1:], offsets[:, 0], "right"), len(starts) - 1)
    last = np.searchsorted(bounds[:-1], offsets[:, 1], "left") - 1
    ranks = _compute_ranks(sources)
    chosen = first
    for rank in (1, 2, 3):
        # The index of the next run of this rank, from each one on; a large one if there is none.
        following = np.minimum.accumulate(np.where(ranks == rank, indices, len(starts))[::-1])[::-1][first]
        chosen = np.where(following <= last, following, chosen)
    has_text = offsets[:, 1] > 0
    return TokenSources(
        np.where(has_text, sources.codes[chosen], np.int8(0)),
        np.where(has_text, sources.messages[chosen], np.int32(-1)),
    )


def _compute_ranks(sources: TokenSources) -> NDArray[np.integer[Any]]:
    roles, fields = np.divmod(sources.codes, len(CHAT_FIELDS))
    is_answer = (roles == _ASSISTANT) & np.isin(fields, [CHAT_FIELDS.index(field) for field in ANSWER_FIELDS])
    ranks = np.where(is_answer, 3, np.where(fields == _SCAFFOLD, 1, 2))
    return np.where((sources.messages < 0) | np.isin(fields, [_HEADER, _PROMPT]), 0, ranks)
