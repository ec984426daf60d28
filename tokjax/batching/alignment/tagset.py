"""Tag vocabularies: what a token is called that lies in a labelled span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tokjax._util.array_namespace import as_integers, is_traced
from tokjax._util.checks import check_id
from tokjax.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Scheme: TypeAlias = Literal["BIO", "BILOU", "IOBES", "IO", "IOE2"]

FIRST, LAST = 1, 2
"""The bits of a token's place in a span: 0 is inside, 3 is alone."""
_ROLE_AT_PLACE = {"BIO": "IBIB", "BILOU": "IBLU", "IOBES": "IBES", "IO": "IIII", "IOE2": "IIEE"}
_ROLES = {"BIO": "BI", "BILOU": "BILU", "IOBES": "BIES", "IO": "I", "IOE2": "IE"}
_BEFORE_MORE, _AFTER_MORE = "BI", "ILE"


def checked_labels(labels: Any) -> tuple[str, ...]:
    """What spans may be labelled with, in an order that is the same in every run."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InvalidArgumentError(f"labels must be a sequence of labels, not {labels!r}; pass [{labels!r}]")
    if isinstance(labels, (set, frozenset)):
        raise InvalidArgumentError(
            "labels is a set, whose order is another in every run, and with it the ids of tags; pass "
            "sorted(labels)"
        )
    known = tuple(labels)
    for label in known:
        if not isinstance(label, str) or not label:
            raise InvalidArgumentError(f"labels must be strings with something in them, not {label!r}")
    twice = [label for label, count in Counter(known).items() if count > 1]
    if twice:
        raise InvalidArgumentError(f"labels holds {twice[0]!r} more than once")
    return known


def check_tagset(tagset: object, ignore_index: int) -> None:
    """Refuse what is no tag set, and an `ignore_index` that is one of its tags."""
    tagset = known_as_tagset(tagset)
    check_id("ignore_index", ignore_index)
    if not is_traced(ignore_index) and 0 <= ignore_index < len(tagset):
        raise InvalidArgumentError(
            f"ignore_index is {ignore_index}, which is the tag {tagset.tags[ignore_index]!r}; pass a number "
            "that is none, like -100"
        )


def known_as_tagset(tagset: object) -> TagSet:
    """`tagset`, if it is one."""
    if not isinstance(tagset, TagSet):
        raise InvalidArgumentError(f"tagset must be a TagSet, not {tagset!r:.80}; pass TagSet(labels)")
    return tagset


@dataclass(frozen=True)
class TagSet:
    """The tags of a scheme for some labels, and their ids.

    `O` has id 0. The tags of each label are next to each other, labels in the order given, and for each label
    the roles in the order `B`, `I`, `L`, `U` (`B`, `I`, `E`, `S` in IOBES), as far as the scheme has them.

    | scheme | a span of one token | of two | of three |
    |---|---|---|---|
    | `"BIO"` (IOB2) | `B` | `B I` | `B I I` |
    | `"BILOU"` | `U` | `B L` | `B I L` |
    | `"IOBES"` (BIOES) | `S` | `B E` | `B I E` |
    | `"IO"` | `I` | `I I` | `I I I` |
    | `"IOE2"` | `E` | `I E` | `I I E` |

    Attributes:
        labels: what spans are labelled with, none of them twice; kept as a tuple.
        scheme: `"BIO"`, `"BILOU"`, `"IOBES"`, `"IO"` or `"IOE2"`.

    Raises:
        InvalidArgumentError: labels that are no strings or there twice, or an unknown scheme.

    >>> TagSet(("PER", "ORG")).tags
    ('O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG')
    """

    labels: Sequence[str]
    scheme: Scheme = "BIO"

    def __post_init__(self) -> None:
        """Check the labels, and keep them as a tuple."""
        object.__setattr__(self, "labels", checked_labels(self.labels))
        if self.scheme not in _ROLES:
            known = ", ".join(map(repr, _ROLES))
            raise InvalidArgumentError(f"scheme must be {known}, not {self.scheme!r}")

    def __len__(self) -> int:
        """How many tags there are."""
        return 1 + self.num_roles * len(self.labels)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags; the place of each is its id."""
        return ("O", *(f"{role}-{label}" for label in self.labels for role in _ROLES[self.scheme]))

    def id_of(self, tag: str) -> int:
        """The id of a tag.

        >>> TagSet(("PER", "ORG")).id_of("B-ORG")
        3
        """
        try:
            return self._ids[tag]
        except KeyError:
            raise InvalidArgumentError(f"there is no tag {tag!r}; the tags are {self._shown}") from None

    def ids_of(self, tags: Iterable[str]) -> NDArray[np.int32]:
        """The ids of tags, `int32`, shape `(n,)`."""
        return np.fromiter(map(self.id_of, tags), np.int32)

    def tags_of(self, ids: Any, *, ignore_index: int = -100) -> list[Any]:
        """The tags of ids: a list of them, or of `(batch, length)` a list of lists; `ignore_index` is `"_"`.

        >>> TagSet(("PER", "ORG")).tags_of([0, 3, -100])
        ['O', 'B-ORG', '_']
        >>> TagSet(("PER", "ORG")).tags_of(np.array([[0, 3], [1, 2]]))
        [['O', 'B-ORG'], ['B-PER', 'I-PER']]
        """
        known = self.checked_ids(ids, ignore_index)
        shown = np.array([*self.tags, "_"], object)
        return shown[np.where(known == ignore_index, len(self), known)].tolist()  # type: ignore[no-any-return]

    def checked_ids(self, ids: Any, ignore_index: int) -> NDArray[np.int32]:
        """Ids on the host, of any shape, all of which are tags or `ignore_index`."""
        check_tagset(self, ignore_index)
        known = as_integers("tag ids", ids, np.int32)
        wrong = ((known < 0) | (known >= len(self))) & (known != ignore_index)
        if wrong.any():
            raise InvalidArgumentError(
                f"{known[wrong].flat[0]} is no tag: there are {len(self)}, from 0, and ignore_index is "
                f"{ignore_index}; the tags are {self._shown}"
            )
        return known

    @property
    def num_roles(self) -> int:
        """How many tags each label has."""
        return len(_ROLES[self.scheme])

    @cached_property
    def role_at_place(self) -> NDArray[np.int32]:
        """Which of a label's tags a token has at each place of a span, `int32`, shape `(4,)`."""
        return np.array([_ROLES[self.scheme].index(role) for role in _ROLE_AT_PLACE[self.scheme]], np.int32)

    @cached_property
    def class_of_tag(self) -> NDArray[np.int32]:
        """Which label each tag is of, -1 for `O`, `int32`, shape `(tags,)`."""
        classes = np.arange(len(self.labels), dtype=np.int32)
        return np.append(np.int32(-1), np.repeat(classes, self.num_roles))

    @cached_property
    def can_open(self) -> NDArray[np.bool_]:
        """Whether a valid span can begin with each tag, shape `(tags,)`."""
        placed = _ROLE_AT_PLACE[self.scheme]
        return self._with_roles(placed[FIRST] + placed[FIRST | LAST])

    @cached_property
    def can_close(self) -> NDArray[np.bool_]:
        """Whether a valid span can end with each tag, shape `(tags,)`."""
        placed = _ROLE_AT_PLACE[self.scheme]
        return self._with_roles(placed[LAST] + placed[FIRST | LAST])

    @cached_property
    def before_more(self) -> NDArray[np.bool_]:
        """Whether a span can go on after each tag, shape `(tags,)`."""
        return self._with_roles(_BEFORE_MORE)

    @cached_property
    def after_more(self) -> NDArray[np.bool_]:
        """Whether a span can have begun before each tag, shape `(tags,)`."""
        return self._with_roles(_AFTER_MORE)

    @cached_property
    def marked_place(self) -> NDArray[np.int32]:
        """The places of a span, as bits, that each tag can have, `int32`, shape `(tags,)`."""
        place = np.where(self.can_open, FIRST, 0) + np.where(self.can_close, LAST, 0)
        return place.astype(np.int32)

    @cached_property
    def tag_of_subword(self) -> NDArray[np.int32]:
        """The tag of a word's token at each place of the word, by the word's tag, `int32`, `(tags, 4)`.

        A word tagged `B` is `B I I` in three tokens, one tagged `U` is `B I L`, one tagged `S` is `B I E`.
        """
        place = np.arange(4) & self.marked_place[:, None]
        tags = 1 + self.class_of_tag[:, None] * self.num_roles + self.role_at_place[place]
        tags[0] = 0
        return np.asarray(tags, np.int32)

    def _with_roles(self, roles: str) -> NDArray[np.bool_]:
        return np.array([tag != "O" and tag[0] in roles for tag in self.tags])

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {tag: id_ for id_, tag in enumerate(self.tags)}

    @property
    def _shown(self) -> str:
        shown = ", ".join(self.tags[:12])
        return shown if len(self) <= 12 else f"{shown}, ..."
