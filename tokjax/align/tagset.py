"""Tag sets: the tags of a labelling scheme such as BIO, their ids, and the transitions between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tokjax._util.arrays import as_integers, is_traced
from tokjax._util.checks import check_choice, check_id, check_names
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

Scheme: TypeAlias = Literal["BIO", "BILOU", "IOBES", "IO", "IOE2"]

FIRST, LAST = 1, 2
"""Bits of the position of a token in its span: 0 is inside, `FIRST | LAST` is the only token.

The strings of `_ROLE_AT_POSITION` hold the role at the positions 0, 1, 2 and 3.
"""
_ROLE_AT_POSITION = {"BIO": "IBIB", "BILOU": "IBLU", "IOBES": "IBES", "IO": "IIII", "IOE2": "IIEE"}
_ROLES = {"BIO": "BI", "BILOU": "BILU", "IOBES": "BIES", "IO": "I", "IOE2": "IE"}
_CONTINUABLE_ROLES, _CONTINUING_ROLES = "BI", "ILE"


def check_labels(labels: Any) -> tuple[str, ...]:
    """Returns the labels as a tuple; raises `InvalidArgumentError` if they are invalid or unordered."""
    if isinstance(labels, (set, frozenset)):
        raise InvalidArgumentError(
            "labels is a set, whose order, and therefore the ids of tags, may change in every run; pass "
            "sorted(labels)"
        )
    values = tuple(check_names("labels", labels))
    if "" in values:
        raise InvalidArgumentError("labels must be non-empty strings, not ''")
    duplicates = [label for label, count in Counter(values).items() if count > 1]
    if duplicates:
        raise InvalidArgumentError(f"labels contains {duplicates[0]!r} more than once")
    return values


def check_tagset(tagset: object, ignore_index: int) -> None:
    """Raises `InvalidArgumentError` if `tagset` is not a `TagSet`, or `ignore_index` is the id of a tag."""
    tagset = check_is_tagset(tagset)
    check_id("ignore_index", ignore_index)
    if not is_traced(ignore_index) and 0 <= ignore_index < len(tagset):
        raise InvalidArgumentError(
            f"ignore_index is {ignore_index}, which is the tag {tagset.tags[ignore_index]!r}; pass a number "
            "that is not the id of a tag, such as -100"
        )


def check_is_tagset(tagset: object) -> TagSet:
    """Returns `tagset`; raises `InvalidArgumentError` if it is not a `TagSet`."""
    if not isinstance(tagset, TagSet):
        raise InvalidArgumentError(f"tagset must be a TagSet, not {tagset!r:.80}; pass TagSet(labels)")
    return tagset


@dataclass(frozen=True)
class TagSet:
    """The tags of a labelling scheme for a sequence of labels, and their ids.

    `O` has id 0. The tags of each label are contiguous. Labels keep their order, and the tags of a label are
    in the order `B`, `I`, `L`, `U` (`B`, `I`, `E`, `S` in IOBES); a scheme may lack some of them.

    | scheme | span of one token | two tokens | three tokens |
    |---|---|---|---|
    | `"BIO"` (IOB2) | `B` | `B I` | `B I I` |
    | `"BILOU"` | `U` | `B L` | `B I L` |
    | `"IOBES"` (BIOES) | `S` | `B E` | `B I E` |
    | `"IO"` | `I` | `I I` | `I I I` |
    | `"IOE2"` | `E` | `I E` | `I I E` |

    Attributes:
        labels: labels of spans, without duplicates; stored as a tuple.
        scheme: `"BIO"`, `"BILOU"`, `"IOBES"`, `"IO"` or `"IOE2"`.

    Raises:
        InvalidArgumentError: labels are not non-empty strings or contain duplicates, or the scheme is
            unknown.

    >>> TagSet(("PER", "ORG")).tags
    ('O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG')
    """

    labels: Sequence[str]
    scheme: Scheme = "BIO"

    def __post_init__(self) -> None:
        """Checks the labels and stores them as a tuple."""
        object.__setattr__(self, "labels", check_labels(self.labels))
        check_choice("scheme", self.scheme, _ROLES)

    def __len__(self) -> int:
        """Returns the number of tags, including `O`."""
        return 1 + self.num_roles * len(self.labels)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags; the index of each tag is its id."""
        return ("O", *(f"{role}-{label}" for label in self.labels for role in _ROLES[self.scheme]))

    def get_id(self, tag: str) -> int:
        """Returns the id of a tag.

        >>> TagSet(("PER", "ORG")).get_id("B-ORG")
        3
        """
        try:
            return self._ids[tag]
        except KeyError:
            raise InvalidArgumentError(f"unknown tag {tag!r}; the tags are {self._tag_summary}") from None

    def get_ids(self, tags: Iterable[str]) -> NDArray[np.int32]:
        """Returns the ids of tags, `int32`, shape `(n,)`."""
        return np.fromiter(map(self.get_id, tags), np.int32)

    def get_tags(self, ids: Any, *, ignore_index: int = -100) -> list[Any]:
        """Returns the tags of ids as a list, or a list of lists for an array `(batch, length)`.

        The tag of `ignore_index` is `"_"`.

        >>> TagSet(("PER", "ORG")).get_tags([0, 3, -100])
        ['O', 'B-ORG', '_']
        >>> TagSet(("PER", "ORG")).get_tags(np.array([[0, 3], [1, 2]]))
        [['O', 'B-ORG'], ['B-PER', 'I-PER']]
        """
        values = self.as_tag_ids(ids, ignore_index)
        names = np.array([*self.tags, "_"], object)
        return names[np.where(values == ignore_index, len(self), values)].tolist()  # type: ignore[no-any-return]

    def as_tag_ids(self, ids: Any, ignore_index: int) -> NDArray[np.int32]:
        """Returns ids as an `int32` NumPy array of the same shape.

        Raises:
            InvalidArgumentError: an id is neither the id of a tag nor `ignore_index`.
        """
        check_tagset(self, ignore_index)
        values = as_integers("tag ids", ids, np.int32)
        wrong = ((values < 0) | (values >= len(self))) & (values != ignore_index)
        if wrong.any():
            raise InvalidArgumentError(
                f"{values[wrong].flat[0]} is not the id of a tag: ids are 0 to {len(self) - 1}, and "
                f"ignore_index is {ignore_index}; the tags are {self._tag_summary}"
            )
        return values

    @property
    def num_roles(self) -> int:
        """Number of tags of each label."""
        return len(_ROLES[self.scheme])

    @cached_property
    def role_at_position(self) -> NDArray[np.int32]:
        """Index of the role, among the tags of a label, at each position in a span, `int32`, shape `(4,)`."""
        return np.array(
            [_ROLES[self.scheme].index(role) for role in _ROLE_AT_POSITION[self.scheme]], np.int32
        )

    @cached_property
    def tag_classes(self) -> NDArray[np.int32]:
        """Index of the label of each tag, -1 for `O`, `int32`, shape `(tags,)`."""
        classes = np.arange(len(self.labels), dtype=np.int32)
        return np.append(np.int32(-1), np.repeat(classes, self.num_roles))

    @cached_property
    def can_precede(self) -> NDArray[np.bool_]:
        """Whether a span can continue after each tag, `bool`, shape `(tags,)`."""
        return self._mark_tags_with_roles(_CONTINUABLE_ROLES)

    @cached_property
    def can_follow(self) -> NDArray[np.bool_]:
        """Whether each tag can continue a span that started before it, `bool`, shape `(tags,)`."""
        return self._mark_tags_with_roles(_CONTINUING_ROLES)

    @cached_property
    def marked_position(self) -> NDArray[np.int32]:
        """The bits `FIRST` and `LAST` of the valid positions of each tag, `int32`, shape `(tags,)`."""
        pattern = _ROLE_AT_POSITION[self.scheme]
        can_start = self._mark_tags_with_roles(pattern[FIRST] + pattern[FIRST | LAST])
        can_end = self._mark_tags_with_roles(pattern[LAST] + pattern[FIRST | LAST])
        return (FIRST * can_start + LAST * can_end).astype(np.int32)

    @cached_property
    def subword_tags(self) -> NDArray[np.int32]:
        """Tag of a token by the tag of its word and its position in the word, `int32`, shape `(tags, 4)`.

        A word tagged `B` is `B I I` in three tokens, one tagged `U` is `B I L`, one tagged `S` is `B I E`.
        """
        position = np.arange(4) & self.marked_position[:, None]
        tags = 1 + self.tag_classes[:, None] * self.num_roles + self.role_at_position[position]
        tags[0] = 0
        return np.asarray(tags, np.int32)

    def _mark_tags_with_roles(self, roles: str) -> NDArray[np.bool_]:
        """Returns whether each tag has one of the roles, `bool`, shape `(tags,)`."""
        return np.array([tag != "O" and tag[0] in roles for tag in self.tags])

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {tag: id_ for id_, tag in enumerate(self.tags)}

    @property
    def _tag_summary(self) -> str:
        """The first tags, for error messages."""
        names = ", ".join(self.tags[:12])
        return names if len(self) <= 12 else f"{names}, ..."
