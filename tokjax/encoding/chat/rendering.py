r"""Rendered conversations, with the role, the field, the message and the mask of each character.

A template is rendered with texts that know which message they are from (`text_sources`). Renderings of the
messages before and up to an answer show where its turn begins and ends (`turns`). With the generation prompt
`"A:"`:

    text       "U: "       "hi\n"     "A:"       "low."     "\n"        "A:"
    message    0           0          1          1          1           -1
    role       user        user       assistant  assistant  assistant   assistant
    field      scaffold    content    header     content    scaffold    generation_prompt
    target     0           0          0          1          1           0

`encode_chat` gives each token the columns of its characters.
"""

from __future__ import annotations

import dataclasses
import datetime
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.imports import import_optional
from tokjax.core import protocol
from tokjax.core.utf8 import find_character_starts
from tokjax.encoding.chat.messages import (
    TOOL_ROLES,
    add_reasoning_aliases,
    check_strings,
    copy_json,
    copy_messages,
    find_control_tokens,
    find_unwritten_messages,
    list_texts,
    pop_weights,
)
from tokjax.encoding.chat.template_limits import Budget
from tokjax.encoding.chat.text_sources import Tracker
from tokjax.encoding.chat.turns import find_block_turns, find_prompt, find_turns
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError
from tokjax.objectives.losses import ANSWER_FIELDS, CHAT_FIELDS, CHAT_ROLES
from tokjax.pretokenize.special_tokens import compile_matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.encoding.chat.chat_template import ChatTemplate, RenderedTemplate
    from tokjax.encoding.chat.messages import ControlTokens, Message
    from tokjax.encoding.chat.text_sources import Source, SourceRun
    from tokjax.encoding.chat.turns import Turn

RESERVED_VARIABLES = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
"""Variables of templates that are arguments of `encode_chat`."""
UNTRUSTED_VARIABLES = ("tools", "documents")
"""Variables that are checked like messages, because they often contain text of third parties."""
_INSTRUCTIONS = ("system", "developer")
_ROLE_NAMES = {role: role for role in CHAT_ROLES} | dict.fromkeys(TOOL_ROLES, "tool")
_NUM_FIELDS = len(CHAT_FIELDS)
_SCAFFOLD, _HEADER, _PROMPT = map(CHAT_FIELDS.index, ("scaffold", "header", "generation_prompt"))
_NONE, _ASSISTANT, _OTHER = map(CHAT_ROLES.index, ("none", "assistant", "other"))
_MAX_SHOWN = 60
RANKS = np.full(len(CHAT_ROLES) * _NUM_FIELDS, 2, np.int8)
"""Rank of each role and field: text of an answer, other text of a message, scaffold, everything else."""
RANKS[_SCAFFOLD::_NUM_FIELDS] = 1
RANKS[_HEADER::_NUM_FIELDS] = RANKS[_PROMPT::_NUM_FIELDS] = 0
RANKS[[_ASSISTANT * _NUM_FIELDS + CHAT_FIELDS.index(field) for field in ANSWER_FIELDS]] = 3


class CharacterRuns(NamedTuple):
    """Runs of characters with the same columns, shape `(num_runs,)`. An empty text is one run.

    Attributes:
        starts: byte position of each run in the text, 0-based, `int64`.
        codes: the role and the field, `int8`.
        messages: index of the message, -1 outside the messages, `int32`.
        is_target: whether the text counts as a target, `bool`.
    """

    starts: NDArray[np.int64]
    codes: NDArray[np.int8]
    messages: NDArray[np.int32]
    is_target: NDArray[np.bool_]


class RenderedChat(NamedTuple):
    """A rendered conversation.

    Attributes:
        text: the text.
        literals: the control tokens in it that are ordinary text of messages, by their position.
        recognized: likewise those that are recognized, of the tokens that are not allowed in messages.
        runs: the columns of its characters; `None` without a mask.
    """

    text: str
    literals: dict[int, str]
    recognized: dict[int, str]
    runs: CharacterRuns | None


class ChatRenderer:
    """A compiled template with the options of `encode_chat`, which renders conversations.

    Args:
        tokenizer: any registered tokenizer.
        template: the Jinja template.
        options: all options of `encode_chat`.

    Attributes:
        control: the control tokens of the tokenizer.
    """

    def __init__(self, tokenizer: Any, template: str, options: Mapping[str, Any]) -> None:
        if options["add_generation_prompt"] and options["continue_final_message"]:
            raise InvalidArgumentError(
                "add_generation_prompt begins another message, and continue_final_message ends within the "
                "last one; pass one of them"
            )
        templates = import_optional("tokjax.encoding.chat.chat_template", extra="chat", purpose="encode_chat")
        self._source, self._options = template, options
        self._template: ChatTemplate = templates.compile_template(template)
        special = {name: options[name] for name in ("allowed_special", "disallowed_special", "trust_answers")}
        self.control = find_control_tokens(tokenizer, template, **special)
        now = datetime.datetime.now() if options["date"] is None else options["date"]
        tokens = {f"{role}_token": name for role, name in protocol.get_vocabulary(tokenizer).roles.items()}
        self._variables = {"strftime_now": templates.make_clock(now)} | tokens
        self._max_characters = check_int("max_characters", options["max_characters"], minimum=1)

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None
    ) -> RenderedChat:
        """Renders a conversation. The arguments are those of `encode_chat`."""
        _check_variables({} if variables is None else variables)
        copied = copy_messages(messages)
        excluded = pop_weights(copied)
        self.control.check(copied)
        own = copy_json({"tools": None, "documents": None, **(variables or {})}, "variables")
        check_strings({name: own[name] for name in UNTRUSTED_VARIABLES}, "variables", self.control.disallowed)
        prompt = bool(self._options["add_generation_prompt"])
        conversation = _Conversation(
            self._template,
            self._variables | own,
            Budget(self._max_characters),
            copied,
            self._options["continue_final_message"],
        )
        rendered = conversation.render(copied, prompt)
        conversation.known[len(copied), prompt] = rendered
        literals, recognized = _find_literals(rendered, copied, self.control)
        _check_contents(conversation, rendered.runs, self._source, prompt)
        runs = None
        if self._options["mask"]:
            runs = _find_runs(
                conversation, rendered, excluded, has_blocks=self._template.has_generation_blocks
            )
        return RenderedChat(rendered.text, literals, recognized, runs)


def _check_variables(variables: Mapping[str, Any]) -> None:
    if not isinstance(variables, Mapping):
        raise InvalidArgumentError(f"variables must map names to values, not be {variables!r:.80}")
    for name in sorted(RESERVED_VARIABLES):
        if name in variables:
            raise InvalidArgumentError(f"variables has {name!r}; pass it as an argument of encode_chat")


@dataclass
class _Conversation:
    """A conversation with the template that renders it.

    Attributes:
        template: the template.
        variables: its variables.
        budget: the budget of all renderings.
        messages: the messages.
        is_continued: whether to end within the last message.
        known: renderings of the first messages, by their number and whether they have a generation prompt.
    """

    template: ChatTemplate
    variables: dict[str, Any]
    budget: Budget
    messages: list[Message]
    is_continued: bool
    known: dict[tuple[int, bool], RenderedTemplate | None] = dataclasses.field(default_factory=dict)

    def render(self, messages: list[Message], prompt: bool) -> RenderedTemplate:
        """Renders messages, and follows the sources of their texts."""
        completed = add_reasoning_aliases(messages)
        variables = self.variables | {"messages": completed, "add_generation_prompt": prompt}
        tracker = Tracker({i for i, message in enumerate(messages) if message["role"] == "assistant"})
        sourced = {name: tracker.copy(variables[name]) for name in UNTRUSTED_VARIABLES}
        sourced["messages"] = tracker.add_sources(completed)
        rendered = self.template.render(variables | sourced, self.budget, tracker)
        if tracker.has_markup and self.template.render(variables, self.budget).text != rendered.text:
            raise InvalidArgumentError(
                "the chat template adds text to the result of the filter 'safe' or 'e', which escapes it; "
                "write each text in its own {{ }}"
            )
        is_cut = self.is_continued and len(messages) == len(self.messages)
        return _cut(rendered, messages) if is_cut else rendered

    def try_render(self, messages: list[Message], prompt: bool) -> RenderedTemplate | None:
        """Renders messages; returns `None` if the template rejects them."""
        try:
            return self.render(messages, prompt)
        except InvalidArgumentError:  # for example, it needs a message of the user, or takes no lists
            if self.budget.remaining < 0:  # the limit of work is an error of the template
                raise
            return None

    def render_first(self, num_messages: int, prompt: bool) -> RenderedTemplate | None:
        """Renders the first messages; returns `None` if the template rejects them."""
        key = num_messages, prompt
        if key not in self.known:
            self.known[key] = self.try_render(self.messages[:num_messages], prompt)
        return self.known[key]


def _cut(rendered: RenderedTemplate, messages: list[Message]) -> RenderedTemplate:
    """Removes the text after the content of the last message."""
    content = messages[-1].get("content") if messages else None
    written = "".join(list_texts(content)).rstrip()
    if not written:
        raise InvalidArgumentError(
            "continue_final_message=True ends after the content of the last message, which is "
            f"{content!r:.80}; pass messages whose last one has a text"
        )
    last = len(messages) - 1, "tool_result" if messages[-1]["role"] in TOOL_ROLES else "content"
    end = max((stop for _, stop, source in rendered.runs if source[:2] == last), default=0)
    if not rendered.text[:end].rstrip().endswith(written[-1]):
        raise InvalidArgumentError(
            "the chat template does not write the end of the last message, where "
            "continue_final_message=True ends"
        )
    return rendered._replace(
        text=rendered.text[:end],
        runs=[(start, min(stop, end), source) for start, stop, source in rendered.runs if start < end],
    )


def _find_literals(
    rendered: RenderedTemplate, messages: list[Message], control: ControlTokens
) -> tuple[dict[int, str], dict[int, str]]:
    """Finds the control tokens in a rendered text that are ordinary text of messages.

    Returns:
        These tokens by their position, and likewise the others that are not allowed in messages.

    Raises:
        DisallowedSpecialTokenError: text of messages becomes a disallowed token, or a part of a token.
    """
    literals: dict[int, str] = {}
    recognized: dict[int, str] = {}
    if not control.not_allowed:
        return literals, recognized
    runs = rendered.runs
    stops = [stop for _, stop, _ in runs]

    def is_recognized(source: Source, name: str) -> bool:
        is_text = source.field in ("content", "reasoning") and name in control.trusted
        is_own = is_text and messages[source.message]["role"] == "assistant"
        return (is_own or source.field == "scaffold") and not (source.is_foreign or source.lost_by)

    for match in compile_matcher(control.names).finditer(rendered.text):
        name = match[0]
        if name not in control.not_allowed:
            continue
        parts = runs[bisect_right(stops, match.start()) : bisect_left(stops, match.end()) + 1]
        if all(is_recognized(source, name) for *_, source in parts):
            recognized[match.start()] = name
        elif name in control.disallowed or len(parts) > 1 or parts[0][2].lost_by:
            lost_by = next((f" with {source.lost_by}" for *_, source in parts if source.lost_by), "")
            raise DisallowedSpecialTokenError(
                f"with these messages the chat template makes {name!r} of a text, a name or a key of the "
                f"messages, tools or documents{lost_by}, which would become a special token. If this is "
                f"intended, pass allowed_special={{{name!r}}}"
            )
        else:
            literals[match.start()] = name
    return literals, recognized


def _check_contents(
    conversation: _Conversation, runs: Sequence[SourceRun], template: str, prompt: bool
) -> None:
    """Checks that the template writes each message that has a text, unless the sources of a text were lost.

    Args:
        conversation: the conversation.
        runs: the sources of the text that the template writes for it.
        template: the Jinja template, for the error.
        prompt: whether the text ends with a generation prompt.

    Raises:
        InvalidArgumentError: nothing is written of the texts of a message.
    """
    messages = conversation.messages
    written = {(source.message, source.field) for *_, source in runs}
    unwritten = find_unwritten_messages(messages, written)
    if any(source.lost_by for *_, source in runs):
        return

    def is_written(i: int, fields: Sequence[str], messages: list[Message], with_prompt: bool) -> bool:
        rendered = conversation.try_render(messages, with_prompt)
        sources = [source for *_, source in rendered.runs] if rendered else []
        return any(source.message == i and source.field in fields for source in sources)

    for i, part, fields in unwritten:
        message = messages[i]
        role, content = message["role"], message.get("content")
        # Mistral's templates write instructions with the last question, and only while it has no answer.
        question = next((j for j in range(i, len(messages)) if messages[j]["role"] == "user"), i)
        if role in _INSTRUCTIONS and is_written(i, fields, messages[: question + 1], True):
            continue
        problem = "the template writes lists of parts"
        other: list[Any] | None = [{"type": "text", "text": content}]
        if not content or not str(content).strip():
            problem, other = "the template writes tool calls if it is null", None
        others = [*messages[:i], message | {"content": other}, *messages[i + 1 :]]
        if isinstance(content, str) and is_written(i, fields, others, prompt):
            example = {"role": role, "content": other and [{"type": "text", "text": "..."}]}
            raise InvalidArgumentError(
                f"the chat template {template!r:.60}... drops messages[{i}], because its content is a "
                f"text and {problem}; pass the message as {example}"
            )
        dropped = f"messages[{i}]" if part is message else f"{list(part)} of messages[{i}]"
        raise InvalidArgumentError(
            f"the chat template {template!r:.60}... writes no text of {dropped}, which has the role {role!r} "
            f"and the keys {list(message)[:20]}; pass a role and keys that the template reads, or remove the "
            "message"
        )


def _find_runs(
    conversation: _Conversation, rendered: RenderedTemplate, excluded: list[int], *, has_blocks: bool
) -> CharacterRuns:
    """Finds the columns of the characters of a rendered conversation.

    Args:
        conversation: the conversation.
        rendered: its text with sources.
        excluded: indices of the answers that do not count.
        has_blocks: whether the template has `{% generation %}` blocks. Then these are the targets, and text
            whose sources were lost becomes scaffold outside the messages.

    Raises:
        InvalidArgumentError: the sources of a part of the text were lost, or the tokens of an answer that
            does not count are not known.
    """
    roles = [message["role"] for message in conversation.messages]
    if not has_blocks:
        _check_known(rendered)
    turns = (
        find_block_turns(rendered, roles)
        if has_blocks
        else find_turns(rendered, roles, conversation.render_first)
    )
    prompt_start = find_prompt(rendered, turns, len(roles), conversation.render_first)
    origins = [(-1, "scaffold") if source.lost_by else source[:2] for *_, source in rendered.runs]
    lengths = [stop - start for start, stop, _ in rendered.runs]
    messages = np.repeat(np.array([message for message, _ in origins], np.int32), lengths)
    fields = np.repeat(np.array([CHAT_FIELDS.index(field) for _, field in origins], np.int8), lengths)
    _assign_turns(messages, fields, turns, len(roles))
    fields[prompt_start:], messages[prompt_start:] = _PROMPT, -1
    _assign_text_outside_loops(messages, fields)
    numbers = [CHAT_ROLES.index(_ROLE_NAMES.get(role, "other")) for role in roles]
    codes = np.array([*numbers, _NONE], np.int8)[messages]
    codes[prompt_start:] = _ASSISTANT
    codes = codes * np.int8(_NUM_FIELDS) + fields
    is_target = RANKS.take(codes) == 3
    if has_blocks:
        is_target = np.repeat([source.is_generated for *_, source in rendered.runs], lengths)
    if excluded:
        _exclude_messages(excluded, messages, codes, is_target)
    return _make_runs(rendered.text, codes, messages, is_target)


def _make_runs(
    text: str, codes: NDArray[np.int8], messages: NDArray[np.int32], is_target: NDArray[np.bool_]
) -> CharacterRuns:
    if not text:
        return CharacterRuns(
            np.zeros(1, np.int64), np.zeros(1, np.int8), np.full(1, -1, np.int32), np.zeros(1, bool)
        )
    keys = (messages.astype(np.int64) << 8) + 2 * codes + is_target
    starts = np.append(0, np.flatnonzero(keys[1:] != keys[:-1]) + 1)
    bounds = find_character_starts(text)[starts]
    return CharacterRuns(bounds, codes[starts], messages[starts], is_target[starts])


def _check_known(rendered: RenderedTemplate) -> None:
    """Raises `InvalidArgumentError` if the sources of a part of a text were lost."""
    for start, stop, source in rendered.runs:
        if source.lost_by:
            shown = rendered.text[start:stop][:_MAX_SHOWN]
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


def _exclude_messages(
    excluded: list[int],
    messages: NDArray[np.int32],
    codes: NDArray[np.int8],
    is_target: NDArray[np.bool_],
) -> None:
    """Removes answers from the targets, and gives their text the role `other`, which no mask counts.

    Text after all messages, such as an EOS token after a loop, belongs to the last message.

    Raises:
        InvalidArgumentError: a target is not known to be of a message.
    """
    owners = messages.copy()
    last = np.flatnonzero(messages >= 0).max(initial=-1)
    owners[last + 1 :] = messages[last] if last >= 0 else -1
    if is_target[owners < 0].any():
        raise InvalidArgumentError(
            "the chat template combines texts of several messages, so that the answers that count can't be "
            "told from others, which are in a prompt or have the weight 0; use a template that writes one "
            "message after the other"
        )
    is_excluded = np.isin(owners, excluded)
    codes[is_excluded] = codes[is_excluded] % _NUM_FIELDS + _NUM_FIELDS * _OTHER
    is_target[is_excluded] = False
