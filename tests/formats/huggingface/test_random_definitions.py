"""Tests of random `tokenizer.json` definitions: encoding and decoding, against the `tokenizers` library."""

import json
from unicodedata import is_normalized

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer

import tokjax
from tests.support.definition_strategies import BYTE_PIECES, definitions, texts
from tests.support.huggingface_tokenizers import DefinitionStub
from tests.support.small_chunks import use_small_chunks
from tests.support.span_checks import assert_contract, assert_spans_agree
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes


def call_library(function, *arguments, **options):
    """Calls a function of the library; returns `None` if it raises an error or panics."""
    try:
        return function(*arguments, **options)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:
        return None


def load_library_tokenizer(definition):
    """Loads the library's tokenizer; returns `None` if the library can't read the definition."""
    tokenizer = call_library(Tokenizer.from_str, json.dumps(definition))
    if tokenizer is None:
        return None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def get_sequences(definition, encoding, text, pair):
    """Returns sequence ids, -1 for inserted tokens. After two post-processors, the library's are wrong."""
    processor = definition["post_processor"]
    if processor and processor["type"] == "Sequence":
        inserting = [part for part in processor["processors"] if part["type"] != "ByteLevel"]
        library = load_library_tokenizer(definition | {"post_processor": (inserting or [None])[0]})
        encoding = library.encode(text, pair)
    inserted = np.array(encoding.special_tokens_mask, bool)
    return np.where(inserted, -1, fill_none(encoding.sequence_ids)).tolist()


def fill_none(numbers):
    return [-1 if number is None else number for number in numbers]


def get_text_spans(tokenizer, text, result, sequence):
    """Returns the byte spans in the input text of the tokens of one sequence."""
    positions = np.flatnonzero(result.sequence_ids == sequence)
    spans = result.offsets[positions]
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        spans = tokjax.map_offsets_to_input(tokenizer, text, spans)
    return spans.tolist()


def is_random(definition, expected, text, pair):
    """Returns whether the library's result changes when it reads the definition again.

    If several added tokens are equal after normalization, the library selects one at random.
    """
    if len({token["content"].lower() for token in definition["added_tokens"] if token["normalized"]}) < 2:
        return False
    again = (load_library_tokenizer(definition).encode(text, pair) for _ in range(8))
    return any(encoding.ids != expected.ids for encoding in again)


def has_other_spans(definition):
    """Returns whether two post-processors trim offsets, or the model writes affixes of words as bytes.

    The library's spans are those of other letters then.
    """
    affixes = map(definition["model"].get, ("continuing_subword_prefix", "end_of_word_suffix"))
    trims_twice = json.dumps(definition["post_processor"]).count('"trim_offsets": true') > 1
    return trims_twice or (definition["model"].get("byte_fallback") and any(affixes))


def splits_bytes(definition):
    """Returns whether words end inside of characters in the library: `Digits` splits at the bytes of `ò`."""
    steps = (definition["pre_tokenizer"] or {}).get("pretokenizers", [])
    types = [step["type"] for step in steps]
    return "ByteLevel" in types and "Digits" in types[types.index("ByteLevel") :]


def encode_plain(library, text):
    return library.encode(text, add_special_tokens=False).ids


def check_tokens(definition, library, tokenizer, ids):
    """Checks that the bytes of the model's tokens are those of their written forms."""
    added = {token["id"] for token in definition["added_tokens"]} | {
        *tokjax.special_tokens(tokenizer).values()
    }
    steps = json.dumps([definition[name] for name in ("normalizer", "pre_tokenizer", "decoder")])
    for id_ in {*ids} - added:
        form = library.id_to_token(id_)
        data = map_unicode_to_bytes(form) if '"ByteLevel"' in steps else None
        assert tokjax.id_to_bytes(tokenizer, id_) == (form.encode() if data is None else data)


def check_decoded(library, tokenizer, ids, skip):
    """Checks that decoding ids gives the text of the library."""
    expected = call_library(library.decode, ids, skip_special_tokens=skip)
    if expected is None:
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="can't decode these ids"):
            tokjax.decode(tokenizer, ids, skip_special_tokens=skip)
        return
    decoded = tokjax.decode(tokenizer, ids, skip_special_tokens=skip)
    if isinstance(tokenizer, tokjax.models.MetaspaceBPE) and "\ufffd" in expected:
        # The library decodes each of several byte tokens to U+FFFD, if together they are not valid UTF-8.
        # tokjax decodes the valid part of them.
        added = library.get_added_tokens_decoder()  # without the unknown token, if it is only in the model
        skipped = [id_ for id_, token in added.items() if skip and token.special]
        forms = [library.id_to_token(id_) for id_ in ids if id_ not in skipped]
        data = b"".join(
            bytes([BYTE_PIECES.index(form)]) if form in BYTE_PIECES else form.replace("▁", " ").encode()
            for form in forms
        )
        expected = (data.removeprefix(b" ") if tokenizer.strip else data).decode(errors="replace")
    assert decoded == expected


def check(definition, text, pair, ids):
    """Checks that tokjax and the library give the same result.

    Returns:
        The outcome: the type of the tokenizer, or the reason for which the library has no result.
    """
    library = load_library_tokenizer(definition)
    if library is None:
        return "library rejects"
    with tokjax.limits(text_growth=1 << 30):  # several precompiled normalizers exceed the default
        tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    if pair is not None and not tokjax.get_vocabulary(tokenizer).template.pair:
        with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="can't encode pairs"):
            tokjax.encode_result(tokenizer, text, pair, allowed_special="all")
        pair = None
    expected = call_library(library.encode, text, pair)
    if expected is not None and is_random(definition, expected, text, pair):
        return "library is random"
    if expected is None:
        with pytest.raises(tokjax.errors.InvalidArgumentError):
            tokjax.encode_result(tokenizer, text, pair, allowed_special="all")
        return "library can't encode"
    result = tokjax.encode_result(tokenizer, text, pair, allowed_special="all")
    assert result.ids.tolist() == expected.ids
    ids_without_special = tokjax.encode(tokenizer, text, allowed_special="all", add_special_tokens=False)
    assert ids_without_special.tolist() == encode_plain(library, text)
    check_tokens(definition, library, tokenizer, result.ids.tolist())
    assert result.token_type_ids.tolist() == expected.type_ids
    sequences = get_sequences(definition, expected, text, pair)
    assert result.sequence_ids.tolist() == sequences
    special = [*tokjax.special_tokens(tokenizer).values()]
    mask = np.isin(result.ids, special) | (result.sequence_ids < 0)
    assert result.special_tokens_mask.tolist() == mask.astype(int).tolist()
    for sequence, input_text in enumerate([text] if pair is None else [text, pair]):
        spans = get_text_spans(tokenizer, input_text, result, sequence)
        library_spans = [span for span, of in zip(expected.offsets, sequences, strict=True) if of == sequence]
        composes = getattr(tokenizer, "normalizer", None) == "nfc" and not is_normalized("NFC", input_text)
        if composes:  # the library's spans contain only the first of several composed characters
            view = tokjax.tokenization_view(tokenizer, input_text)
            assert_contract(view, result.offsets[result.sequence_ids == sequence].tolist())
        elif has_other_spans(definition):
            assert_contract(input_text, spans)
        else:
            assert_spans_agree(input_text, spans, library_spans)
    assert (result.offsets[result.sequence_ids < 0] == 0).all()
    has_words = not isinstance(tokenizer, tokjax.models.MetaspaceBPE) or tokenizer.split_words
    if has_words and not splits_bytes(definition):
        assert result.word_ids.tolist() == fill_none(expected.word_ids)
    for row in (result.ids.tolist(), [id_ for id_ in ids if library.id_to_token(id_) is not None]):
        for skip in (False, True):
            check_decoded(library, tokenizer, row, skip)
    return type(tokenizer).__name__


@pytest.mark.parametrize(("content", "special"), [("Ġ", False), ("Ġ", True), (" ", False)])
def test_space_written_in_two_ways(content, special):
    ids = {"a": 0, "Ġ": 1, " ": 2}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    definition = {
        "version": "1.0",
        "added_tokens": [{"id": ids[content], "content": content, "special": special, **flags}],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": ids, "merges": [], "byte_fallback": False, "unk_token": None}
        | dict.fromkeys(("continuing_subword_prefix", "end_of_word_suffix")),
    }
    assert check(definition, "a aĠa", None, [0, 1, 2]) == "HuggingFaceTokenizer"


@st.composite
def cases(draw):
    definition = draw(definitions())
    text, pair = draw(texts(definition)), draw(st.none() | texts(definition))
    return definition, text, pair, draw(st.lists(st.integers(0, 300), max_size=5))


@given(cases())
@settings(max_examples=60)
def test_random_definition(case):
    check(*case)


@pytest.mark.slow
@given(cases())
@settings(max_examples=3000)
def test_many_random_definitions(case):
    check(*case)


@st.composite
def batches(draw):
    definition = draw(definitions())
    if draw(st.booleans()):
        definition["normalizer"] = None
    definition["pre_tokenizer"] = draw(st.sampled_from(SEPARATE_WORDS))
    return definition, draw(st.lists(texts(definition), min_size=1, max_size=5))


SEPARATE_WORDS = [
    {"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
]


def encode_batch(tokenizer, rows):
    return call_library(tokjax.encode_batch_result, tokenizer, rows, allowed_special="all")


def check_batch(definition, rows):
    """Checks that a row is the same alone and in batches, which are encoded in chunks."""
    if load_library_tokenizer(definition) is None:
        return
    with tokjax.limits(text_growth=1 << 30):
        tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    alone = [encode_batch(tokenizer, [row]) for row in rows]
    if None in alone:  # the library can't encode a text
        return
    with use_small_chunks(5):
        batch = encode_batch(tokenizer, rows * 2)
    for row, [expected] in zip(batch, alone * 2, strict=True):
        for column in ("ids", "offsets", "word_ids", "sequence_ids", "special_tokens_mask"):
            np.testing.assert_array_equal(getattr(row, column), getattr(expected, column), err_msg=column)


@given(batches())
@settings(max_examples=60)
def test_rows_do_not_depend_on_other_rows(case):
    check_batch(*case)


@pytest.mark.slow
@given(batches())
@settings(max_examples=3000)
def test_many_rows_do_not_depend_on_other_rows(case):
    check_batch(*case)
