r"""The role, the field and the message of each token of a conversation.

The rendered text has a source for each run of characters (`text_sources`). Here the text in front of an
answer is marked as its header (`turns`), and each token gets one run. With the generation prompt `"A:"`:

    text       "U: "       "hi\n"     "A:"       "low."     "\n"        "A:"
    message    0           0          1          1          1           -1
    role       user        user       assistant  assistant  assistant   assistant
    field      scaffold    content    header     content    scaffold    generation_prompt
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.encoding.chat.messages import TOOL_ROLES
from tokjax.encoding.chat.text_sources import get_runs
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.losses import ANSWER_FIELDS, CHAT_FIELDS, CHAT_ROLES
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.encoding.chat.text_sources import SourcedText
    from tokjax.encoding.chat.turns import SourceRun, Turn

_ROLE_NAMES = {role: role for role in CHAT_ROLES} | dict.fromkeys(TOOL_ROLES, "tool")
_SCAFFOLD = CHAT_FIELDS.index("scaffold")
_MAX_SHOWN = 60


class Run(NamedTuple):
    """A run of characters of the rendered text, 0-based and half-open.

    Attributes:
        start: position of the first character.
        stop: position after the last character.
        message: index of the message; -1 for text outside the messages.
        role: one of `CHAT_ROLES`.
        field: one of `CHAT_FIELDS`.
    """

    start: int
    stop: int
    message: int
    role: str
    field: str


class TokenSources(NamedTuple):
    """Sources of the tokens of a conversation.

    Attributes:
        codes: role and field of each token, `int8`, shape `(num_tokens,)`.
        messages: index of the message of each token, -1 outside the messages, `int32`, the same shape.
    """

    codes: NDArray[np.int8]
    messages: NDArray[np.int32]


def find_runs(
    text: SourcedText, roles: Sequence[str], turns: Mapping[int, Turn], prompt_start: int, *, allow_lost: bool
) -> list[Run]:
    """Lists the runs of a rendered conversation, which cover it.

    Args:
        text: the rendered text.
        roles: the role of each message.
        turns: the turns of the answers.
        prompt_start: position of the generation prompt at the end of the text.
        allow_lost: whether text whose sources were lost becomes scaffold outside the messages.

    Raises:
        InvalidArgumentError: the sources of a part of the text were lost.
    """
    sources = get_runs(text)
    if not allow_lost:
        _check_known(text, sources)
    origins = [(-1, "scaffold") if source.lost_by else source[:2] for *_, source in sources]
    lengths = [stop - start for start, stop, _ in sources]
    messages = np.repeat(np.array([message for message, _ in origins], np.int32), lengths)
    fields = np.repeat(np.array([CHAT_FIELDS.index(field) for _, field in origins], np.int8), lengths)
    _assign_turns(messages, fields, turns, len(roles))
    fields[prompt_start:], messages[prompt_start:] = CHAT_FIELDS.index("generation_prompt"), -1
    names = [_ROLE_NAMES.get(role, "other") for role in roles]
    changes = np.flatnonzero((np.diff(messages) != 0) | (np.diff(fields) != 0)) + 1
    bounds = [0, *changes.tolist(), len(messages)] if len(messages) else []
    runs = []
    for start, stop in pairwise(bounds):
        message, field = int(messages[start]), CHAT_FIELDS[fields[start]]
        outside = "assistant" if field == "generation_prompt" else "none"
        runs.append(Run(start, stop, message, names[message] if message >= 0 else outside, field))
    _assign_text_outside_loops(runs)
    return runs


def _check_known(text: str, sources: Sequence[SourceRun]) -> None:
    """Raises `InvalidArgumentError` if the sources of a part of a text were lost."""
    for start, stop, source in sources:
        if source.lost_by:
            shown = str.__str__(text)[start:stop][:_MAX_SHOWN]
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
        fields[header][messages[header] == index] = CHAT_FIELDS.index("header")


def _assign_text_outside_loops(runs: list[Run]) -> None:
    """Assigns text outside of loops, between two texts of a message, to this message."""
    known = [i for i, run in enumerate(runs) if run.message >= 0]
    for first, last in pairwise(known):
        before = runs[first]
        if before.message == runs[last].message:
            for i in range(first + 1, last):
                if runs[i].field == "scaffold":
                    runs[i] = runs[i]._replace(message=before.message, role=before.role)


def compute_token_sources(runs: list[Run], text: str, offsets: NDArray[np.integer[Any]]) -> TokenSources:
    """Returns the role, the field and the message of each token.

    A token that overlaps several runs gets the first of the highest rank: text of an answer, then other text
    of a message, then scaffold of a message, then everything else.

    Args:
        runs: runs that cover the text.
        text: the text.
        offsets: byte spans of the tokens in the text, 1-based and half-open, shape `(num_tokens, 2)`.
    """
    if not runs:
        return TokenSources(np.zeros(len(offsets), np.int8), np.full(len(offsets), -1, np.int32))
    bounds = char_to_byte_spans(text, np.array([(run.start, run.stop) for run in runs], np.int64))
    first = np.minimum(np.searchsorted(bounds[:, 1], offsets[:, 0], "right"), len(runs) - 1)
    last = np.searchsorted(bounds[:, 0], offsets[:, 1], "left") - 1
    ranks = np.array([_get_rank(run) for run in runs])
    chosen = first
    for rank in range(1, ranks.max() + 1):
        # The index of the next run of this rank, from each run on; a large one if there is none.
        indices = np.where(ranks == rank, np.arange(len(runs)), len(runs))
        following = np.minimum.accumulate(indices[::-1])[::-1][first]
        chosen = np.where(following <= last, following, chosen)
    codes = [len(CHAT_FIELDS) * CHAT_ROLES.index(run.role) + CHAT_FIELDS.index(run.field) for run in runs]
    has_text = offsets[:, 1] > 0
    return TokenSources(
        np.where(has_text, np.array(codes, np.int8)[chosen], np.int8(0)),
        np.where(has_text, np.array([run.message for run in runs], np.int32)[chosen], np.int32(-1)),
    )


def _get_rank(run: Run) -> int:
    if run.field in ("header", "generation_prompt") or run.message < 0:
        return 0
    if run.role == "assistant" and run.field in ANSWER_FIELDS:
        return 3
    return 1 if run.field == "scaffold" else 2
