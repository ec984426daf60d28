"""The parts of a `tokenizer.json` that all models have: added tokens, and what is around texts.

What tokjax does not do exactly as the library raises `NotOursError`: such a tokenizer runs on the library.
"""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.core.vocabulary import Strips, make_vocabulary
from tokjax.formats.huggingface.definition import NotOursError, flag_of, parts_of, template_of
from tokjax.formats.reading import roles_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.formats.huggingface.definition import StepPlace
    from tokjax.models.added_spaces import Trim

_MOST_COMPARED = 1 << 20


class AddedTokens(NamedTuple):
    """Tokens that are found in a text before it is split.

    Attributes:
        special: name to id of special ones.
        ordinary: name to id of others.
        strips: all that are no special ones, and those that take white space with them.
    """

    special: dict[str, int]
    ordinary: dict[str, int]
    strips: dict[str, Strips]


def added_tokens_of(contents: Mapping[str, Any], *, normalizes: bool) -> AddedTokens:
    """The added tokens of a definition.

    Args:
        contents: the definition.
        normalizes: whether texts are normalised before they are split.

    Raises:
        NotOursError: one of them is found in another way than tokjax does.
        TokenizerFormatError: one of them has no name or no id.
    """
    tokens = contents.get("added_tokens") or []
    found = AddedTokens({}, {}, {})
    for token in tokens:
        name, id_ = token.get("content"), token.get("id")
        if not isinstance(name, str) or not name or not isinstance(id_, int) or isinstance(id_, bool):
            raise TokenizerFormatError(f"an added token has the content {name!r} and the id {id_!r}")
        if name in found.special or name in found.ordinary:
            raise NotOursError(f"the added token {name!r} stands twice")
        if flag_of(token, "single_word"):
            raise NotOursError(f"the added token {name!r} is found as a whole word only")
        if flag_of(token, "normalized") and normalizes:
            raise NotOursError(f"the added token {name!r} is found in normalised text")
        is_special = flag_of(token, "special")
        (found.special if is_special else found.ordinary)[name] = id_
        strips = Strips(flag_of(token, "lstrip"), flag_of(token, "rstrip"))
        if any(strips) or not is_special:
            found.strips[name] = strips
    if any(map(any, found.strips.values())):
        for name in (*found.special, *found.ordinary):
            if name != name.strip():
                raise NotOursError(
                    f"added tokens take white space with them, and {name!r} begins or ends with some"
                )
    _check_order(tokens)
    return found


def check_added_ids(tokens: Sequence[Mapping[str, Any]], forms: Mapping[str, int]) -> None:
    """Refuse added tokens that get other ids from the library than the definition says.

    It gives those that are not in the model's vocabulary the next ids after it.

    Args:
        tokens: the added tokens, in the order of the definition.
        forms: the model's vocabulary.
    """
    last = -1
    for token in tokens:
        name, id_ = token["content"], token["id"]
        given = forms.get(name, max(last + 1, len(forms)))
        if given != id_:
            raise NotOursError(f"the added token {name!r} has the id {id_}, and the library gives it {given}")
        last = max(last, given)


def vocabulary_of_parts(
    contents: Mapping[str, Any],
    ordinary: Mapping[bytes, int],
    added: AddedTokens,
    roles: Mapping[Role, str],
    twins: Mapping[str, int] | None = None,
) -> Vocabulary:
    """The vocabulary of a definition, with what it puts around texts.

    Args:
        contents: the definition.
        ordinary: bytes to id, of all tokens that are not special.
        added: those that are found in a text before it is split.
        roles: which tokens have which role, those of them that are special.
        twins: as in `make_vocabulary`.

    Raises:
        NotOursError: something is put around texts in another way than tokjax does.
    """
    return make_vocabulary(
        ordinary,
        added.special,
        roles_of(added.special, {}, roles),
        template_of(contents, added.special),
        added.strips,
        twins,
    )


def merges_of(listed: Any, forms: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of a list of merges, as tokens are written.

    Args:
        listed: pairs, or lines of two tokens.
        forms: the model's vocabulary.

    Raises:
        NotOursError: one stands twice.
        ValueError: one is no pair, or holds or makes what is no token.
    """
    if (pairs := _pairs_without_errors(listed, forms)) is not None:
        return pairs
    seen: dict[tuple[str, str], None] = {}
    if len({isinstance(merge, str) for merge in listed}) > 1:
        raise ValueError("some merges are lines, others pairs")
    for merge in listed:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or [type(part) for part in parts] != [str, str]:
            raise ValueError(f"the merge {merge!r} is no pair of tokens")
        left, right = parts
        if left not in forms or right not in forms or left + right not in forms:
            missing = next(form for form in (left, right, left + right) if form not in forms)
            raise ValueError(f"the merge {merge!r}: {missing!r} is no token")
        if (left, right) in seen:
            raise NotOursError(f"the merge of {left!r} and {right!r} stands twice")
        seen[left, right] = None
    return list(seen)


def _pairs_without_errors(listed: Any, forms: Mapping[str, int]) -> list[tuple[str, str]] | None:
    """Returns the pairs of a list of merges, checked all together; `None` if any of them is wrong."""
    kinds = set(map(type, listed))
    if kinds not in ({str}, {list}):
        return None
    pairs = [tuple(merge.split(" ")) for merge in listed] if kinds == {str} else list(map(tuple, listed))
    if set(map(len, pairs)) != {2} or set(map(type, chain.from_iterable(pairs))) != {str}:
        return None
    parts = set(chain.from_iterable(pairs))
    if not (forms.keys() >= parts and all(map(forms.__contains__, map("".join, pairs)))):
        return None
    return pairs if len(set(pairs)) == len(pairs) else None


def written_as_they_are(vocabulary: Vocabulary, forms: Mapping[str, int]) -> dict[str, int]:
    """The tokens at which texts are parted, which are always written as they are, and their ids.

    Args:
        vocabulary: the tokens.
        forms: the ids of all others, as they are written.

    Raises:
        UnsupportedTokenizerError: one of them is written like another.
    """
    plain = {name: vocabulary.id_of(name) for name in vocabulary.parting}
    for name, id_ in plain.items():
        if forms.get(name, id_) != id_:
            raise UnsupportedTokenizerError(
                f"the format can't hold {name!r}: the token with id {forms[name]} is written like that"
            )
    return plain


def trim_of(contents: Mapping[str, Any]) -> Trim | None:
    """Which spans leave out blanks.

    Raises:
        NotOursError: they are left out more than once.
    """
    trims: list[Trim] = [
        "but_first" if flag_of(part, "add_prefix_space", True) else "all"
        for part in parts_of(contents, "post_processor")
        if part.get("type") in ("ByteLevel", "RobertaProcessing") and flag_of(part, "trim_offsets", True)
    ]
    if len(trims) > 1:
        raise NotOursError("it has several post-processors that trim offsets")
    return trims[0] if trims else None


def one_type(contents: Mapping[str, Any], place: StepPlace) -> str | None:
    """The type of the only step at one place of a definition; `None` if there is none.

    Raises:
        NotOursError: there are several.
    """
    parts = parts_of(contents, place)
    if len(parts) > 1:
        raise NotOursError(f"it has the parts {[single.get('type') for single in parts]} in a row")
    return str(parts[0].get("type")) if parts else None


def _check_order(tokens: Sequence[Mapping[str, Any]]) -> None:
    """Refuse tokens that would be found in another order: the library looks for those as they are first."""
    as_they_are = [token["content"] for token in tokens if not token.get("normalized")]
    normalized = [token["content"] for token in tokens if token.get("normalized")]
    if sum(map(len, as_they_are)) * sum(map(len, normalized)) > _MOST_COMPARED:
        raise NotOursError("it has very many added tokens of two kinds")
    if as_they_are and normalized and any(token.get("lstrip") or token.get("rstrip") for token in tokens):
        raise NotOursError("it has added tokens of two kinds, some of which take white space with them")
    for one, other in product(as_they_are, normalized):
        if one in other or other in one or _overlap(one, other) or _overlap(other, one):
            raise NotOursError(f"the added tokens {one!r} and {other!r} can overlap")


def _overlap(left: str, right: str) -> bool:
    return any(left.endswith(right[:length]) for length in range(1, min(len(left), len(right))))
