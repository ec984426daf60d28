r"""The role, the field and the message of each token of a conversation.

The rendered text has a source for each run of characters (`text_sources`). Here the literal text in front of
an answer is recognized as its header, and each token gets one run. With the generation prompt `"A:"`:

    text       "U: "       "hi\n"     "A:"       "low."     "\n"        "A:"
    message    0           0          1          1          1           -1
    role       user        user       assistant  assistant  assistant   assistant
    field      scaffold    content    header     content    scaffold    generation_prompt
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.encoding.chat.text_sources import TOOL_ROLES, get_runs
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.completion_masks import ANSWER_FIELDS, ANSWER_TEXTS, CHAT_FIELDS, CHAT_ROLES
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.encoding.chat.text_sources import SourcedText

_ROLE_NAMES = {role: role for role in CHAT_ROLES} | dict.fromkeys(TOOL_ROLES, "tool")
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
    text: SourcedText, roles: Sequence[Any], prompt: str, num_before_prompt: int, *, allow_lost: bool
) -> list[Run]:
    """Lists the runs of a rendered conversation, which cover it.

    Args:
        text: the rendered text.
        roles: the role of each message.
        prompt: the generation prompt that the template writes before an answer.
        num_before_prompt: number of characters before the generation prompt at the end of the text.
        allow_lost: whether text whose sources were lost becomes scaffold outside the messages.

    Raises:
        InvalidArgumentError: the sources of a part of the text were lost.
    """
    names = [_ROLE_NAMES.get(role, "other") if isinstance(role, str) else "other" for role in roles]
    plain = str.__str__(text)
    runs: list[Run] = []
    started: set[int] = set()
    for start, stop, source in get_runs(text):
        message, field = source.message, source.field
        if source.lost_by:
            if not allow_lost:
                shown = plain[start:stop]
                raise InvalidArgumentError(
                    f"the chat template makes {shown[:_MAX_SHOWN]!r} with {source.lost_by}, which combines "
                    "texts of different origin, so that the assistant's tokens can't be determined. Pass "
                    "mask=False to get the ids without a mask, or put {% generation %} and "
                    "{% endgeneration %} around the assistant's text in the template"
                )
            message, field = -1, "scaffold"
        role = names[message] if message >= 0 else "none"
        split = start
        if role == "assistant" and message not in started:
            started.add(message)
            if field == "scaffold":
                split += _measure_header(plain[start:stop], prompt)
        runs.append(Run(start, split, message, role, "header"))
        end = min(stop, max(split, num_before_prompt))
        runs.append(Run(split, end, message, role, field))
        runs.append(Run(end, stop, -1, "assistant", "generation_prompt"))
    runs = [run for run in runs if run.start < run.stop]
    _assign_text_outside_loops(runs)
    return runs


def _assign_text_outside_loops(runs: list[Run]) -> None:
    """Assigns text that the template writes outside of loops to the message that it is a part of.

    That is text between two texts of a message. It is also text after the last message, if that is an answer
    and the template has written nothing else after it, or nothing for it before it: templates without a loop
    over messages write the end of an answer there, or `{{ eos_token }}` after the loop.
    """
    known = [i for i, run in enumerate(runs) if run.message >= 0]
    for first, last in pairwise([*known, len(runs)]):
        before = runs[first]
        if last < len(runs):
            belongs = before.message == runs[last].message
        else:
            start = next(run for run in runs if run.message == before.message)
            belongs = before.role == "assistant" and not {before.field, start.field}.isdisjoint(ANSWER_TEXTS)
        if belongs:
            for i in range(first + 1, last):
                if runs[i].field == "scaffold":
                    runs[i] = runs[i]._replace(message=before.message, role=before.role)


def _measure_header(text: str, prompt: str) -> int:
    """Returns how many characters at the start of a message are text of the generation prompt."""
    common = next((i for i, pair in enumerate(zip(text, prompt, strict=False)) if pair[0] != pair[1]), None)
    if common is None:
        return min(len(text), len(prompt))
    core = prompt.strip()  # the template may write other whitespace around it
    start = text.find(core) if core else -1
    return start + len(core) if start >= 0 and not text[:start].strip() else common


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
