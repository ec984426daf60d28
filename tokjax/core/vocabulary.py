"""The table between ids and the bytes of tokens, with the special tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax.core.template import Template, make_template, template_from_json, template_to_json
from tokjax.errors import Hint, InvalidArgumentError, MissingSpecialTokenError, UnknownTokenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

ID_BITS = 21
"""Three ids fit 64 bits, and tables by id stay small."""
MAX_ID = (1 << ID_BITS) - 3
"""The largest id; the two numbers above it are left for marks."""

Role = Literal["bos", "eos", "pad", "unk"]
ROLES: tuple[Role, ...] = ("bos", "eos", "pad", "unk")
_MAX_SHOWN = 8
_TEMPLATE_ROLES: tuple[Role, Role] = ("bos", "eos")


class _TokenIndex(NamedTuple):
    """All tokens, and where the token of each id is among them: what is needed to look a few ids up.

    Attributes:
        tokens: their bytes.
        where: `int64`, shape `(size,)`; -1 where an id has no token.
    """

    tokens: list[bytes]
    where: NDArray[np.int64]


class AddedToken(NamedTuple):
    """Which white space beside a token that is found in a text becomes part of it.

    Attributes:
        lstrip: that before it.
        rstrip: that behind it.
    """

    lstrip: bool = False
    rstrip: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """Ids and the exact bytes that they stand for. Make one with `make_vocabulary`.

    Ids need not be consecutive. An ordinary token and a special token may have the same bytes, under two
    ids.

    Attributes:
        ordinary: bytes to id, of every token that is not special.
        special: name to id, of every special token, in the order of their ids.
        roles: which special token begins, ends, pads a sequence or stands for the unknown.
        explicit_template: what is put around texts, if that is not the BOS before and the EOS behind each.
        added_tokens: the ordinary tokens that are found in a text wherever they stand, before it is split, and the
            special ones that take white space with them.
        duplicate_token_ids: the ids of those added tokens whose bytes are an ordinary token's, too.
    """

    ordinary: Mapping[bytes, int] = field(repr=False)
    special: Mapping[str, int]
    roles: Mapping[Role, str]
    explicit_template: Template | None = None
    added_tokens: Mapping[str, AddedToken] = field(default_factory=lambda: MappingProxyType({}))
    duplicate_token_ids: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the call that makes it, without the tables that are derived from it."""
        options = (
            dict(self.roles),
            self.explicit_template,
            dict(self.added_tokens),
            dict(self.duplicate_token_ids),
        )
        return make_vocabulary, (dict(self.ordinary), dict(self.special), *options)

    def __hash__(self) -> int:
        """Equal vocabularies have equal hashes."""
        return hash((len(self.ordinary), tuple(self.special.items()), self.size))

    @property
    def special_repr(self) -> str:
        """The special tokens as a `repr` shows them: the first few."""
        shown = ", ".join(f"{name!r}: {id_}" for name, id_ in list(self.special.items())[:_MAX_SHOWN])
        more = len(self.special) - _MAX_SHOWN
        return f"{{{shown}, and {more} more}}" if more > 0 else f"{{{shown}}}"

    @cached_property
    def size(self) -> int:
        """The largest id plus one."""
        tables = (self.ordinary, self.special, self.duplicate_token_ids)
        return 1 + max(max(table.values(), default=-1) for table in tables)

    @cached_property
    def template(self) -> Template:
        """What is put around texts."""
        if self.explicit_template is not None:
            return self.explicit_template
        before, after = ([f"{self.roles[role]}:0"] if role in self.roles else [] for role in _TEMPLATE_ROLES)
        return make_template([*before, "$A:0", *after])

    @cached_property
    def special_names(self) -> frozenset[str]:
        """The names of all special tokens."""
        return frozenset(self.special)

    @cached_property
    def template_token_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that the template inserts before a single text, and those that it inserts after it."""
        before, after = (
            tuple(self.special[index.token] for index in places if index.token)
            for places in self.template.around_text
        )
        return before, after

    @cached_property
    def added_names(self) -> frozenset[str]:
        """The ordinary tokens that are found in a text wherever they stand."""
        return frozenset(self.added_tokens) - self.special_names

    @cached_property
    def mergeable(self) -> dict[bytes, int]:
        """The ordinary tokens, but for those that are found in a text before it is split."""
        found = {name.encode("utf-8") for name in self.added_names if name not in self.duplicate_token_ids}
        return {token: id_ for token, id_ in self.ordinary.items() if token not in found}

    @cached_property
    def split_token_names(self) -> frozenset[str]:
        """The tokens at which a text is parted before it is split, if they are to be recognised."""
        return self.added_names | self.special_names

    @cached_property
    def _index(self) -> _TokenIndex:
        names = *self.special, *self.duplicate_token_ids
        tokens = [*self.ordinary, *(name.encode("utf-8") for name in names)]
        ids = chain(self.ordinary.values(), self.special.values(), self.duplicate_token_ids.values())
        where = np.full(self.size, -1, np.int64)
        where[np.fromiter(ids, np.int64, len(tokens))] = np.arange(len(tokens))
        return _TokenIndex(tokens, where)

    @cached_property
    def bytes_by_id(self) -> Mapping[int, bytes]:
        """The exact bytes of every id, in the order of ids."""
        tokens, where = self._index
        ids = np.flatnonzero(where >= 0)
        in_order = map(tokens.__getitem__, where[ids].tolist())
        return MappingProxyType(dict(zip(ids.tolist(), in_order, strict=True)))

    @cached_property
    def byte_lengths(self) -> NDArray[np.int64]:
        """How many bytes each id stands for, `int64` of shape `(size,)`; -1 where there is no token."""
        tokens, where = self._index
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        lengths = np.append(lengths, -1).take(where, mode="wrap")  # (a place of -1 is that of the last)
        lengths.setflags(write=False)
        return lengths

    @cached_property
    def all_bytes(self) -> NDArray[np.uint8]:
        """The bytes of all tokens, end to end, in the order of ids: `uint8`, one dimension."""
        return np.frombuffer(b"".join(self.bytes_by_id.values()), np.uint8)

    @cached_property
    def byte_starts(self) -> NDArray[np.int64]:
        """Where the bytes of each id start in `all_bytes`, `int64` of shape `(size,)`."""
        lengths = np.maximum(self.byte_lengths, 0)
        starts = np.cumsum(lengths) - lengths
        starts.setflags(write=False)
        return starts

    @cached_property
    def is_special(self) -> NDArray[np.bool_]:
        """Which ids are special tokens, `bool` of shape `(size,)`."""
        special = np.zeros(self.size, bool)
        special[list(self.special.values())] = True
        special.setflags(write=False)
        return special

    @cached_property
    def strings(self) -> NDArray[np.object_]:
        """The readable form of every id, shape `(size,)`; `None` where there is no token."""
        strings = np.full(self.size, None, object)
        strings[list(self.bytes_by_id)] = [format_token(token) for token in self.bytes_by_id.values()]
        strings.setflags(write=False)
        return strings

    @cached_property
    def _string_cache(self) -> NDArray[np.object_]:
        """The readable forms of the ids that `get_token_strings` was asked for so far; `None` for all others."""
        return np.full(self.size, None, object)

    def get_token_strings(self, ids: NDArray[np.int32]) -> tuple[str, ...]:
        """Returns the readable forms of ids, shape `(n,)`, that the vocabulary holds.

        Each form is computed when it is first needed: a short text does not pay for the whole vocabulary.
        """
        strings: list[str | None] = self._string_cache.take(ids).tolist()
        if None in strings:
            for id_ in set(ids.tolist()):
                self._string_cache[id_] = format_token(self.get_bytes(id_))
            strings = self._string_cache.take(ids).tolist()
        return tuple(strings)  # type: ignore[arg-type]

    def get_id(self, token: str | bytes) -> int:
        """The id of a special token's name, or of an ordinary token's text or bytes."""
        if isinstance(token, str):
            if token in self.special:
                return self.special[token]
            if token in self.duplicate_token_ids:
                return self.duplicate_token_ids[token]
            token_bytes = token.encode("utf-8", "surrogatepass")
        else:
            token_bytes = token
        if token_bytes not in self.ordinary:
            raise UnknownTokenError(
                f"the vocabulary has no token {token!r}; special tokens are asked for by name (str), tokens "
                "that are no UTF-8 by their bytes"
            )
        return self.ordinary[token_bytes]

    def get_bytes(self, id_: int) -> bytes:
        """The exact bytes of an id."""
        tokens, where = self._index
        index = where[id_] if 0 <= id_ < self.size else -1
        if index < 0:
            raise UnknownTokenError(f"the vocabulary has no id {id_}; {self._describe_ids()}")
        return tokens[index]

    def check_ids(self, ids: NDArray[Any]) -> None:
        """Raise `UnknownTokenError`, naming the first, if any of the ids, shape `(n,)`, has no token."""
        valid = (ids >= 0) & (ids < self.size)
        valid &= self.byte_lengths.take(np.where(valid, ids, 0)) >= 0
        if not valid.all():
            index = int(np.flatnonzero(~valid)[0])
            raise UnknownTokenError(
                f"the vocabulary has no id {ids[index]} (at position {index}); {self._describe_ids()}"
            )

    def get_role_id(self, role: Role) -> int | None:
        """The id of the token with this role, or `None` where none was declared."""
        name = self.roles.get(role)
        return None if name is None else self.special[name]

    def require_role(self, role: Role, purpose: str) -> int:
        """The id of the token with this role; an error that names `purpose` where there is none."""
        id_ = self.get_role_id(role)
        if id_ is None:
            names = f"one of its special tokens {list(self.special)}"
            make = f"make it with {role}_token=NAME, {names}"
            raise MissingSpecialTokenError(
                f"{purpose} needs the tokenizer's {role} token, and it declares none",
                hint=Hint(make, f"pass --eos-token NAME, {names}" if role == "eos" else make),
            )
        return id_

    def _describe_ids(self) -> str:
        holes = self.size - len(self.bytes_by_id)
        return f"ids go from 0 to {self.size - 1}" + (f", with {holes} holes" if holes else "")


def make_vocabulary(
    ordinary: Mapping[bytes, int],
    special: Mapping[str, int] | None = None,
    roles: Mapping[Role, str | None] | None = None,
    template: Template | None = None,
    added_tokens: Mapping[str, AddedToken] | None = None,
    duplicate_token_ids: Mapping[str, int] | None = None,
) -> Vocabulary:
    """A checked `Vocabulary`.

    Args:
        ordinary: bytes to id, of every token that is not special; no empty token.
        special: name to id, of every special token.
        roles: `"bos"`, `"eos"`, `"pad"` or `"unk"` to the name of a special token.
        template: what is put around texts (see `make_template`); `None` for the BOS before and the EOS behind
            each.
        added_tokens: tokens, special or not, that are found in a text wherever they stand, and which white space
            they take with them.
        duplicate_token_ids: name to id, of added tokens whose bytes are those of an ordinary token, too.

    Raises:
        InvalidArgumentError: an id is negative, above 2,097,149 or used twice; a token is empty; a role
            or the template names a token that is not among the special ones; or there is no token of an added
            one's name.

    >>> make_vocabulary({b"a": 0, b"b": 1}, {"<eos>": 2}, {"eos": "<eos>"}).get_role_id("eos")
    2
    """
    special = special or {}
    _check_mapping("ranks", ordinary, bytes)
    _check_mapping("special_tokens", special, str)
    duplicate_token_ids = duplicate_token_ids or {}
    _check_tokens(ordinary, (*special.items(), *duplicate_token_ids.items()))
    declared = {role: name for role, name in (roles or {}).items() if name is not None}
    for role, name in declared.items():
        if name not in special:
            raise InvalidArgumentError(
                f"{role}_token is {name!r}, which is not among the special tokens {list(special)}; "
                f"add it: special_tokens={{{name!r}: ID, ...}}"
            )
    if template is not None:
        template.check_tokens(special)
    for name in added_tokens or {}:
        if name not in special and name.encode("utf-8") not in ordinary:
            raise InvalidArgumentError(f"the added token {name!r} has no id; give it one among the tokens")
    return Vocabulary(
        MappingProxyType(dict(zip(map(bytes, ordinary), map(int, ordinary.values()), strict=True))),
        MappingProxyType({name: int(id_) for name, id_ in sorted(special.items(), key=lambda item: item[1])}),
        MappingProxyType({role: declared[role] for role in ROLES if role in declared}),
        template,
        MappingProxyType(
            {name: AddedToken(*added_token) for name, added_token in (added_tokens or {}).items()}
        ),
        MappingProxyType(dict(duplicate_token_ids)),
    )


def vocabulary_to_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """The special tokens, their roles and the template as plain JSON values."""
    declared: dict[str, Any] = {
        "special_tokens": dict(vocabulary.special),
        **{f"{role}_token": vocabulary.roles.get(role) for role in ROLES},
    }
    if vocabulary.explicit_template is not None:
        declared["template"] = template_to_json(vocabulary.explicit_template)
    if vocabulary.added_tokens:
        declared["added"] = {name: list(added_token) for name, added_token in vocabulary.added_tokens.items()}
    if vocabulary.duplicate_token_ids:
        declared["twins"] = dict(vocabulary.duplicate_token_ids)
    return declared


def vocabulary_from_json(ordinary: Mapping[bytes, int], described: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of some tokens, with what `vocabulary_to_json` described."""
    roles: dict[Role, str | None] = {role: described[f"{role}_token"] for role in ROLES}
    template = template_from_json(described.get("template"))
    added_tokens = {
        name: AddedToken(*added_token) for name, added_token in described.get("added", {}).items()
    }
    duplicate_token_ids = described.get("twins", {})
    return make_vocabulary(
        ordinary, described["special_tokens"], roles, template, added_tokens, duplicate_token_ids
    )


def format_token(token: bytes) -> str:
    r"""A token for people to read: its text, with every byte that is no UTF-8 as `\xNN`.

    >>> format_token("é".encode()), format_token(b"\xc3")
    ('é', '\\xc3')
    """
    return token.decode("utf-8", "backslashreplace")


def _check_mapping(name: str, mapping: object, key_type: type) -> None:
    if not isinstance(mapping, Mapping):
        raise InvalidArgumentError(f"{name} must map tokens to ids, not be a {type(mapping).__name__}")
    if not all(issubclass(kind, key_type) for kind in set(map(type, mapping))):
        token = next(token for token in mapping if not isinstance(token, key_type))
        raise InvalidArgumentError(f"{name} must have keys of {key_type.__name__}, not {token!r}")


def _check_tokens(ordinary: Mapping[bytes, int], others: Sequence[tuple[str, int]]) -> None:
    """Raises `InvalidArgumentError` for a token or an id that can't be, and for an id of two tokens.

    A vocabulary of plain integers is checked as a whole, and token by token only if something is wrong.
    """
    ids = list(ordinary.values())
    distinct_ids = set(ids) if set(map(type, ids)) <= {int} else set()
    in_range = len(distinct_ids) == len(ids) and min(ids, default=0) >= 0 and max(ids, default=0) <= MAX_ID
    alone: Iterable[tuple[str | bytes, int]] = others
    if not in_range or b"" in ordinary or not distinct_ids.isdisjoint(id_ for _, id_ in others):
        alone = (*ordinary.items(), *others)
    owner: dict[int, str | bytes] = {}
    for token, id_ in alone:
        _check_token(token, id_)
        if id_ in owner:
            raise InvalidArgumentError(f"id {id_} is given to both {owner[id_]!r} and {token!r}")
        owner[id_] = token


def _check_token(token: str | bytes, id_: int) -> None:
    if len(token) == 0:
        raise InvalidArgumentError(f"the token with id {id_} is empty; a token has at least one byte")
    if isinstance(id_, bool) or not isinstance(id_, (int, np.integer)):
        raise InvalidArgumentError(f"the id of {token!r} is {id_!r}; ids are integers")
    if not 0 <= id_ <= MAX_ID:
        raise InvalidArgumentError(f"the id of {token!r} is {id_}; ids go from 0 to {MAX_ID}")
    if isinstance(token, str):
        try:
            token.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"special token {token!r} has a lone surrogate") from None
