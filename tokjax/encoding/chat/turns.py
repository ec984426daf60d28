r"""Turns of the assistant: where the text that a model writes begins and ends in a rendered conversation.

A turn begins where the generation prompt after the messages before it ends. It ends where the conversation
ends if the answer is its last message. Both are measured by rendering these messages, because templates may
write the end of a turn in front of the next message, as below, only after the last message, or never:

    messages                  rendered text
    user                      "<bom>user hi<eom>"
    user                      "<bom>user hi<eom><bom>assistant"                      with a generation prompt
    user, assistant           "<bom>user hi<eom><bom>assistant low.<eom>"
    user, assistant, user     "<bom>user hi<eom><bom>assistant low.<eom><bom>user ok<eom>"
                                                              ~~~~~~~~~~ the turn

If a template rewrites earlier messages (drops their reasoning), a rendering is not the start of the text.
Then only the text after the last text of its messages is compared. Turns with the same text in front of them
have the same bounds, so few of them are measured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokjax.encoding.chat.chat_template import RenderedTemplate
    from tokjax.encoding.chat.text_sources import SourceRun

    Render = Callable[[int, bool], RenderedTemplate | None]
    """Renders the first messages, with or without a prompt; returns `None` if the template rejects them."""

_OPEN_TAG = re.compile(r"<[^<>\s]*$")


@dataclass
class Turn:
    """Positions of an answer in the rendered text, in characters, 0-based.

    Attributes:
        before: end of the last text of a message before it.
        first: start of the text that the template writes for it.
        first_text: start of its first text.
        last_text: end of its last text.
        end: end of the text that the template writes for it.
        begin: end of the generation prompt before it, which may be within its text.
        stop: end of the turn, which may be in front of the next message.
    """

    before: int
    first: int
    first_text: int = -1
    last_text: int = -1
    end: int = -1
    begin: int = -1
    stop: int = -1


def find_turns(rendered: RenderedTemplate, roles: Sequence[str], render: Render) -> dict[int, Turn]:
    """Finds the turns of the answers that the template writes, by the index of the message.

    Args:
        rendered: the rendered text, with sources.
        roles: the role of each message.
        render: function that renders the first messages.
    """
    text, located = rendered.text, _locate_messages(rendered.runs)
    turns = {message: span for message, span in located.items() if roles[message] == "assistant"}
    prompts: dict[tuple[str, str], str] = {}  # by the role before an answer, and the text in front of it
    for message, turn in turns.items():
        key = "".join(roles[message - 1 : message]), text[turn.before : turn.first_text]
        if key not in prompts and (prompted := render(message, True)):
            prompts[key] = prompted.tail
        if key in prompts:  # the template can render the messages before it
            turn.begin = _match_begin(text, turn, prompts[key])
    header = _find_header(text, turns)
    for turn in turns.values():
        if not text[turn.first : max(turn.begin, 0)].strip():
            # The template can't render the messages before it, writes default instructions together with the
            # first message, or writes no prompt after an answer.
            header = header or _get_prompt(len(roles), render)
            turn.begin = max(turn.begin, _find_end(header, text, turn))
        if turn.begin < 0:
            turn.begin = turn.first + _match_prompt(header, text[turn.first :], turn.first_text - turn.first)
    if not header:
        _compare_first_turns(text, turns)
    ends: dict[tuple[str, str], str] = {}  # by the text after the answer in its step, and the next role
    for message, turn in turns.items():
        turn.last_text = max(turn.last_text, turn.begin)
        turn.end = max(turn.end, turn.last_text)
        key = text[turn.last_text : turn.end], "".join(roles[message + 1 : message + 2])
        if key in ends and text.startswith(ends[key], turn.last_text):
            turn.stop = turn.last_text + len(ends[key])
        else:
            turn.stop = _measure_stop(text, turn, message, len(roles), header, render)
            if turn.stop == turn.last_text and message + 1 in located:
                others = [span for i, span in located.items() if roles[i] == roles[message + 1]]
                turn.stop = _find_end_before_next(text, turn, located[message + 1], others)
            ends[key] = text[turn.last_text : turn.stop]
    return turns


def find_block_turns(rendered: RenderedTemplate, roles: Sequence[str]) -> dict[int, Turn]:
    """Finds the turns of answers with `{% generation %}` blocks: the blocks, with whitespace after them."""
    located = _locate_messages(rendered.runs)
    turns: dict[int, Turn] = {}
    for start, stop, source in rendered.runs:
        message = source.message
        if source.is_generated and message >= 0 and roles[message] == "assistant":
            if message not in turns:
                turns[message] = located[message]
                turns[message].begin = start
            turns[message].stop = stop
    for turn in turns.values():
        rest = rendered.text[turn.stop : turn.end]
        turn.stop += len(rest) - len(rest.lstrip())
    return turns


def find_prompt(rendered: RenderedTemplate, turns: dict[int, Turn], num_messages: int, render: Render) -> int:
    """Returns the position of the generation prompt at the end of a text; its length if there is none.

    Args:
        rendered: the rendered text, with sources.
        turns: the turns of the answers.
        num_messages: number of messages.
        render: function that renders the first messages.
    """
    text, runs = rendered.text, rendered.runs
    last = turns.get(num_messages - 1)
    num_before = last.stop if last else 0
    without = render(num_messages, False)
    if without is not None and without.text == text:
        header = _find_header(text, turns)  # some templates always write a generation prompt
        start = len(text.removesuffix(header))
        return start if start >= num_before else len(text)
    if without is not None and text.startswith(without.text):
        return max(len(without.text), num_before)
    # The template writes something else instead, for example a token for the end of the text.
    start, stop, source = runs[-1] if runs else (0, 0, None)
    return start if source and source.message < 0 and source.field == "scaffold" else stop


def _find_header(text: str, turns: dict[int, Turn]) -> str:
    """Returns the text of the last answer that the generation prompt provides; empty if it is whitespace."""
    headers = (text[turn.first : max(turn.begin, 0)] for turn in reversed(turns.values()))
    return next((header for header in headers if header.strip()), "")


def _locate_messages(runs: Sequence[SourceRun]) -> dict[int, Turn]:
    """Finds the texts of messages."""
    located: dict[int, Turn] = {}
    last_text = 0
    for start, stop, source in runs:
        span = None
        if source.message >= 0:
            span = located.setdefault(source.message, Turn(last_text, start))
            span.end = stop
        if source.field != "scaffold":
            if span:
                if span.first_text < 0:
                    span.before, span.first_text = last_text, start
                span.last_text = stop
            last_text = stop
    for span in located.values():
        if span.first_text < 0:
            span.first_text = span.end
    return located


def _compare_first_turns(text: str, turns: dict[int, Turn]) -> None:
    """Moves the beginning of an answer in the first message to where that of the next answer is.

    Without prompts, nothing else separates it from default instructions.
    """
    if 0 not in turns or len(turns) == 1:
        return
    first, second = islice(turns.values(), 2)
    written = text[second.begin : second.first_text]
    if written.strip() and text.endswith(written, first.begin, first.first_text):
        first.begin = first.first_text - len(written)


def _get_prompt(num_messages: int, render: Render) -> str:
    """Returns the generation prompt after all messages; empty if it can't be determined."""
    with_prompt, without = (_get_text(render(num_messages, prompt)) for prompt in (True, False))
    pairs = enumerate(zip(with_prompt, without, strict=False))
    start = next((i for i, (a, b) in pairs if a != b), len(without))  # another text may end the last message
    return with_prompt[start:] if start else ""


def _get_text(rendered: RenderedTemplate | None) -> str:
    return rendered.text if rendered else ""


def _match_begin(text: str, turn: Turn, prompt: str) -> int:
    """Returns where the prompt for an answer ends."""
    if text.startswith(prompt, turn.before):
        return turn.before + len(prompt)
    end = _find_end(prompt, text, turn)
    if end >= 0:
        return end
    num_before = turn.first_text - turn.before
    matched = turn.before + _match_prompt(prompt, text[turn.before :], num_before)
    for end in range(turn.first_text, turn.first, -1):  # a prompt may have instructions before its header
        if prompt.endswith(text[turn.first : end]) and text[turn.first : end].strip():
            return max(matched, end)
    return max(matched, turn.first)


def _find_end(prompt: str, text: str, turn: Turn) -> int:
    """Returns where a prompt ends in the text in front of an answer, after other text such as instructions.

    Returns -1 if the text does not contain it.
    """
    start = text.rfind(prompt, turn.before, turn.first_text) if prompt.strip() else -1
    return start + len(prompt) if start >= 0 else -1


def _match_prompt(prompt: str, text: str, num_before: int) -> int:
    """Returns the number of characters at the start of a text that a prompt provides.

    Differences in whitespace are ignored.

    Args:
        prompt: the prompt.
        text: the text.
        num_before: number of characters before the answer. Only a complete prompt may include more.
    """
    position = matched = 0
    for character in prompt:
        while position < len(text) and text[position] != character and text[position].isspace():
            position += 1
        if text[position : position + 1] == character:
            position += 1
            matched = position
        elif character.isspace():
            position = matched
        else:
            matched = min(matched, num_before)  # without the start of another tag
            return len(_OPEN_TAG.sub("", text[:matched]))
    return matched


def _measure_stop(text: str, turn: Turn, message: int, num_messages: int, header: str, render: Render) -> int:
    """Returns where a turn ends: where the text ends if the answer is the last message.

    Some templates write the end only in front of another message, or of a generation prompt.
    """
    tail = _get_tail(text, turn, header, render(message + 1, False))
    written = text[turn.last_text : turn.end].removesuffix(header)
    if not written.strip():
        if not tail.strip():
            prompted = _get_tail(text, turn, header, render(message + 1, True))
            start = prompted.rfind(header.strip()) if header.strip() else -1
            ended = prompted[:start] if start >= 0 else prompted  # more text may follow the header
            tail = ended if ended.strip() or not tail else tail
        return turn.last_text + len(tail)
    if not tail.strip():
        return turn.last_text + len(written)
    if not tail[len(written) :].strip():
        return turn.last_text + min(len(tail), len(written))
    if message + 1 == num_messages and turn.first < turn.first_text:
        # Text after a loop over messages ends the conversation, and not the turn, if a prompt replaces it.
        ended, prompted = (_get_text(render(num_messages, prompt)) for prompt in (False, True))
        if ended == prompted or not prompted.startswith(ended):
            tail = written
    return turn.last_text + len(tail)


def _find_end_before_next(text: str, turn: Turn, following: Turn, others: Sequence[Turn]) -> int:
    """Returns where a turn ends if the template writes its end in front of the next message.

    Then other messages of the same role begin with a part of the text in front of the next message.
    """
    between = text[turn.last_text : following.first_text]
    for other in others:
        start = text[other.first : other.first_text]
        end = between.removesuffix(start)
        if start.strip() and end.strip() and len(end) < len(between):
            return turn.last_text + len(end)
    return turn.stop


def _get_tail(text: str, turn: Turn, header: str, rendered: RenderedTemplate | None) -> str:
    """Returns what the template writes after an answer that is the last message, without a generation prompt.

    Empty if other text follows the answer.
    """
    if rendered is None:
        return ""
    is_after = len(rendered.text) - len(header) >= turn.begin
    start = rendered.text.removesuffix(header) if is_after else rendered.text
    if text.startswith(start):
        return start[turn.last_text :]
    tail = rendered.tail.removesuffix(header)
    return tail if text.startswith(tail, turn.last_text) else ""
