"""The contract of tokenizers: checks for a type of your own, on texts that are hard.

    @pytest.mark.parametrize("check", tokjax.testing.CHECKS, ids=lambda check: check.__name__)
    def test_my_tokenizer(check):
        check(MyTokenizer(...))

Each check raises an `AssertionError` that says what is wrong, for which text.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core import protocol
from tokjax.encoding import encode
from tokjax.errors import OffsetsContractError, TokjaxError
from tokjax.offsets import assert_offsets_contract

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
"""Texts of many scripts, of nothing, of surrogates, of bytes that are no UTF-8."""

_PLAIN_TEXTS = ("low", "a", "low low", "newest widest low", "the inner meaning", "low lower")
"""Texts of words that most vocabularies can express."""
_OPTIONAL_COLUMNS = ("offsets", "special_tokens_mask", "token_type_ids", "word_ids", "sequence_ids")


def check_vocabulary(tokenizer: Any) -> None:
    """Ids and tokens go both ways, and roles name special tokens."""
    table = protocol.get_vocabulary(tokenizer)
    assert protocol.vocab_size(tokenizer) == max(table.bytes_by_id) + 1, (
        "vocab_size is the largest id plus one"
    )
    for id_, token in table.bytes_by_id.items():
        assert protocol.id_to_bytes(tokenizer, id_) == token, f"id_to_bytes({id_})"
    for name, id_ in protocol.special_tokens(tokenizer).items():
        assert protocol.token_to_id(tokenizer, name) == id_, f"token_to_id({name!r})"


def check_columns(tokenizer: Any) -> None:
    """All columns are of one length, and have the values that they may have."""
    table = protocol.get_vocabulary(tokenizer)
    for text in HARD_TEXTS:
        result = _encode(tokenizer, text)
        table.check_ids(result.ids)
        assert result.ids.dtype == np.int32, f"ids of {text!r:.60} are {result.ids.dtype}, not int32"
        assert result.attention_mask is not None, "return_masks=True gives an attention_mask"
        assert result.attention_mask.all(), f"the attention mask of {text!r:.60} is not all ones"
        for name in _OPTIONAL_COLUMNS[1:3]:
            assert getattr(result, name) is not None, f"return_masks=True gives {name}"
        special = result.special_tokens_mask
        assert special is not None
        expected = table.is_special.take(result.ids)
        assert (special[expected] == 1).all(), f"a special token of {text!r:.60} has mask 0"
        assert (special[~expected] == 0).all(), f"an ordinary token of {text!r:.60} has mask 1"
        _check_inserted_tokens(result, table.template.single, text)


def check_offsets(tokenizer: Any) -> None:
    """Offsets keep the contract, in the text that they refer to."""
    for text in HARD_TEXTS:
        result = _encode(tokenizer, text)
        if result.offsets is None:
            continue
        view = text
        if result.metadata.offsets_reference == "tokenizer_normalized_text":
            view = protocol.tokenization_view(tokenizer, text)
        try:
            assert_offsets_contract(view, result.offsets)
        except OffsetsContractError as error:
            raise AssertionError(f"offsets of {text!r:.60}: {error}") from error
        assert result.sequence_ids is not None, "offsets come with sequence_ids"
        inserted = result.sequence_ids == -1
        assert (result.offsets[inserted] == 0).all(), f"an inserted token of {text!r:.60} has a span"
        assert (result.offsets[~inserted] > 0).all(), f"a token of {text!r:.60} has no span"
        starts = result.offsets[~inserted, 0]
        assert (np.diff(starts) >= 0).all(), f"spans of {text!r:.60} go backwards"
        mapped = protocol.map_offsets_to_input(tokenizer, text, result.offsets)
        assert_offsets_contract(text, mapped)


def check_span_coverage(tokenizer: Any) -> None:
    """Every letter of a plain text is in the span of a token, and no span holds all of a longer one."""
    for text in _PLAIN_TEXTS:
        result = _encode(tokenizer, text)
        if result.offsets is None:
            continue
        covered = np.zeros(len(text), bool)
        for start, stop in result.offsets.tolist():
            covered[max(start - 1, 0) : max(stop - 1, 0)] = True
        missed = [character for character, is_in in zip(text, covered, strict=True) if not is_in]
        assert not "".join(missed).strip(), f"no token's span holds {missed} of {text!r}"


def check_batches(tokenizer: Any) -> None:
    """A batch is its texts one by one, whatever columns are asked for."""
    texts = list(HARD_TEXTS)
    batch = encode.encode_batch_result(tokenizer, texts, disallowed_special=())
    assert len(batch) == len(texts), "a batch has a row a text"
    for text, row in zip(texts, batch, strict=True):
        assert row == _encode(tokenizer, text), f"{text!r:.60} is another row in a batch than alone"
    ordinary_ids = encode.encode_batch_result(
        tokenizer, texts, return_offsets=False, return_masks=False, disallowed_special=()
    )
    assert ordinary_ids.ids.tolist() == batch.ids.tolist(), "ids change with the columns that are asked for"
    assert all(getattr(ordinary_ids, name) is None for name in _OPTIONAL_COLUMNS), (
        "columns that were not asked for"
    )
    assert len(encode.encode_batch_result(tokenizer, [])) == 0, "a batch of no texts"


def check_encode(tokenizer: Any) -> None:
    """`encode` gives the ids of `encode_result`, with the template or without."""
    for text in HARD_TEXTS:
        for add in (True, False):
            alone = protocol.encode(tokenizer, text, add_special_tokens=add, disallowed_special=())
            result = _encode(tokenizer, text, add_special_tokens=add)
            assert alone.tolist() == result.ids.tolist(), f"encode and encode_result of {text!r:.60}"
        by_default = protocol.encode(tokenizer, text, disallowed_special=())
        assert by_default.tolist() == _encode(tokenizer, text).ids.tolist(), "encode adds special tokens"


def check_round_trip(tokenizer: Any) -> None:
    """Plain words that the vocabulary can express come back, and different texts have different ids."""
    unknown = protocol.unk_id(tokenizer)
    seen: dict[tuple[int, ...], str] = {}
    for text in _PLAIN_TEXTS:
        ids = protocol.encode(tokenizer, text)
        if unknown is not None and unknown in ids:
            continue
        decoded = protocol.decode(tokenizer, ids, skip_special_tokens=True)
        assert "".join(decoded.split()) == "".join(text.split()), f"{text!r} comes back as {decoded!r}"
        other = seen.setdefault(tuple(ids.tolist()), text)
        assert other == text, f"{text!r} and {other!r} have the same ids"


def check_template(tokenizer: Any) -> None:
    """`add_special_tokens` puts the tokens of the template around a text, and nothing else."""
    table = protocol.get_vocabulary(tokenizer)
    for text in _PLAIN_TEXTS:
        ordinary_ids = _encode(tokenizer, text, add_special_tokens=False).ids.tolist()
        expected: list[int] = []
        for position in table.template.single:
            expected += ordinary_ids if position.token is None else [table.special[position.token]]
        assert _encode(tokenizer, text).ids.tolist() == expected, f"{text!r} in the template"


def check_decoding(tokenizer: Any) -> None:
    """Any ids decode, and a batch of them as one by one."""
    table = protocol.get_vocabulary(tokenizer)
    protocol.decode_bytes(tokenizer, np.array(list(table.bytes_by_id), np.int32))
    for text in HARD_TEXTS:
        ids = protocol.encode(tokenizer, text, disallowed_special=())
        decoded = protocol.decode_bytes(tokenizer, ids)
        assert isinstance(decoded, bytes), "decode_bytes gives bytes"
        assert protocol.decode_batch(tokenizer, [ids, ids[:0]]) == [decoded.decode("utf-8", "replace"), ""]


def check_special_tokens(tokenizer: Any) -> None:
    """A special token in a text is refused, or found with its span, or ordinary text."""
    for name, id_ in protocol.special_tokens(tokenizer).items():
        if name == protocol.get_vocabulary(tokenizer).roles.get("unk"):
            continue
        text = f"a {name} b"
        try:
            protocol.encode(tokenizer, text)
        except TokjaxError:
            pass
        else:
            raise AssertionError(f"{text!r} holds a special token, and is not refused")
        found = _encode(tokenizer, text, add_special_tokens=False, allowed_special={name})
        assert id_ in found.ids, f"{name!r} is allowed, and not found in {text!r}"
        try:
            ordinary = protocol.encode(tokenizer, text, add_special_tokens=False, disallowed_special=())
        except TokjaxError:
            continue  # a library that can't is to say so
        assert id_ not in ordinary, f"{name!r} is to be ordinary text, and is found in {text!r}"


def check_pairs(tokenizer: Any) -> None:
    """A pair has the tokens of both texts, in the tokenizer's template; truncation keeps to a length."""
    for first, second in pairwise(HARD_TEXTS):
        result = _encode(tokenizer, first, second)
        assert result.sequence_ids is not None or result.offsets is None
        parts = [_encode(tokenizer, text, add_special_tokens=False).ids for text in (first, second)]
        if result.sequence_ids is not None:
            for number, ids in enumerate(parts):
                text_type_id = result.ids[result.sequence_ids == number]
                assert text_type_id.tolist() == ids.tolist(), (
                    f"text {number} of {first!r:.40} and {second!r:.40}"
                )
        around = len(result) - sum(map(len, parts))
        truncated = _encode(tokenizer, first, second, max_length=around + 3)
        assert len(truncated) == min(around + 3, len(result)), f"{first!r:.40} and {second!r:.40}, cut"


def check_pickling(tokenizer: Any) -> None:
    """It pickles, and what comes back is equal, encodes alike and has the same fingerprint."""
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again == tokenizer, "what comes back from a pickle is not equal"
    assert protocol.fingerprint(again) == protocol.fingerprint(tokenizer), "its fingerprint is another"
    for text in HARD_TEXTS:
        assert _encode(again, text) == _encode(tokenizer, text), f"it encodes {text!r:.60} otherwise"


def check_threads(tokenizer: Any) -> None:
    """Threads can share it."""
    expected = [_encode(tokenizer, text) for text in HARD_TEXTS]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            found = list(threads.map(lambda text: _encode(tokenizer, text), HARD_TEXTS))
            assert found == expected, "in threads it encodes otherwise"


CHECKS: tuple[Callable[[Any], None], ...] = (
    check_vocabulary,
    check_columns,
    check_offsets,
    check_span_coverage,
    check_template,
    check_batches,
    check_encode,
    check_round_trip,
    check_decoding,
    check_special_tokens,
    check_pairs,
    check_pickling,
    check_threads,
)
"""All checks. Each takes a tokenizer."""


def check_tokenizer(tokenizer: Any) -> None:
    """Run all checks."""
    for check in CHECKS:
        check(tokenizer)


def _check_inserted_tokens(result: TokenizationResult, single: Sequence[TemplatePiece], text: Any) -> None:
    """Type ids are those of the template; word ids count up, and are -1 where a token was inserted."""
    if result.sequence_ids is None:
        return
    inserted = result.sequence_ids == -1
    assert result.token_type_ids is not None
    [text_type_id] = [position.type_id for position in single if position.text is not None]
    assert (result.token_type_ids[~inserted] == text_type_id).all(), f"type ids of {text!r:.60}"
    words = result.word_ids
    if words is not None:
        assert (words[inserted] == -1).all(), f"an inserted token of {text!r:.60} has a word id"
        assert (words[~inserted] >= 0).all(), f"a token of {text!r:.60} has no word id"
        assert (np.diff(words[~inserted]) >= 0).all(), f"word ids of {text!r:.60} go backwards"


def _encode(tokenizer: Any, text: Any, pair: Any = None, **options: Any) -> TokenizationResult:
    return encode.encode_result(tokenizer, text, pair, **{"disallowed_special": (), **options})
