"""Copies of tokenizers with more or fewer tokens, other roles of special tokens, or another template.

Changes of tokens also return the old row of an embedding table for each new one.

Example of a BPE vocabulary, from which the last merge is removed:

    id             0 ... 255   256       257   258   259
    token          bytes       <eos>     lo    low   <pad>
    after          bytes       <eos>     lo    <pad>
    old ids        0 ... 255   256       257   259
"""

from __future__ import annotations

import dataclasses
from functools import singledispatch
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core.encode_options import RoleOptions, accept_options, get_roles
from tokjax.core.protocol import get_vocabulary
from tokjax.core.template import make_template
from tokjax.core.utf8 import to_utf8
from tokjax.core.vocabulary import TEMPLATE_ROLES, AddedToken, check_role_names
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.base import SegmentModel
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.characters import ByteTokenizer, CharTokenizer
from tokjax.models.metaspace import MetaspaceBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece, set_added_tokens
from tokjax.models.sentencepiece_files import PieceType, append_pieces, keep_pieces, parse_pieces
from tokjax.models.unigram import Unigram
from tokjax.models.wordpiece import LongestMatchModel, WordPieceTokenizer
from tokjax.models.words import WordBPE
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons, check_special_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.core.vocabulary import Role, Vocabulary

Name = TypeVar("Name", str, bytes)
Model = TypeVar("Model", bound=SegmentModel)


@singledispatch
def extend_vocabulary(
    tokenizer: Any,
    tokens: Sequence[str],  # noqa: ARG001 (types that register this function use it, and the options)
    *,
    special: bool = False,  # noqa: ARG001
    pad_token: str | None = None,  # noqa: ARG001
) -> tuple[Any, NDArray[np.int32]]:
    """Adds tokens at the end of a vocabulary, and maps the rows of an embedding table to the new ids.

    The ids equal those of `add_tokens` and `add_special_tokens` in transformers, if the old ids have no gaps.
    A token that is in the vocabulary keeps its id. The tokens are matched in texts before these are
    normalized, as an `AddedToken(name, normalized=False)` is there. Tokenizers that run on the `tokenizers`
    library match tokens that are not special after normalization, which is the library's default.

    Args:
        tokenizer: any built-in tokenizer, or one that runs on the `tokenizers` library.
        tokens: names of the tokens.
        special: whether they are special tokens. Otherwise they are matched wherever a text contains them,
            except for those of a SentencePiece model that look like control tokens, such as `<call>`.
        pad_token: special token, new or not, that pads a batch; `None` for no change.

    Returns:
        The new tokenizer; and the old id of each new id, or -1 for new tokens, `int32`, shape
        `(new_vocab_size,)`.

    Raises:
        InvalidArgumentError: a name is empty or a duplicate, a text can become an ordinary token that is to
            be special, or `pad_token` is not a special token.
        UnsupportedTokenizerError: tokens of this kind can't be added to the tokenizer.

    >>> from tokjax import byte_level, token_to_id
    >>> tokenizer, old_ids = extend_vocabulary(byte_level(), ["<user>"], special=True)
    >>> token_to_id(tokenizer, "<user>"), old_ids[-2:].tolist()
    (256, [255, -1])
    """
    get_vocabulary(tokenizer)  # raises for objects that are not tokenizers
    raise UnsupportedTokenizerError(
        f"the vocabulary of a {type(tokenizer).__name__} can't be extended; register the type with "
        "@tokjax.extend_vocabulary.register"
    )


@singledispatch
def truncate_vocabulary(tokenizer: Any, size: int) -> tuple[Any, NDArray[np.int32]]:  # noqa: ARG001 (as above)
    """Removes the last merges of a BPE vocabulary, or the rarest words, and maps the old ids to the new ones.

    The result equals a tokenizer that was trained or loaded with fewer merges. Its ids are consecutive, in
    the order of the old ids. Special tokens, added tokens, bytes and single characters are kept. In WordPiece
    and word-level vocabularies, the tokens with the highest ids are removed, which are the rarest ones if the
    vocabulary was trained.

    Args:
        tokenizer: byte-level BPE, BPE of pieces, SentencePiece BPE model, classic BPE, WordPiece or
            word-level tokenizer.
        size: number of tokens of the new vocabulary, special tokens included.

    Returns:
        The new tokenizer; and the old id of each new id, ascending, `int32`, shape `(size,)`.

    Raises:
        InvalidArgumentError: the vocabulary has fewer tokens, or more tokens than `size` have to be kept.
        UnsupportedTokenizerError: the vocabulary of such a tokenizer can't be truncated.

    >>> from tokjax import tokenize
    >>> from tokjax.models import word_level
    >>> words = word_level(["[UNK]", "the", "of", "zygote", "[PAD]"])
    >>> shorter, old_ids = truncate_vocabulary(words, 4)
    >>> tokenize(shorter, "the zygote"), old_ids.tolist()
    (['the', '[UNK]'], [0, 1, 2, 4])
    """
    get_vocabulary(tokenizer)
    raise UnsupportedTokenizerError(
        f"the vocabulary of a {type(tokenizer).__name__} can't be truncated; truncate_vocabulary is for BPE, "
        "WordPiece and word-level tokenizers"
    )


def map_old_ids(old_size: int, new_size: int) -> NDArray[np.int32]:
    """Returns the old id of each id of an extended vocabulary, -1 for new ones, shape `(new_size,)`."""
    old_ids = np.full(new_size, -1, np.int32)
    old_ids[:old_size] = np.arange(old_size)
    return old_ids


@extend_vocabulary.register(SegmentModel)
def _extend(
    tokenizer: SegmentModel, tokens: Sequence[str], *, special: bool = False, pad_token: str | None = None
) -> tuple[SegmentModel, NDArray[np.int32]]:
    if not special and isinstance(tokenizer, (ByteTokenizer, CharTokenizer)):
        raise UnsupportedTokenizerError(
            f"a {type(tokenizer).__name__} has no tokens of several bytes or characters except special ones; "
            "pass special=True"
        )
    vocabulary = tokenizer.vocabulary
    ids = _assign_ids(tokenizer, check_special_names(tokens, "tokens"), special=special)
    special_ids = ids if special else {}
    moved_ids = set(special_ids.values())
    ordinary = {token: id_ for token, id_ in vocabulary.ordinary.items() if id_ not in moved_ids}
    added_tokens, duplicate_ids = dict(vocabulary.added_tokens), dict(vocabulary.duplicate_token_ids)
    unreachable_ids = {name: id_ for name, id_ in vocabulary.unreachable_ids.items() if name not in ids}
    for name, id_ in {} if special else ids.items():
        added_tokens[name] = AddedToken()
        is_model_token = isinstance(tokenizer, LongestMatchModel) and name.encode("utf-8") in ordinary
        if ordinary.setdefault(name.encode("utf-8"), id_) != id_ or is_model_token:
            duplicate_ids[name] = id_
    extended = vocabulary.change(
        ordinary=ordinary,
        special={**vocabulary.special, **special_ids},
        roles=vocabulary.roles if pad_token is None else {**vocabulary.roles, "pad": pad_token},
        added_tokens=added_tokens,
        duplicate_token_ids=duplicate_ids,
        unreachable_ids=unreachable_ids,
    )
    check_comparisons(extended.split_token_names)
    return tokenizer.replace_vocabulary(extended), map_old_ids(vocabulary.size, extended.size)


def _assign_ids(tokenizer: SegmentModel, names: Sequence[str], *, special: bool) -> dict[str, int]:
    """Returns name to id of the tokens that become special or added tokens: their old id, or the next one."""
    vocabulary = tokenizer.vocabulary
    known_names = vocabulary.special_names if special else vocabulary.split_token_names
    ids: dict[str, int] = {}
    next_id = vocabulary.size
    for name in names:
        if name in known_names:
            continue
        old_id = _find_ordinary_token(tokenizer, name)
        if special and old_id is not None and not isinstance(tokenizer, (LongestMatchModel, Unigram)):
            raise InvalidArgumentError(
                f"{name!r} can't be special: it is an ordinary token (id {old_id}), which text can become"
            )
        ids[name] = next_id if old_id is None else old_id
        next_id += old_id is None
    return ids


def _find_ordinary_token(tokenizer: SegmentModel, name: str) -> int | None:
    """Returns the id that transformers finds for the name of an ordinary token, or `None` for a new token.

    In a byte-level vocabulary, it finds added tokens, and names that are also the written form of their
    bytes: `low`, but neither ` low`, which is written `Ġlow`, nor `é`.
    """
    if name in tokenizer.vocabulary.added_names:
        return tokenizer.vocabulary.get_id(name)
    if name in tokenizer.vocabulary.unreachable_ids:
        return tokenizer.vocabulary.unreachable_ids[name]
    token = name.encode("utf-8")
    if isinstance(tokenizer, ByteLevelBPE) and map_unicode_to_bytes(name) != token:
        return None
    return tokenizer.vocabulary.ordinary.get(token)


@extend_vocabulary.register(SentencePieceTokenizer)
def _extend_sentencepiece(
    tokenizer: SentencePieceTokenizer,
    tokens: Sequence[str],
    *,
    special: bool = False,
    pad_token: str | None = None,
) -> tuple[SentencePieceTokenizer, NDArray[np.int32]]:
    if tokenizer.model_type == "word" and not special:
        raise UnsupportedTokenizerError(
            'a SentencePiece model of type "word" matches no symbols inside words; pass special=True'
        )
    vocabulary = tokenizer.vocabulary
    piece_type = PieceType.CONTROL if special else PieceType.USER_DEFINED
    names = check_special_names(tokens, "tokens")
    proto = append_pieces(tokenizer.model_proto, dict.fromkeys(names, piece_type))
    roles = vocabulary.roles if pad_token is None else {**vocabulary.roles, "pad": pad_token}
    extended = _build_sentencepiece(proto, dataclasses.replace(vocabulary, roles=roles))
    return extended, map_old_ids(vocabulary.size, extended.vocabulary.size)


@truncate_vocabulary.register(SentencePieceTokenizer)
def _truncate_sentencepiece(
    tokenizer: SentencePieceTokenizer, size: int
) -> tuple[SentencePieceTokenizer, NDArray[np.int32]]:
    if tokenizer.model_type != "bpe":
        raise UnsupportedTokenizerError(
            f"a SentencePiece model of type {tokenizer.model_type!r} can't be truncated; train a model with "
            "fewer pieces"
        )
    scores = parse_pieces(tokenizer.model_proto, has_byte_fallback=False).scores
    merged = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: -scores[piece])
    old_ids = _select_ids(tokenizer.vocabulary, (piece.encode("utf-8") for piece in merged), size)
    proto = keep_pieces(tokenizer.model_proto, set(old_ids.tolist()))
    return _build_sentencepiece(proto, tokenizer.vocabulary), old_ids


def _build_sentencepiece(proto: bytes, old: Vocabulary) -> SentencePieceTokenizer:
    """Returns a tokenizer of a model, with the roles, template and added tokens of another vocabulary."""
    return set_added_tokens(sentencepiece(proto), old.roles, old.explicit_template, old.added_tokens)


@truncate_vocabulary.register(ByteLevelBPE)
@truncate_vocabulary.register(MetaspaceBPE)
@truncate_vocabulary.register(WordBPE)
@truncate_vocabulary.register(LongestMatchModel)
def _truncate(tokenizer: Model, size: int) -> tuple[Model, NDArray[np.int32]]:
    vocabulary = tokenizer.vocabulary
    merges: Sequence[tuple[str, str] | tuple[bytes, bytes]] | None = getattr(tokenizer, "merges", None)
    made: Iterable[bytes] = map(_join, merges or ())
    if merges is None:
        by_id = sorted(vocabulary.ordinary, key=vocabulary.ordinary.__getitem__)
        made = (token for token in by_id if _is_removable(tokenizer, token))
    # Merges may make tokens that are not in the vocabulary.
    old_ids = _select_ids(vocabulary, filter(vocabulary.ordinary.__contains__, made), size)
    changes: dict[str, Any] = {"vocabulary": _keep_ids(vocabulary, old_ids)}
    if merges is not None:
        kept_ids = set(old_ids.tolist())
        removed = {token for token, id_ in vocabulary.ordinary.items() if id_ not in kept_ids}
        first_merges = takewhile(lambda merge: _join(merge) not in removed, merges)
        changes["merges"] = tuple(merge for merge in first_merges if removed.isdisjoint(map(to_utf8, merge)))
    return dataclasses.replace(tokenizer, **changes), old_ids  # type: ignore[type-var]


def _join(merge: tuple[str, str] | tuple[bytes, bytes]) -> bytes:
    """Returns the token that a merge makes."""
    left, right = merge
    return to_utf8(left) + to_utf8(right)


def _is_removable(tokenizer: SegmentModel, token: bytes) -> bool:
    """Returns whether a token is none of the bytes or characters of which all others are made."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return len(token.decode("utf-8").removeprefix(tokenizer.continuing_prefix)) > 1
    return len(token) > 1 or not isinstance(tokenizer, ByteLevelBPE)


def _select_ids(vocabulary: Vocabulary, tokens: Iterable[bytes], size: int) -> NDArray[np.int32]:
    """Returns the ids of a truncated vocabulary, ascending, shape `(size,)`.

    Args:
        vocabulary: the vocabulary.
        tokens: tokens that can be removed, the last one first; repeated and added tokens are ignored.
        size: number of ids.
    """
    size = check_int("size", size, minimum=1)
    added = set(map(vocabulary.get_id, vocabulary.split_token_names))
    ids = (vocabulary.ordinary[token] for token in dict.fromkeys(tokens))
    removable = [id_ for id_ in ids if id_ not in added]
    num_tokens = len(vocabulary.bytes_by_id)
    minimum = num_tokens - len(removable)
    if not minimum <= size <= num_tokens:
        raise InvalidArgumentError(
            f"size is {size}, but the vocabulary has {num_tokens} tokens, of which {minimum} have to be kept"
        )
    removed = removable[size - minimum :]
    return np.setdiff1d(np.array(list(vocabulary.bytes_by_id), np.int32), np.array(removed, np.int32))


def _keep_ids(vocabulary: Vocabulary, old_ids: NDArray[np.int32]) -> Vocabulary:
    """Returns a vocabulary of some ids, renumbered from 0."""
    new_ids = {old_id: new_id for new_id, old_id in enumerate(old_ids.tolist())}

    def renumber(ids: Mapping[Name, int]) -> dict[Name, int]:
        return {name: new_ids[id_] for name, id_ in ids.items() if id_ in new_ids}

    ordinary, duplicate_ids = renumber(vocabulary.ordinary), renumber(vocabulary.duplicate_token_ids)
    unreachable_ids = renumber(vocabulary.unreachable_ids)
    for ids in duplicate_ids, unreachable_ids:
        for name in [name for name in ids if name and name.encode("utf-8") not in ordinary]:
            ordinary[name.encode("utf-8")] = ids.pop(name)  # its duplicate was removed
    return vocabulary.change(
        ordinary=ordinary,
        special=renumber(vocabulary.special),
        duplicate_token_ids=duplicate_ids,
        unreachable_ids=unreachable_ids,
    )


def with_template(
    tokenizer: Model, single: str | Sequence[str], pair: str | Sequence[str] | None = None
) -> Model:
    """Returns a copy of a tokenizer with another template, which inserts special tokens around texts.

    Args:
        tokenizer: one of the built-in tokenizers.
        single: template of one text, as in `make_template`.
        pair: template of a pair of texts; `None` derives it from `single`.

    Raises:
        InvalidArgumentError: the template has a token that is neither a special nor an added token of the
            tokenizer, or lacks a text.
        UnsupportedTokenizerError: the tokenizer is not one of the built-in types.

    >>> from tokjax import encode_result, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "me"])
    >>> encode_result(with_template(bert, "$A [SEP]"), "me").tokens
    ('me', '[SEP]')
    """
    if not isinstance(tokenizer, SegmentModel):
        raise UnsupportedTokenizerError(
            f"with_template needs one of the built-in tokenizers, not a {type(tokenizer).__name__}"
        )
    template = make_template(single, pair)
    return tokenizer.replace_vocabulary(tokenizer.vocabulary.change(explicit_template=template))


@accept_options(RoleOptions)
def with_roles(tokenizer: Model, **roles: Unpack[RoleOptions]) -> Model:
    """Returns a copy of a tokenizer with other tokens in some roles. Its template stays the same.

    Args:
        tokenizer: one of the built-in tokenizers, or one that runs on the `tokenizers` library.
        **roles: special tokens in roles: `bos_token`, `eos_token`, `pad_token`, `unk_token`, `cls_token`,
            `sep_token` and `mask_token`; `None` keeps the present token. The last three can also be ordinary
            tokens, such as user-defined symbols of a SentencePiece model.

    Raises:
        InvalidArgumentError: a role names a token that does not exist, or has to be special.
        UnsupportedTokenizerError: the tokenizer is of another type.

    >>> from tokjax import byte_level, mask_id
    >>> tokenizer = with_roles(byte_level(["</s>", "<mask>"], eos_token="</s>"), mask_token="<mask>")
    >>> mask_id(tokenizer)
    1
    """
    if not isinstance(tokenizer, SegmentModel):
        raise UnsupportedTokenizerError(
            f"with_roles needs a tokenizer that tokjax loads or makes, not a {type(tokenizer).__name__}"
        )
    return replace_roles(tokenizer, get_roles(roles))


def replace_roles(tokenizer: Model, overrides: Mapping[Role, str | None]) -> Model:
    """Returns a copy of a tokenizer with other tokens in some roles. Its template stays the same.

    Args:
        tokenizer: the tokenizer.
        overrides: role to the name of a token, or `None` to keep the present one.

    Raises:
        InvalidArgumentError: a role names a token that does not exist, or has to be special.
    """
    old = tokenizer.vocabulary
    named = {role: name for role, name in check_role_names(overrides).items() if name is not None}
    roles = {**old.roles, **named}
    if roles == old.roles:
        return tokenizer
    # A template that follows from BOS and EOS would change with them, so it becomes explicit.
    changes_template = any(roles.get(role) != old.roles.get(role) for role in TEMPLATE_ROLES)
    template = old.template if changes_template else old.explicit_template
    return tokenizer.replace_vocabulary(old.change(roles=roles, explicit_template=template))
