"""Compliance checks for tokenizers, on texts with edge cases.

Parametrize a test of a custom tokenizer type with them:

    @pytest.mark.parametrize("check", tokjax.testing.CHECKS, ids=lambda check: check.__name__)
    def test_my_tokenizer(check):
        check(MyTokenizer(...))

Each check raises an `AssertionError` that names the violated requirement and the text.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core import protocol
from tokjax.core.decode_stream import decode_stream
from tokjax.core.protocol import pre_tokenize
from tokjax.core.vocabulary import format_token
from tokjax.encoding import encode
from tokjax.errors import OffsetsContractError, TokjaxError, UnsupportedTokenizerError
from tokjax.models.vocabulary_changes import extend_vocabulary
from tokjax.offsets import assert_offsets_contract, span_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.records import TokenizationResult
    from tokjax.core.template import TemplatePiece

HARD_TEXTS: tuple[str | bytes, ...] = (
    "",
    " ",
    "a",
    "Hello, world!  It's 12345 o'clock\n\n\tindeed.",
    "naïve café e\u0301 ﬁ ½ ＡＢＣ İstanbul ẞ ΣΑΣ",
    "日本語のテキスト 한국어 العربية हिन्दी ไทย русский",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 \u200b \ufeff \ufffd",
    "\u00a0\u2003\u3000\u1680 \x00\x1c\x85\u2028 \r\n",
    "▁a Ġb ##c <0x41> <unk> [MASK",
    "aaaa" * 50 + " " * 100 + "\n" * 50,
    "word " * 500,
    "\ud83d\ude00 \ud83d \udc00",
    b"bytes \xff\xfe that are \xe2\x82 no UTF-8",
)
"""Edge cases: empty and long texts, many scripts, lone surrogates, control characters, invalid UTF-8."""

_PLAIN_TEXTS = ("low", "a", "low low", "newest widest low", "the inner meaning", "low lower")
"""Texts of common words, which most vocabularies can encode without the unknown token."""
_OPTIONAL_COLUMNS = ("offsets", "special_tokens_mask", "token_type_ids", "word_ids", "sequence_ids")


def check_vocabulary(tokenizer: Any) -> None:
    """Checks that the functions of the vocabulary agree: size, ids of tokens, tokens of ids."""
    table = protocol.get_vocabulary(tokenizer)
    assert protocol.vocab_size(tokenizer) == max(table.bytes_by_id) + 1, (
        "vocab_size is not the largest id plus one"
    )
    for id_, token in table.bytes_by_id.items():
        assert protocol.id_to_bytes(tokenizer, id_) == token, f"id_to_bytes({id_}) is not {token!r}"
    for name, id_ in protocol.special_tokens(tokenizer).items():
        assert protocol.token_to_id(tokenizer, name) == id_, f"token_to_id({name!r}) is not {id_}"


def check_columns(tokenizer: Any) -> None:
    """Checks that all columns are present and have valid values."""
    table = protocol.get_vocabulary(tokenizer)
    for text in HARD_TEXTS:
        result = _encode(tokenizer, text)
        table.check_ids(result.ids)
        assert result.ids.dtype == np.int32, f"ids of {text!r:.60} are {result.ids.dtype}, not int32"
        assert result.attention_mask is not None, "return_masks=True returns no attention_mask"
        assert result.attention_mask.all(), f"the attention mask of {text!r:.60} is not all ones"
        for name in _OPTIONAL_COLUMNS[1:3]:
            assert getattr(result, name) is not None, f"return_masks=True returns no {name}"
        special = result.special_tokens_mask
        assert special is not None
        expected = table.is_special.take(result.ids)
        assert (special[expected] == 1).all(), f"a special token of {text!r:.60} has mask 0"
        assert (special[~expected] == 0).all(), f"an ordinary token of {text!r:.60} has mask 1"
        _check_inserted_tokens(result, table.template.single, text)


def check_offsets(tokenizer: Any) -> None:
    """Checks that offsets satisfy the offsets contract for the text that they refer to."""
    for text in HARD_TEXTS:
        result = _encode(tokenizer, text)
        if result.offsets is None:
            continue
        _check_contract(tokenizer, text, result, result.offsets, "offsets")
        assert result.sequence_ids is not None, "there are offsets, but no sequence_ids"
        inserted = result.sequence_ids == -1
        assert (result.offsets[inserted] == 0).all(), f"an inserted token of {text!r:.60} has a span"
        assert (result.offsets[~inserted] > 0).all(), f"a token of {text!r:.60} has no span"
        starts = result.offsets[~inserted, 0]
        assert (np.diff(starts) >= 0).all(), f"spans of {text!r:.60} are not in ascending order"
        mapped = protocol.map_offsets_to_input(tokenizer, text, result.offsets)
        assert_offsets_contract(text, mapped)


def check_span_coverage(tokenizer: Any) -> None:
    """Checks that every character of a plain text except whitespace is in the span of a token."""
    for text in _PLAIN_TEXTS:
        result = _encode(tokenizer, text)
        if result.offsets is None:
            continue
        covered = np.zeros(len(text), bool)
        for start, stop in result.offsets.tolist():
            covered[max(start - 1, 0) : max(stop - 1, 0)] = True
        missed = [character for character, is_covered in zip(text, covered, strict=True) if not is_covered]
        assert not "".join(missed).strip(), f"no span contains the characters {missed} of {text!r}"


def check_pre_tokenize(tokenizer: Any) -> None:
    """Checks that pre-tokens have valid offsets, and that no token crosses their bounds.

    A tokenizer that encodes texts without splitting them first must raise `UnsupportedTokenizerError`.
    """
    for text in HARD_TEXTS:
        try:
            pretokens = pre_tokenize(tokenizer, text, disallowed_special=())
        except UnsupportedTokenizerError:
            return
        result = _encode(tokenizer, text, add_special_tokens=False)
        view = _check_contract(tokenizer, text, result, pretokens.offsets, "pre-tokens")
        for string, span in zip(pretokens.strings, pretokens.offsets, strict=True):
            expected = format_token(span_bytes(view, span))
            assert string == expected, (
                f"the pre-token {string!r} of {text!r:.60} has the span of {expected!r}"
            )
        assert result.offsets is not None, "there are pre-tokens, but no offsets"
        starts, stops = result.offsets[result.offsets[:, 0] < result.offsets[:, 1]].T
        first = np.searchsorted(pretokens.offsets[:, 0], starts, "right") - 1
        assert (first >= 0).all(), f"a token of {text!r:.60} is before the first pre-token"
        assert (stops <= pretokens.offsets[first, 1]).all(), f"a token of {text!r:.60} crosses a pre-token"


def check_batches(tokenizer: Any) -> None:
    """Checks that a batch equals its texts encoded separately, with any selection of columns."""
    texts = list(HARD_TEXTS)
    batch = encode.encode_batch_result(tokenizer, texts, disallowed_special=())
    assert len(batch) == len(texts), f"a batch of {len(texts)} texts has {len(batch)} rows"
    for text, row in zip(texts, batch, strict=True):
        assert row == _encode(tokenizer, text), (
            f"the row of {text!r:.60} differs between a batch and a single text"
        )
    ids_only = encode.encode_batch_result(
        tokenizer, texts, return_offsets=False, return_masks=False, disallowed_special=()
    )
    assert ids_only.ids.tolist() == batch.ids.tolist(), "ids depend on the requested columns"
    assert all(getattr(ids_only, name) is None for name in _OPTIONAL_COLUMNS), (
        "a batch has columns that were not requested"
    )
    assert len(encode.encode_batch_result(tokenizer, [])) == 0, "a batch without texts has rows"


def check_encode(tokenizer: Any) -> None:
    """Checks that `encode` returns the ids of `encode_result`, with and without special tokens."""
    for text in HARD_TEXTS:
        cases: tuple[dict[str, Any], ...] = {}, {"add_special_tokens": True}, {"add_special_tokens": False}
        for options in cases:
            ids = protocol.encode(tokenizer, text, **{"disallowed_special": (), **options})
            result = _encode(tokenizer, text, **options)
            assert ids.tolist() == result.ids.tolist(), (
                f"encode and encode_result differ for {text!r:.60} with {options}"
            )


def check_round_trip(tokenizer: Any) -> None:
    """Checks that texts without unknown tokens decode to themselves, and that different texts differ in ids.

    Whitespace is not compared, since some tokenizers do not keep it.
    """
    unknown = protocol.unk_id(tokenizer)
    seen: dict[tuple[int, ...], str] = {}
    for text in _PLAIN_TEXTS:
        ids = protocol.encode(tokenizer, text)
        if unknown is not None and unknown in ids:
            continue
        decoded = protocol.decode(tokenizer, ids, skip_special_tokens=True)
        assert "".join(decoded.split()) == "".join(text.split()), f"{text!r} is decoded as {decoded!r}"
        other = seen.setdefault(tuple(ids.tolist()), text)
        assert other == text, f"{text!r} and {other!r} have the same ids"


def check_template(tokenizer: Any) -> None:
    """Checks that `add_special_tokens` inserts exactly the tokens of the template."""
    table = protocol.get_vocabulary(tokenizer)
    for text in _PLAIN_TEXTS:
        ordinary_ids = _encode(tokenizer, text, add_special_tokens=False).ids.tolist()
        expected: list[int] = []
        for piece in table.template.single:
            expected += ordinary_ids if piece.token is None else [table.get_id(piece.token)]
        assert _encode(tokenizer, text).ids.tolist() == expected, f"ids of {text!r} do not match the template"


def check_decoding(tokenizer: Any) -> None:
    """Checks that all ids can be decoded, and that a batch is decoded like single rows."""
    table = protocol.get_vocabulary(tokenizer)
    protocol.decode_bytes(tokenizer, np.array(list(table.bytes_by_id), np.int32))
    for text in HARD_TEXTS:
        ids = protocol.encode(tokenizer, text, disallowed_special=())
        decoded = protocol.decode_bytes(tokenizer, ids)
        assert isinstance(decoded, bytes), f"decode_bytes returns a {type(decoded).__name__}, not bytes"
        assert protocol.decode_batch(tokenizer, [ids, ids[:0]]) == [decoded.decode("utf-8", "replace"), ""], (
            f"decode_batch and decode_bytes differ for the ids of {text!r:.60}"
        )


def check_streaming(tokenizer: Any) -> None:
    """Checks that ids decoded one by one give the text of all ids."""
    table = protocol.get_vocabulary(tokenizer)
    rows = [protocol.encode(tokenizer, text, disallowed_special=()) for text in HARD_TEXTS]
    ids = np.array(list(table.bytes_by_id), np.int32)
    for row in (*rows, ids[-300:], ids[:300][::-1]):
        for skip in (False, True):
            pieces = list(decode_stream(tokenizer, row[:500], skip_special_tokens=skip))
            expected = protocol.decode(tokenizer, row[:500], skip_special_tokens=skip)
            assert "".join(pieces) == expected, (
                f"the pieces of decode_stream differ from the text of decode, {expected!r:.60}"
            )


def check_special_tokens(tokenizer: Any) -> None:
    """Checks that a special token in a text is rejected, recognized if allowed, or else ordinary text."""
    for name, id_ in protocol.special_tokens(tokenizer).items():
        if name == protocol.get_vocabulary(tokenizer).roles.get("unk"):
            continue
        text = f"a {name} b"
        try:
            protocol.encode(tokenizer, text)
        except TokjaxError:
            pass
        else:
            raise AssertionError(f"{text!r} contains the special token {name!r}, but is not rejected")
        result = _encode(tokenizer, text, add_special_tokens=False, allowed_special={name})
        assert id_ in result.ids, f"{name!r} is in allowed_special, but is not recognized in {text!r}"
        try:
            ordinary = protocol.encode(tokenizer, text, add_special_tokens=False, disallowed_special=())
        except TokjaxError:
            continue  # A library that always recognizes special tokens must raise.
        assert id_ not in ordinary, f"{name!r} is recognized in {text!r}, but is not in allowed_special"


def check_pairs(tokenizer: Any) -> None:
    """Checks that a pair has the tokens of both texts, and that truncation respects `max_length`."""
    for first, second in pairwise(HARD_TEXTS):
        result = _encode(tokenizer, first, second)
        assert result.sequence_ids is not None or result.offsets is None
        parts = [_encode(tokenizer, text, add_special_tokens=False).ids for text in (first, second)]
        if result.sequence_ids is not None:
            for number, ids in enumerate(parts):
                text_ids = result.ids[result.sequence_ids == number]
                assert text_ids.tolist() == ids.tolist(), (
                    f"text {number} of the pair {first!r:.40} and {second!r:.40} has different ids than alone"
                )
        num_inserted = len(result) - sum(map(len, parts))
        truncated = _encode(tokenizer, first, second, max_length=num_inserted + 3)
        expected = min(num_inserted + 3, len(result))
        assert len(truncated) == expected, (
            f"the pair {first!r:.40} and {second!r:.40} has {len(truncated)} tokens after truncation, "
            f"not {expected}"
        )


def check_pickling(tokenizer: Any) -> None:
    """Checks that a pickle round trip preserves equality, the fingerprint and the encoding."""
    restored = pickle.loads(pickle.dumps(tokenizer))
    assert restored == tokenizer, "the tokenizer is not equal after a pickle round trip"
    assert protocol.fingerprint(restored) == protocol.fingerprint(tokenizer), (
        "the fingerprint changes in a pickle round trip"
    )
    for text in HARD_TEXTS:
        assert _encode(restored, text) == _encode(tokenizer, text), (
            f"{text!r:.60} is encoded differently after a pickle round trip"
        )


def check_threads(tokenizer: Any) -> None:
    """Checks that threads can share the tokenizer."""
    expected = [_encode(tokenizer, text) for text in HARD_TEXTS]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            results = list(threads.map(lambda text: _encode(tokenizer, text), HARD_TEXTS))
            assert results == expected, "results in concurrent threads differ"


def check_vocabulary_changes(tokenizer: Any) -> None:
    """Checks that a vocabulary with one more special token changes no other ids.

    A tokenizer that can't be changed must raise `UnsupportedTokenizerError`.
    """
    name, size = "<|tokjax_added|>", protocol.vocab_size(tokenizer)
    try:
        extended, old_ids = extend_vocabulary(tokenizer, [name], special=True)
    except UnsupportedTokenizerError:
        return
    assert old_ids.tolist() == [*range(size), -1], "the map of old ids is not that of one token at the end"
    assert protocol.token_to_id(extended, name) == size, "the id of an added token is not the next id"
    assert protocol.fingerprint(extended) != protocol.fingerprint(tokenizer), (
        "the fingerprint does not depend on an added token"
    )
    for text in HARD_TEXTS:
        assert _encode(extended, text) == _encode(tokenizer, text), (
            f"{text!r:.60} is encoded differently after another token was added"
        )
    check_special_tokens(extended)


CHECKS: tuple[Callable[[Any], None], ...] = (
    check_vocabulary,
    check_columns,
    check_offsets,
    check_span_coverage,
    check_pre_tokenize,
    check_template,
    check_batches,
    check_encode,
    check_round_trip,
    check_decoding,
    check_streaming,
    check_special_tokens,
    check_vocabulary_changes,
    check_pairs,
    check_pickling,
    check_threads,
)
"""All checks of tokenizers. Each takes a tokenizer."""


def check_tokenizer(tokenizer: Any) -> None:
    """Runs all checks of a tokenizer.

    Args:
        tokenizer: tokenizer of any registered type.

    Raises:
        AssertionError: the tokenizer violates a requirement; the message names it and the text.
    """
    for check in CHECKS:
        check(tokenizer)


def _check_inserted_tokens(result: TokenizationResult, single: Sequence[TemplatePiece], text: Any) -> None:
    """Checks that type ids match the template, and that word ids ascend and are -1 for inserted tokens."""
    if result.sequence_ids is None:
        return
    inserted = result.sequence_ids == -1
    assert result.token_type_ids is not None
    [text_type_id] = [piece.type_id for piece in single if piece.text is not None]
    assert (result.token_type_ids[~inserted] == text_type_id).all(), (
        f"type ids of {text!r:.60} are not {text_type_id}, the type id of the template"
    )
    word_ids = result.word_ids
    if word_ids is not None:
        assert (word_ids[inserted] == -1).all(), f"an inserted token of {text!r:.60} has a word id"
        assert (word_ids[~inserted] >= 0).all(), f"a token of {text!r:.60} has no word id"
        assert (np.diff(word_ids[~inserted]) >= 0).all(), f"word ids of {text!r:.60} are not ascending"


def _check_contract(
    tokenizer: Any, text: Any, result: TokenizationResult, offsets: NDArray[np.int64], name: str
) -> Any:
    """Checks the offsets contract, and returns the text that the offsets refer to."""
    view = text
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        view = protocol.tokenization_view(tokenizer, text)
    try:
        assert_offsets_contract(view, offsets)
    except OffsetsContractError as error:
        raise AssertionError(f"{name} of {text!r:.60}: {error}") from error
    return view


def _encode(tokenizer: Any, text: Any, pair: Any = None, **options: Any) -> TokenizationResult:
    return encode.encode_result(tokenizer, text, pair, **{"disallowed_special": (), **options})
