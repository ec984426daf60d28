"""What is put around a text, or around a pair of them: the special tokens before, between and behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.checks import checked_int
from tokjax.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TYPED = re.compile(r"(?s)(.+):(\d+)")
_TEXTS = {"$A": 0, "$B": 1}
_MARK_OF_TEXT = ("$A", "$B")


class Place(NamedTuple):
    """One place of a template: a text, or a token that is inserted.

    Attributes:
        text: 0 for the first text of a pair, 1 for the second; `None` for an inserted token.
        token: the name of the special token to insert; `None` for a text.
        type_id: the token type id of what stands here.
    """

    text: int | None
    token: str | None
    type_id: int

    def __str__(self) -> str:
        """The place as `make_template` reads it."""
        what = self.token if self.text is None else _MARK_OF_TEXT[self.text]
        return f"{what}:{self.type_id}"


@dataclass(frozen=True)
class Template:
    """What is put around texts. Make one with `make_template`.

    Attributes:
        single: the places of a text alone, in order; one of them is the text.
        pair: those of a pair of texts; empty if pairs can't be encoded, since the template of the file leaves
            a text out or repeats it.
    """

    single: tuple[Place, ...]
    pair: tuple[Place, ...]

    def check_tokens(self, special: Mapping[str, int]) -> None:
        """Raise `InvalidArgumentError` if a token is not among the special ones."""
        for place in (*self.single, *self.pair):
            if place.token is not None and place.token not in special:
                raise InvalidArgumentError(
                    f"the template has {place.token!r}, which is not among the special tokens "
                    f"{list(special)}; texts are written $A and $B"
                )


def make_template(single: str | Sequence[str], pair: str | Sequence[str] | None = None) -> Template:
    """A checked `Template`, in the notation of Hugging Face's `TemplateProcessing`.

    Args:
        single: what a text alone becomes: the names of special tokens with `$A` for the text, parted by
            blanks, or as a list. Each may have a token type id, as in `"[SEP]:1"`; otherwise it is 0.
        pair: what a pair becomes, with `$A` and `$B`. `None` for the single template with `$B:1` behind it,
            and behind that once more what is behind `$A`.

    Raises:
        InvalidArgumentError: a text is missing, or stands twice.

    >>> str(make_template("[CLS] $A [SEP]").pair[-1])
    '[SEP]:1'
    """
    alone = _places("single", single, 1)
    if pair is not None:
        return Template(alone, _places("pair", pair, 2))
    behind = alone[[place.text for place in alone].index(0) + 1 :]
    return Template(alone, (*alone, Place(1, None, 1), *(place._replace(type_id=1) for place in behind)))


def template_to_json(template: Template | None) -> Any:
    """A template as plain JSON values."""
    if template is None:
        return None
    return {name: list(map(str, getattr(template, name))) for name in ("single", "pair")}


def template_from_json(described: Any) -> Template | None:
    """The template that `template_to_json` described."""
    if described is None:
        return None
    template = make_template(described["single"], described["pair"] or None)
    return template if described["pair"] else Template(template.single, ())


def _places(name: str, given: str | Sequence[str], texts: int) -> tuple[Place, ...]:
    parts = given.split() if isinstance(given, str) else list(given)
    places = tuple(map(_place, parts))
    found = sorted(place.text for place in places if place.text is not None)
    if found != list(range(texts)):
        wanted = " and ".join(f"{mark} once" for mark in _MARK_OF_TEXT[:texts])
        raise InvalidArgumentError(f"the {name} template must hold {wanted}; got {given!r}")
    return places


def _place(part: str) -> Place:
    if not isinstance(part, str) or not part:
        raise InvalidArgumentError(f"a template is made of names and $A or $B, and one part is {part!r}")
    typed = _TYPED.fullmatch(part)
    name, type_id = (typed[1], int(typed[2])) if typed else (part, 0)
    text = _TEXTS.get(name)
    return Place(text, name if text is None else None, checked_int("type_id", type_id, least=0))


NOTHING_AROUND = make_template("$A", "$A $B:1")
"""The template of texts as they are."""
