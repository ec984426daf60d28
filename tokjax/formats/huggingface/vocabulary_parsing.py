"""The parts of a `tokenizer.json` that all models have: added tokens, and what is around texts.

What tokjax does not do exactly as the library raises `RequiresLibraryError`: such a tokenizer runs on the library.
"""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core.vocabulary import AddedToken, make_vocabulary
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface.definition import RequiresLibraryError, get_flag, get_steps, parse_template
from tokjax.formats.tokenizer_files import resolve_roles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.formats.huggingface.definition import PipelineSlot
    from tokjax.models.added_spaces import TrimOffsets

_MAX_COMPARED = 1 << 20


class AddedTokens(NamedTuple):
    """Tokens that are found in a text before it is split.

    Attributes:
        special: name to id of special ones.
        ordinary: name to id of others.
        flags: all that are no special ones, and those that take white space with them.
    """

    special: dict[str, int]
    ordinary: dict[str, int]
    flags: dict[str, AddedToken]


def parse_added_tokens(contents: Mapping[str, Any], *, normalizes: bool) -> AddedTokens:
    """The added tokens of a definition.

    Args:
        contents: the definition.
        normalizes: whether texts are normalised before they are split.

    Raises:
        RequiresLibraryError: one of them is found in another way than tokjax does.
        TokenizerFormatError: one of them has no name or no id.
    """
    tokens = contents.get("added_tokens") or []
    found = AddedTokens({}, {}, {})
    for token in tokens:
        name, id_ = token.get("content"), token.get("id")
        if not isinstance(name, str) or not name or not isinstance(id_, int) or isinstance(id_, bool):
            raise TokenizerFormatError(f"an added token has the content {name!r} and the id {id_!r}")
        if name in found.special or name in found.ordinary:
            raise RequiresLibraryError(f"the added token {name!r} stands twice")
        if get_flag(token, "single_word"):
            raise RequiresLibraryError(f"the added token {name!r} is found as a whole word only")
        if get_flag(token, "normalized") and normalizes:
            raise RequiresLibraryError(f"the added token {name!r} is found in normalised text")
        is_special = get_flag(token, "special")
        (found.special if is_special else found.ordinary)[name] = id_
        flags = AddedToken(get_flag(token, "lstrip"), get_flag(token, "rstrip"))
        if any(flags) or not is_special:
            found.flags[name] = flags
    if any(map(any, found.flags.values())):
        for name in (*found.special, *found.ordinary):
            if name != name.strip():
                raise RequiresLibraryError(
                    f"added tokens take white space with them, and {name!r} begins or ends with some"
                )
    _check_match_order(tokens)
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
        assigned_id = forms.get(name, max(last + 1, len(forms)))
        if assigned_id != id_:
            raise RequiresLibraryError(
                f"the added token {name!r} has the id {id_}, and the library gives it {assigned_id}"
            )
        last = max(last, assigned_id)


def build_definition_vocabulary(
    contents: Mapping[str, Any],
    ordinary: Mapping[bytes, int],
    added_tokens: AddedTokens,
    roles: Mapping[Role, str],
    duplicate_token_ids: Mapping[str, int] | None = None,
) -> Vocabulary:
    """The vocabulary of a definition, with what it puts around texts.

    Args:
        contents: the definition.
        ordinary: bytes to id, of all tokens that are not special.
        added_tokens: those that are found in a text before it is split.
        roles: which tokens have which role, those of them that are special.
        duplicate_token_ids: as in `make_vocabulary`.

    Raises:
        RequiresLibraryError: something is put around texts in another way than tokjax does.
    """
    return make_vocabulary(
        ordinary,
        added_tokens.special,
        resolve_roles(added_tokens.special, {}, roles),
        parse_template(contents, added_tokens.special),
        added_tokens.flags,
        duplicate_token_ids,
    )


def parse_merges(listed: Any, forms: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of a list of merges, as tokens are written.

    Args:
        listed: pairs, or lines of two tokens.
        forms: the model's vocabulary.

    Raises:
        RequiresLibraryError: one stands twice.
        ValueError: one is no pair, or holds or makes what is no token.
    """
    if (pairs := _try_parse_pairs(listed, forms)) is not None:
        return pairs
    seen: dict[tuple[str, str], None] = {}
    if len({isinstance(merge, str) for merge in listed}) > 1:
        raise ValueError("some merges are lines, others pairs")
    for merge in listed:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or [type(part) for part in parts] != [str, str]:
            raise ValueError(f"the merge {merge!r} is no pair of tokens")
        lstrip, rstrip = parts
        if lstrip not in forms or rstrip not in forms or lstrip + rstrip not in forms:
            missing = next(form for form in (lstrip, rstrip, lstrip + rstrip) if form not in forms)
            raise ValueError(f"the merge {merge!r}: {missing!r} is no token")
        if (lstrip, rstrip) in seen:
            raise RequiresLibraryError(f"the merge of {lstrip!r} and {rstrip!r} stands twice")
        seen[lstrip, rstrip] = None
    return list(seen)


def _try_parse_pairs(listed: Any, forms: Mapping[str, int]) -> list[tuple[str, str]] | None:
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


def get_literal_tokens(vocabulary: Vocabulary, forms: Mapping[str, int]) -> dict[str, int]:
    """The tokens at which texts are parted, which are always written as they are, and their ids.

    Args:
        vocabulary: the tokens.
        forms: the ids of all others, as they are written.

    Raises:
        UnsupportedTokenizerError: one of them is written like another.
    """
    plain = {name: vocabulary.get_id(name) for name in vocabulary.split_token_names}
    for name, id_ in plain.items():
        if forms.get(name, id_) != id_:
            raise UnsupportedTokenizerError(
                f"the format can't hold {name!r}: the token with id {forms[name]} is written like that"
            )
    return plain


def parse_trim_offsets(contents: Mapping[str, Any]) -> TrimOffsets | None:
    """Which spans leave out blanks.

    Raises:
        RequiresLibraryError: they are left out more than once.
    """
    trims: list[TrimOffsets] = [
        "but_first" if get_flag(part, "add_prefix_space", True) else "all"
        for part in get_steps(contents, "post_processor")
        if part.get("type") in ("ByteLevel", "RobertaProcessing") and get_flag(part, "trim_offsets", True)
    ]
    if len(trims) > 1:
        raise RequiresLibraryError("it has several post-processors that trim offsets")
    return trims[0] if trims else None


def get_single_type(contents: Mapping[str, Any], slot: PipelineSlot) -> str | None:
    """The type of the only step at one place of a definition; `None` if there is none.

    Raises:
        RequiresLibraryError: there are several.
    """
    parts = get_steps(contents, slot)
    if len(parts) > 1:
        raise RequiresLibraryError(f"it has the parts {[single.get('type') for single in parts]} in a row")
    return str(parts[0].get("type")) if parts else None


def _check_match_order(tokens: Sequence[Mapping[str, Any]]) -> None:
    """Refuse tokens that would be found in another order: the library looks for those as they are first."""
    verbatim = [token["content"] for token in tokens if not token.get("normalized")]
    normalized = [token["content"] for token in tokens if token.get("normalized")]
    if sum(map(len, verbatim)) * sum(map(len, normalized)) > _MAX_COMPARED:
        raise RequiresLibraryError("it has very many added tokens of two kinds")
    if verbatim and normalized and any(token.get("lstrip") or token.get("rstrip") for token in tokens):
        raise RequiresLibraryError(
            "it has added tokens of two kinds, some of which take white space with them"
        )
    for one, other in product(verbatim, normalized):
        if one in other or other in one or _has_overlap(one, other) or _has_overlap(other, one):
            raise RequiresLibraryError(f"the added tokens {one!r} and {other!r} can overlap")


def _has_overlap(lstrip: str, rstrip: str) -> bool:
    return any(lstrip.endswith(rstrip[:length]) for length in range(1, min(len(lstrip), len(rstrip))))
