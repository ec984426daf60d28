"""`ChatField`, and `ConversationField`: options of chat templates that it shares with `PreferenceField`."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from tokjax._util.checks import check_choice
from tokjax._util.display import short_repr
from tokjax.datasets.columns import LOSS_MASK, Column, check_columns
from tokjax.datasets.fields.base import (
    RowsWithColumns,
    TokenField,
    check_template,
    get_options,
    set_options,
)
from tokjax.encoding.chat.encode_chat import encode_chats
from tokjax.encoding.chat.messages import (
    check_strings,
    copy_json,
    copy_messages,
    exclude_answer,
    find_control_tokens,
)
from tokjax.encoding.chat.rendering import RESERVED_VARIABLES, UNTRUSTED_VARIABLES
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from tokjax.core.encode_options import Special
    from tokjax.core.utf8 import Text
    from tokjax.encoding.chat.encode_chat import EncodedChats
    from tokjax.encoding.chat.messages import Message


_MORE_VARIABLES = "chat_template_kwargs"
VARIABLE_KEYS = (*UNTRUSTED_VARIABLES, _MORE_VARIABLES)
"""Keys of a record that are variables of chat templates, or hold a mapping of them."""

_RESERVED = ", ".join(map(repr, sorted(RESERVED_VARIABLES)))

TrainOn = Literal["all", "last"]
WithoutTargets = Literal["drop", "keep", "raise"]


class Conversation(NamedTuple):
    """A conversation to encode.

    Attributes:
        messages: its messages, from `read_messages`.
        record: record with the variables of the template.
        num_prompt: number of messages at the start whose answers are not targets.
    """

    messages: list[Message]
    record: Mapping[str, Any]
    num_prompt: int = 0


@dataclass(frozen=True)
class ConversationField(TokenField):
    """Base class of the fields of conversations. Its options are described in `ChatField`.

    Attributes:
        COMPUTED: columns that every field of the class has, and computes.
    """

    COMPUTED: ClassVar[tuple[Column, ...]] = ()

    template: str | None
    max_tokens: int | None = None
    variables: Mapping[str, Any] = dataclasses.field(default_factory=dict, kw_only=True)
    variable_keys: Sequence[str] = dataclasses.field(default=(), kw_only=True)
    date: datetime.date | str | None = dataclasses.field(default=None, kw_only=True)
    train_on: TrainOn = dataclasses.field(default="all", kw_only=True)
    without_targets: WithoutTargets = dataclasses.field(default="drop", kw_only=True)
    trust_answers: bool = dataclasses.field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        """Checks the options, and stores each in the form that the manifest reproduces."""
        if self.template is not None:
            check_template(self.template)
        elif self.variables or self.variable_keys or self.date is not None:
            raise InvalidArgumentError(
                "variables, variable_keys and date are for chat templates; pass template=, such as "
                "load_chat_template(PATH)"
            )
        columns: Sequence[Column] = check_columns(self.columns)
        columns = [*self.COMPUTED, *(column for column in columns if column not in self.COMPUTED)]
        object.__setattr__(self, "columns", columns)
        set_options(self)
        if not isinstance(self.variables, Mapping) or not RESERVED_VARIABLES.isdisjoint(self.variables):
            raise InvalidArgumentError(
                f"variables must map names of other variables of the template than {_RESERVED} to JSON data, "
                f"not be {self.variables!r:.80}"
            )
        object.__setattr__(self, "variables", copy_json(self.variables, "variables"))
        keys: Any = self.variable_keys
        is_list = isinstance(keys, (list, tuple)) and all(isinstance(key, str) for key in keys)
        if not is_list or not RESERVED_VARIABLES.isdisjoint(keys):
            raise InvalidArgumentError(
                "variable_keys must be a list of keys of records, such as ['enable_thinking'], other than "
                f"{_RESERVED}, not {keys!r:.80}"
            )
        object.__setattr__(self, "variable_keys", tuple(keys))
        object.__setattr__(self, "date", _format_date(self.date))
        for name, choices in (("train_on", TrainOn), ("without_targets", WithoutTargets)):
            check_choice(name, getattr(self, name), get_args(choices))

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return get_options(self)

    @property
    def record_keys(self) -> tuple[str, ...]:
        """Keys of a record that form the document: those of the class, and `variable_keys`."""
        return *self.RECORD_KEYS, *(key for key in self.variable_keys if key not in self.RECORD_KEYS)

    def fix_date(self, recorded: datetime.date | str | None) -> Self:
        """Returns the field with the date that `strftime_now` formats, if its template needs one.

        Args:
            recorded: date that an earlier start of the writer has recorded; `None` for the current day.
        """
        if self.date is not None or "strftime_now" not in (self.template or ""):
            return self
        return dataclasses.replace(self, date=recorded or datetime.date.today())

    def encode_messages(
        self, conversations: Sequence[Conversation], threads: int | None
    ) -> tuple[EncodedChats, NDArray[np.bool_]]:
        """Encodes conversations.

        Args:
            conversations: conversations.
            threads: number of threads that share the work, as in `encode_batch_result`.

        Returns:
            Their tokens, and whether each is a target, `bool`, shape `(num_tokens,)`.
        """
        assert self.template is not None
        special: Any = {name: getattr(self, name) for name in ("allowed_special", "disallowed_special")}
        chats = encode_chats(
            self.tokenizer,
            list(map(self._exclude_prompt, conversations)),
            self.template,
            variables=[
                {**self.variables, **self._get_variables(each.record, special["allowed_special"])}
                for each in conversations
            ],
            date=self.date,
            trust_answers=self.trust_answers,
            threads=threads,
            **special,
        )
        return chats, np.array(chats.assistant_mask, bool)

    def _exclude_prompt(self, conversation: Conversation) -> list[Message]:
        """Returns the messages, with the weight 0 for the answers that are not targets."""
        messages, _, num_prompt = conversation
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        first = max(num_prompt, answers[-1]) if self.train_on == "last" and answers else num_prompt
        excluded = {i: exclude_answer(messages[i]) for i in answers if i < first}
        return [excluded.get(i, message) for i, message in enumerate(messages)]

    def _get_variables(self, record: Mapping[str, Any], allowed_special: Special) -> dict[str, Any]:
        """Returns the variables of the template that a record has.

        `VARIABLE_KEYS` can be texts in JSON, as in datasets whose columns have one type: schemas of tools
        have different keys.

        Raises:
            DisallowedSpecialTokenError: a variable contains a special token that is not allowed.
            InvalidArgumentError: a text is not JSON, or `chat_template_kwargs` is not a mapping.
        """
        variables = {key: record[key] for key in self.variable_keys if key in record}
        for key in VARIABLE_KEYS:
            if key in record:
                variables[key] = _parse_json(key, record[key])
        more = variables.pop(_MORE_VARIABLES, {})
        if not isinstance(more, dict) or not RESERVED_VARIABLES.isdisjoint(more):
            raise InvalidArgumentError(
                f"{_MORE_VARIABLES!r} must map names of other variables than {_RESERVED} to values, not be "
                f"{more!r:.80}"
            )
        variables = {key: value for key, value in more.items() if value is not None} | variables
        others = {key: value for key, value in variables.items() if key not in UNTRUSTED_VARIABLES}
        if others:
            control = find_control_tokens(self.tokenizer, self.template or "", allowed_special)
            for key, value in others.items():
                check_strings(value, repr(key), control.not_allowed)
        return variables


def find_key(record: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Returns which one of several keys a record has; `None` if it has none of them.

    Raises:
        InvalidArgumentError: it has more than one.
    """
    present = [key for key in keys if key in record]
    if len(present) > 1:
        raise InvalidArgumentError(f"the record has {' and '.join(map(repr, present))}; remove one of them")
    return present[0] if present else None


def read_messages(record: Mapping[str, Any], key: str) -> list[Message]:
    """Returns the messages under a key of a record, in OpenAI's format. A mapping is one message.

    Raises:
        InvalidArgumentError: the value is no list of messages in OpenAI's or in ShareGPT's format.
    """
    value = record[key]
    return copy_messages([value] if isinstance(value, dict) else value, key)


def _format_date(date: object) -> str | None:
    """Returns a date as text, such as `"2026-11-27"`."""
    if date is None:
        return None
    try:
        text = date.isoformat() if type(date) is datetime.date else date
        return datetime.date.fromisoformat(text).isoformat()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "date must be a datetime.date, or text such as '2026-11-27', or None for the day on which the "
            f"dataset is started, not {date!r:.80}"
        ) from None


def _parse_json(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{key!r} is the text {value!r:.80}, not JSON: {error}") from None


_MESSAGE_KEYS = ("messages", "conversations")
_SOURCES = Column("sources", "int8", source="field")
"""Column of the role and the field of each token of a conversation."""


@short_repr
@dataclass(frozen=True)
class ChatField(ConversationField):
    """Token ids of conversations, with a loss mask of the assistant's tokens. Needs `tokjax[chat]`.

    Documents are records with `"messages"`, or with `"conversations"` as in ShareGPT's format, which
    `encode_chat` encodes. They can have variables of the
    template: `"tools"`, `"documents"`, and others in the mapping `"chat_template_kwargs"` (also as texts in
    JSON), and those of `variable_keys`. The column `loss_mask` is 1 on the tokens of the assistant. The
    dataset opens as a `PackedDataset`, and every loader of ids can load it. With
    `Column("sources", "int8", source="field")` among the columns, the role and the field of each token are
    stored, too, for `tokjax.objectives.chat_loss_mask`.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        template: chat template, as `load_chat_template` returns it.
        max_tokens: maximum number of ids per conversation. Longer ones are truncated at their end; `None` for
            no limit.
        chunk_tokens: number of ids that `PackedTokenLoader` returns per chunk by default.
        allowed_special: special tokens that are recognized in messages, as in `encode_chat`.
        disallowed_special: special tokens that raise an error in messages, as in `encode_chat`.
        columns: other side columns; their values come from the records. A column per token has one value for
            each id of the conversation.
        variables: variables of the template for all records, such as `{"enable_thinking": False}`, as JSON
            data. Those of a record take precedence.
        variable_keys: other keys of records that are variables of the template, such as
            `["enable_thinking"]`. Special tokens in their texts raise an error unless they are allowed.
        date: date that the template's `strftime_now` formats for all records: text such as `"2026-11-27"`, or
            a `datetime.date`. `None` for the day on which `write_dataset` is started, which the manifest
            keeps, so that a writer that resumes uses the same date.
        train_on: whether the tokens of `"all"` answers count in the loss, or only those of the `"last"`
            message of the assistant. Other answers are like those of the weight 0.
        without_targets: what to do with conversations of which no token counts in the loss, because they have
            no answer or `max_tokens` removes it: `"drop"` leaves them out and counts them, `"keep"` stores
            them, and `"raise"` raises an error. The first token never counts, as none comes before it.
        trust_answers: whether control tokens that are not special, such as `<think>`, are recognized in
            answers, as in `encode_chat`.
    """

    TYPE_ID: ClassVar[int] = 45
    RECORD_KEYS: ClassVar[tuple[str, ...]] = (*_MESSAGE_KEYS, *VARIABLE_KEYS)
    COMPUTED: ClassVar[tuple[Column, ...]] = (Column(LOSS_MASK, "bool", source="field"),)

    template: str
    max_tokens: int | None = None
    chunk_tokens: int = 4096
    allowed_special: Special = ()
    disallowed_special: Special = "all"
    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Checks the options, and adds the column of the loss mask."""
        check_template(self.template)
        super().__post_init__()
        for column in self.columns:
            if column.source == "field" and column not in (*self.COMPUTED, _SOURCES):
                raise InvalidArgumentError(
                    f"ChatField computes no {column}; it computes {LOSS_MASK!r} and {_SOURCES}"
                )

    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> RowsWithColumns:
        """Encodes conversations, given as JSON objects, into ids and loss masks, without truncation."""
        records = map(json.loads, texts)
        conversations = [Conversation(_read_conversation(record), record) for record in records]
        chats, is_target = self.encode_messages(conversations, threads)
        columns: dict[str, Any] = {LOSS_MASK: is_target}
        if any(column == _SOURCES for column in self.columns):
            columns[_SOURCES.name] = chats.sources
        return RowsWithColumns(chats.result.ragged, columns)


def _read_conversation(record: Mapping[str, Any]) -> list[Message]:
    key = find_key(record, _MESSAGE_KEYS)
    if key is None:
        raise InvalidArgumentError(
            f"the record has neither {' nor '.join(map(repr, _MESSAGE_KEYS))}, it has {list(record)[:20]}"
        )
    return read_messages(record, key)
