"""Vocabularies: mappings between ids and the bytes of tokens, with special tokens and their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax._util.checks import check_int, check_text
from tokjax._util.display import short_repr
from tokjax.core.json_records import register_record
from tokjax.core.records import freeze
from tokjax.core.template import Template, make_template
from tokjax.errors import Hint, InvalidArgumentError, MissingSpecialTokenError, UnknownTokenError

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    from numpy.typing import NDArray

ID_BITS = 21
"""Number of bits of an id. Three ids fit a 64-bit key, and tables that are indexed by id stay small."""
MAX_ID = (1 << ID_BITS) - 3
"""Largest valid id. The two numbers above it are reserved for sentinels."""

Role = Literal["bos", "eos", "pad", "unk", "cls", "sep", "mask"]
LOOKUP_ROLES: tuple[Role, ...] = ("cls", "sep", "mask")
"""Roles that do not change the encoding of texts; models and objectives look up their ids.

They are not part of fingerprints.
"""
ROLES: tuple[Role, ...] = ("bos", "eos", "pad", "unk", *LOOKUP_ROLES)
_MAX_SHOWN_TOKENS = 8
TEMPLATE_ROLES: tuple[Role, Role] = ("bos", "eos")
"""Roles of the tokens before and after each text, without an explicit template."""


class AddedToken(NamedTuple):
    """Options of an added token: the adjacent whitespace in a text that becomes part of it.

    Attributes:
        lstrip: include whitespace before the token.
        rstrip: include whitespace after the token.
    """

    lstrip: bool = False
    rstrip: bool = False


@short_repr
@dataclass(frozen=True)
class Vocabulary:
    """Ids and the exact bytes of their tokens. Make one with `make_vocabulary`.

    Ids need not be consecutive. An ordinary token and a special token can have the same bytes, with two ids.

    Attributes:
        ordinary: mapping of bytes to ids, of all tokens that are not special.
        special: mapping of names to ids, of all special tokens, in the order of their ids. Several names can
            have one id, which is decoded to the first of them.
        roles: mapping of roles to names of special tokens: `"bos"`, `"eos"`, `"pad"`, `"unk"`, and `"cls"`,
            `"sep"`, `"mask"`. The last three can also be ordinary tokens, such as user-defined symbols.
        explicit_template: special tokens around texts; `None` for BOS before and EOS after each text.
        added_tokens: ordinary tokens that are matched anywhere in a text before it is split, and special
            tokens that include adjacent whitespace.
        duplicate_token_ids: mapping of names to ids, of added tokens that have the same bytes as an ordinary
            token. If the ids are also the same, the model can make the token of text as well. A special token
            can be such a token, too; it is not matched in texts.
        unreachable_ids: mapping of names to ids, of tokens that no text becomes: they have the bytes of
            another token, or none, as a token of Whisper's vocabulary, whose name is `""`.
    """

    ordinary: Mapping[bytes, int] = field(repr=False)
    special: Mapping[str, int]
    roles: Mapping[Role, str]
    explicit_template: Template | None = None
    added_tokens: Mapping[str, AddedToken] = field(default_factory=lambda: MappingProxyType({}))
    duplicate_token_ids: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unreachable_ids: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as a call of `make_vocabulary`, without the derived tables."""
        values = (getattr(self, field.name) for field in fields(self))
        return make_vocabulary, tuple(dict(one) if isinstance(one, Mapping) else one for one in values)

    def change(self, **values: Any) -> Vocabulary:
        """Returns a checked copy in which some fields have other values."""
        return make_vocabulary(**{each.name: getattr(self, each.name) for each in fields(self)} | values)

    def __hash__(self) -> int:
        """Computes a hash that is equal for equal vocabularies."""
        return hash((len(self.ordinary), tuple(self.special.items()), self.size))

    @property
    def special_repr(self) -> str:
        """The first special tokens, as the `repr` of a tokenizer shows them."""
        shown = ", ".join(f"{name!r}: {id_}" for name, id_ in list(self.special.items())[:_MAX_SHOWN_TOKENS])
        more = len(self.special) - _MAX_SHOWN_TOKENS
        return f"{{{shown}, and {more} more}}" if more > 0 else f"{{{shown}}}"

    @cached_property
    def size(self) -> int:
        """Largest id plus one."""
        tables = (self.ordinary, self.special, self.duplicate_token_ids, self.unreachable_ids)
        return 1 + max(max(table.values(), default=-1) for table in tables)

    @cached_property
    def template(self) -> Template:
        """Template of special tokens around texts."""
        if self.explicit_template is not None:
            return self.explicit_template
        before, after = ([f"{self.roles[role]}:0"] if role in self.roles else [] for role in TEMPLATE_ROLES)
        return make_template([*before, "$A:0", *after])

    @cached_property
    def special_names(self) -> frozenset[str]:
        """Names of all special tokens."""
        return share_names(frozenset(self.special))

    @cached_property
    def template_token_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids that the template inserts before a single text, and ids that it inserts after it."""
        before, after = (
            tuple(self.get_id(piece.token) for piece in pieces if piece.token)
            for pieces in self.template.around_text
        )
        return before, after

    @cached_property
    def added_names(self) -> frozenset[str]:
        """Names of the ordinary tokens that are matched anywhere in a text before it is split."""
        return share_names(frozenset(self.added_tokens) - self.special_names)

    @cached_property
    def mergeable(self) -> dict[bytes, int]:
        """Mapping of bytes to ids, of the ordinary tokens without `added_names` (duplicates are kept)."""
        added = {name.encode("utf-8") for name in self.added_names if name not in self.duplicate_token_ids}
        return {token: id_ for token, id_ in self.ordinary.items() if token not in added}

    @cached_property
    def split_token_names(self) -> frozenset[str]:
        """Names of all added and special tokens, at which texts are split except at `unmatched_names`."""
        return share_names(self.added_names | self.special_names)

    @cached_property
    def unmatched_names(self) -> frozenset[str]:
        """Names of the special tokens that are not matched in texts: the model makes them."""
        return self.special_names.intersection(self.duplicate_token_ids)

    @cached_property
    def second_names(self) -> frozenset[str]:
        """Names of special tokens whose id is decoded to another name."""
        return frozenset(
            name for name, id_ in self.special.items() if self.get_bytes(id_) != name.encode("utf-8")
        )

    @cached_property
    def _index(self) -> tuple[list[bytes], NDArray[np.int64]]:
        """Bytes of all tokens in any order, and the position among them of each id's token.

        The positions are `int64`, shape `(size,)`, -1 for ids without a token. This is cheaper to build than
        a dictionary of all tokens by id.
        """
        named = self.special, self.duplicate_token_ids, self.unreachable_ids
        tokens = [*self.ordinary, *(name.encode("utf-8") for name in chain(*named))]
        ids = chain(*(table.values() for table in (self.ordinary, *named)))
        position = np.full(self.size, -1, np.int64)
        # In reverse, so that an id of several names gets the first one.
        position[np.fromiter(ids, np.int64, len(tokens))[::-1]] = np.arange(len(tokens))[::-1]
        return tokens, position

    @cached_property
    def bytes_by_id(self) -> Mapping[int, bytes]:
        """Mapping of ids to exact bytes, in the order of the ids."""
        tokens, position = self._index
        ids = np.flatnonzero(position >= 0)
        tokens_by_id = map(tokens.__getitem__, position[ids].tolist())
        return MappingProxyType(dict(zip(ids.tolist(), tokens_by_id, strict=True)))

    @cached_property
    def byte_lengths(self) -> NDArray[np.int64]:
        """Number of bytes of each id, -1 for ids without a token, `int64`, shape `(size,)`."""
        tokens, position = self._index
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        lengths = np.append(lengths, -1).take(position, mode="wrap")  # position -1 is the appended -1
        return freeze(lengths)

    @cached_property
    def all_bytes(self) -> NDArray[np.uint8]:
        """Concatenated bytes of all tokens in the order of their ids, `uint8`, shape `(num_bytes,)`."""
        return np.frombuffer(b"".join(self.bytes_by_id.values()), np.uint8)

    @cached_property
    def byte_starts(self) -> NDArray[np.int64]:
        """Position in `all_bytes` at which the bytes of each id start, `int64`, shape `(size,)`."""
        lengths = np.maximum(self.byte_lengths, 0)
        starts = np.cumsum(lengths) - lengths
        return freeze(starts)

    @cached_property
    def is_special(self) -> NDArray[np.bool_]:
        """Mask of the ids that are special tokens, `bool`, shape `(size,)`."""
        special = np.zeros(self.size, bool)
        special[list(self.special.values())] = True
        return freeze(special)

    @cached_property
    def is_skipped(self) -> NDArray[np.bool_]:
        """Mask of the ids that decoding with `skip_special_tokens` leaves out, `bool`, shape `(size,)`.

        Like the `tokenizers` library, it keeps special tokens that the model makes of text.
        """
        skipped = self.is_special.copy()
        skipped[[self.special[name] for name in self.unmatched_names]] = False
        return freeze(skipped)

    @cached_property
    def strings(self) -> NDArray[np.object_]:
        """Readable form of each id, `None` for ids without a token, `object`, shape `(size,)`."""
        strings = np.full(self.size, None, object)
        strings[list(self.bytes_by_id)] = [format_token(token) for token in self.bytes_by_id.values()]
        return freeze(strings)

    @cached_property
    def _string_cache(self) -> NDArray[np.object_]:
        """Readable forms of the ids that were passed to `get_token_strings` so far, `None` for all others."""
        return np.full(self.size, None, object)

    def get_token_strings(self, ids: NDArray[np.int32]) -> tuple[str, ...]:
        """Returns the readable forms of ids, shape `(n,)`. All ids must be in the vocabulary.

        Each form is computed when it is first needed, so a short text does not format the entire vocabulary.
        """
        strings: list[str | None] = self._string_cache.take(ids).tolist()
        if None in strings:
            for id_ in set(ids.tolist()):
                self._string_cache[id_] = format_token(self.get_bytes(id_))
            strings = self._string_cache.take(ids).tolist()
        return tuple(strings)  # type: ignore[arg-type]

    def get_id(self, token: str | bytes) -> int:
        """Returns the id of a special token's name, or of an ordinary token's text or bytes."""
        if isinstance(token, str):
            if token in self.special:
                return self.special[token]
            if token in self.duplicate_token_ids:
                return self.duplicate_token_ids[token]
            token_bytes = token.encode("utf-8", "surrogatepass")
        else:
            token_bytes = check_text(token, "token")  # type: ignore[assignment]
        if token_bytes not in self.ordinary:
            raise UnknownTokenError(
                f"the vocabulary has no token {token!r}; pass the name (str) of a special token, or the "
                "bytes of a token that is not valid UTF-8"
            )
        return self.ordinary[token_bytes]

    def get_bytes(self, id_: int) -> bytes:
        """Returns the exact bytes of an id, or raises `UnknownTokenError`."""
        tokens, position = self._index
        check_int("id", id_)
        index = position[id_] if 0 <= id_ < self.size else -1
        if index < 0:
            raise UnknownTokenError(f"the vocabulary has no id {id_}; {self._describe_ids()}")
        return tokens[index]

    def check_ids(self, ids: NDArray[Any]) -> None:
        """Raises `UnknownTokenError` for the first of the ids, shape `(n,)`, that has no token."""
        valid = (ids >= 0) & (ids < self.size)
        valid &= self.byte_lengths.take(np.where(valid, ids, 0)) >= 0
        if not valid.all():
            index = int(np.flatnonzero(~valid)[0])
            raise UnknownTokenError(
                f"the vocabulary has no id {ids[index]} (at position {index}); {self._describe_ids()}"
            )

    def get_role_id(self, role: Role) -> int | None:
        """Returns the id of the token with a role, or `None` if there is none."""
        name = self.roles.get(role)
        return None if name is None else self.get_id(name)

    def require_role(self, role: Role, purpose: str) -> int:
        """Returns the id of the token with a role.

        Args:
            role: the role.
            purpose: operation that needs the token, as the subject of the error message.

        Raises:
            MissingSpecialTokenError: the vocabulary has no token with this role.
        """
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
        num_unused = self.size - len(self.bytes_by_id)
        return f"ids go from 0 to {self.size - 1}" + (f", {num_unused} of them unused" if num_unused else "")


@register_record(Vocabulary)
def make_vocabulary(
    ordinary: Mapping[bytes, int],
    special: Mapping[str, int] | None = None,
    roles: Mapping[Role, str | None] | None = None,
    explicit_template: Template | None = None,
    added_tokens: Mapping[str, AddedToken] | None = None,
    duplicate_token_ids: Mapping[str, int] | None = None,
    unreachable_ids: Mapping[str, int] | None = None,
) -> Vocabulary:
    """Makes a `Vocabulary`, and checks it.

    Args:
        ordinary: mapping of bytes to ids, of all tokens that are not special. An empty token is moved to
            `unreachable_ids`.
        special: mapping of names to ids, of all special tokens. Several names can have one id.
        roles: mapping of roles to names of tokens, as in `Vocabulary`.
        explicit_template: special tokens around texts (see `make_template`); `None` for BOS before and EOS
            after each text.
        added_tokens: tokens, special or not, that are matched anywhere in a text, with the adjacent
            whitespace that they include.
        duplicate_token_ids: mapping of names to ids, of added and special tokens with the bytes of an
            ordinary token, as in `Vocabulary`.
        unreachable_ids: mapping of names to ids, of tokens that no text becomes.

    Raises:
        InvalidArgumentError: an id is negative, above 2,097,149 or duplicate; a token is empty; a role or the
            template names a token that is not special (for `"cls"`, `"sep"` and `"mask"`: no token; in the
            template: neither special nor added); or an added token has no id.

    >>> make_vocabulary({b"a": 0, b"b": 1}, {"<eos>": 2}, {"eos": "<eos>"}).get_role_id("eos")
    2
    """
    special = {} if special is None else special
    _check_mapping("ranks", ordinary, bytes)
    _check_mapping("special_tokens", special, str)
    duplicate_token_ids, unreachable_ids = duplicate_token_ids or {}, unreachable_ids or {}
    if b"" in ordinary:
        unreachable_ids = {**unreachable_ids, "": ordinary[b""]}
        ordinary = {token: id_ for token, id_ in ordinary.items() if token}
    separate = [
        (name, id_)
        for name, id_ in (*special.items(), *duplicate_token_ids.items())
        if name not in duplicate_token_ids or ordinary.get(name.encode("utf-8")) != id_
    ]
    unreachable = [(name or "the empty token", id_) for name, id_ in unreachable_ids.items()]
    _check_tokens(ordinary, (*separate, *unreachable), special)
    roles = check_role_names({} if roles is None else roles)
    declared = {role: name for role, name in roles.items() if name is not None}
    for role, name in declared.items():
        if not can_have_role(name, role, ordinary, special):
            raise InvalidArgumentError(
                f"{role}_token is {name!r}, which is not among the special tokens {list(special)}; "
                f"add it: special_tokens={{{name!r}: ID, ...}}, or extend_vocabulary(tokenizer, [{name!r}], "
                "special=True)"
            )
    if explicit_template is not None:
        explicit_template.check_tokens(special, added_tokens or {})
    for name in added_tokens or {}:
        if name not in special and name.encode("utf-8") not in ordinary:
            raise InvalidArgumentError(f"the added token {name!r} has no id; give it one among the tokens")
    return Vocabulary(
        MappingProxyType(dict(zip(map(bytes, ordinary), map(int, ordinary.values()), strict=True))),
        MappingProxyType({name: int(id_) for name, id_ in sorted(special.items(), key=lambda item: item[1])}),
        MappingProxyType({role: declared[role] for role in ROLES if role in declared}),
        explicit_template,
        MappingProxyType(
            {name: AddedToken(*added_token) for name, added_token in (added_tokens or {}).items()}
        ),
        MappingProxyType(dict(duplicate_token_ids)),
        MappingProxyType(dict(unreachable_ids)),
    )


@lru_cache(maxsize=256)
def share_names(names: frozenset[str]) -> frozenset[str]:
    """Returns the same object for equal sets of names.

    Texts are searched for such sets, and the searches are cached by the set. A cache compares all names if it
    holds an equal set that is another object: of the same tokenizer, loaded twice.
    """
    return names


def check_role_names(roles: Mapping[Any, str | None]) -> Mapping[Any, str | None]:
    """Returns `roles`; raises `InvalidArgumentError` unless it maps roles to names, or to `None`."""
    if not isinstance(roles, Mapping):
        raise InvalidArgumentError(f"roles must map roles to names, not be {roles!r:.100}")
    for role, name in roles.items():
        if name is not None and not isinstance(name, str):
            raise InvalidArgumentError(f"{role}_token must be a name or None, not {name!r:.100}")
    return roles


def can_have_role(name: object, role: Role, ordinary: Mapping[bytes, int], special: Collection[str]) -> bool:
    """Returns whether `name` is a token that can have a role: a special token, or any for `LOOKUP_ROLES`."""
    if role in LOOKUP_ROLES and isinstance(name, str) and name.encode("utf-8", "surrogatepass") in ordinary:
        return True
    return name in special


def select_roles(
    roles: Mapping[Role, str], ordinary: Mapping[bytes, int], special: Collection[str]
) -> dict[Role, str | None]:
    """Returns the roles whose token can have them."""
    return {role: name for role, name in roles.items() if can_have_role(name, role, ordinary, special)}


def drop_lookup_roles(vocabulary: Vocabulary) -> Vocabulary:
    """Returns a vocabulary without `LOOKUP_ROLES`, for fingerprints."""
    if vocabulary.roles.keys().isdisjoint(LOOKUP_ROLES):
        return vocabulary
    roles = {role: name for role, name in vocabulary.roles.items() if role not in LOOKUP_ROLES}
    return replace(vocabulary, roles=MappingProxyType(roles))


def format_token(token: bytes) -> str:
    r"""Formats a token for display: its text, with invalid UTF-8 bytes as `\xNN`.

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


def _check_tokens(
    ordinary: Mapping[bytes, int], others: Sequence[tuple[str, int]], special: Container[str | bytes]
) -> None:
    """Raises `InvalidArgumentError` for an invalid token or id, and for an id of two tokens.

    A loop over 200,000 tokens is slow. So the ordinary tokens are first checked together by operations on
    sets, and separately only if that fails, to find the token for the error message.

    Args:
        ordinary: mapping of bytes to ids.
        others: names and ids of special tokens and of duplicate added tokens.
        special: names of special tokens, several of which can have one id.
    """
    ids = list(ordinary.values())
    distinct_ids = set(ids) if set(map(type, ids)) <= {int} else set()
    in_range = len(distinct_ids) == len(ids) and min(ids, default=0) >= 0 and max(ids, default=0) <= MAX_ID
    unchecked: Iterable[tuple[str | bytes, int]] = others
    if not in_range or not distinct_ids.isdisjoint(id_ for _, id_ in others):
        unchecked = (*ordinary.items(), *others)
    token_by_id: dict[int, str | bytes] = {}
    for token, id_ in unchecked:
        _check_token(token, id_)
        other = token_by_id.setdefault(id_, token)
        if other is not token and not (other in special and token in special):
            raise InvalidArgumentError(f"id {id_} is given to both {other!r} and {token!r}")


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
