"""Tests of streaming decoding, against decoding of the whole."""

import dataclasses
import json
from functools import lru_cache

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, models

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.tokenizers import ALL_TOKENIZERS, ALL_VARIANTS, make_tokenizer
from tests.support.variants import mark_slow_except

REPLACE, BYTES, FUSE = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()
DECODERS = {
    "none": None,
    "Metaspace": decoders.Metaspace(),
    "WordPiece": decoders.WordPiece(),
    "BPE": decoders.BPEDecoder(),
    "CTC": decoders.CTC(pad_token="a", word_delimiter_token="▁"),
    "CTC of words": decoders.Sequence([decoders.WordPiece(), decoders.CTC("a", "▁")]),
    "bytes": decoders.Sequence([REPLACE, BYTES, FUSE]),
    "bytes, strip": decoders.Sequence([REPLACE, BYTES, FUSE, decoders.Strip(" ", 2, 0)]),
    "bytes only": decoders.Sequence([BYTES]),
    "bytes, metaspace": decoders.Sequence([BYTES, decoders.Metaspace()]),
    "strip tokens": decoders.Sequence([decoders.Strip("▁", 1, 0), FUSE]),
    "replace": decoders.Replace("a", ""),
    "replace text": decoders.Sequence([FUSE, decoders.Replace("ab", "c")]),
    "CLIP": decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")]),
}
HELD_BACK = {"CTC of words", "replace text", "CLIP"}
FORMS = ["▁", "a", "b", "▁a", "ab", "a▁", "##a", "##", ".", "'", "</w>", "a</w>", "a</w>b", "b</w></w>"]
FORMS += ["<", "/w>", "<</w>", "/w></w>", "Ġ", "Ġa", "Ġ</w>", "é", "â", "Ĥ", "¬", "¬</w>", "<0x41>", "<0x0a>"]
FORMS += [f"<0x{byte:02X}>" for byte in (0x20, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xFF)]


@dataclasses.dataclass(frozen=True)
class CapitalizingTokenizer:
    """Byte tokenizer with two more ids: 256 switches to upper case, 257 back."""


@tokjax.get_vocabulary.register
def _(tokenizer: CapitalizingTokenizer) -> tokjax.Vocabulary:
    return tokjax.make_vocabulary({bytes([i]): i for i in range(256)} | {b"<up>": 256, b"<low>": 257})


@tokjax.decode_bytes.register
def _(tokenizer: CapitalizingTokenizer, ids, *, skip_special_tokens=False) -> bytes:
    data, upper = b"", False
    for id_ in np.asarray(ids).tolist():
        byte = bytes([id_]) if id_ < 256 else b""
        data += byte.upper() if upper else byte
        upper = id_ == 256 if id_ >= 256 else upper
    return data


@dataclasses.dataclass(frozen=True)
class ReversingTokenizer:
    """Byte tokenizer that decodes ids in reverse order, so that all text depends on later ids."""


@tokjax.get_vocabulary.register
def _(tokenizer: ReversingTokenizer) -> tokjax.Vocabulary:
    return tokjax.byte_level().vocabulary


@tokjax.decode_bytes.register
def _(tokenizer: ReversingTokenizer, ids, *, skip_special_tokens=False) -> bytes:
    return bytes(np.asarray(ids).tolist()[::-1])


@lru_cache
def make_library_tokenizer(name):
    model = models.WordLevel({form: id_ for id_, form in enumerate(FORMS)}, unk_token="a")
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(["<s>", "b"])
    if DECODERS[name] is not None:
        tokenizer.decoder = DECODERS[name]
    definition = json.loads(tokenizer.to_str())
    definition["normalizer"] = {"type": "Lowercase"}  # not built in
    return tokjax.formats.from_huggingface(Tokenizer.from_str(json.dumps(definition)))


def stream(tokenizer, rows, **options):
    """Decodes rows of ids in steps; returns the text of each step, and the largest number of ids held."""
    state, texts, num_held = tokjax.DecodeState(), [], 0
    for row in rows:
        state, text = tokjax.decode_step(tokenizer, state, row, **options)
        texts.append(text)
        num_held = max(num_held, len(state.context) + len(state.pending))
    _, text = tokjax.decode_step(tokenizer, state, [], final=True, **options)
    return [*texts, text], num_held


def check_stream(tokenizer, ids, data):
    options = {
        "skip_special_tokens": data.draw(st.booleans()),
        "errors": data.draw(st.sampled_from(["replace", "ignore", "backslashreplace", "surrogateescape"])),
    }
    expected = tokjax.decode(tokenizer, ids, **options)
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=3).map(sorted))
    for rows in (ids, np.split(np.array(ids, np.int32), cuts)):
        texts, _ = stream(tokenizer, rows, **options)
        assert "".join(texts) == expected
    return texts


def draw_ids(tokenizer, data, max_size=12):
    valid = list(tokjax.get_vocabulary(tokenizer).bytes_by_id)
    special = sorted(tokjax.special_tokens(tokenizer).values())
    ids = st.sampled_from(valid) | st.sampled_from(special or valid)
    return data.draw(st.lists(ids, max_size=max_size))


ALL = {name: lambda name=name: make_tokenizer(name) for name in ALL_TOKENIZERS}
ALL |= {f"decoder: {name}": lambda name=name: make_library_tokenizer(name) for name in DECODERS}
ALL["custom"] = CapitalizingTokenizer


@pytest.mark.parametrize("name", mark_slow_except(ALL, ALL.keys() - ALL_VARIANTS))
@get_max_examples(40)
@given(data=st.data())
def test_pieces_of_random_ids_concatenate_to_the_text(name, data):
    tokenizer = ALL[name]()
    check_stream(tokenizer, draw_ids(tokenizer, data), data)


BYTE_PIECES = [
    f"<0x{byte:02X}>" for byte in (0x41, 0x20, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x8D, 0xFF)
]


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json, Llama 2",
        "tokenizer.json, Gemma",
        "SentencePiece, unigram with bytes",
        "SentencePiece, identity, bytes",
    ],
)
@given(data=st.data())
def test_runs_of_bytes_and_spaces(name, data):
    tokenizer = ALL[name]()
    forms = [*BYTE_PIECES, "▁", *list(tokjax.special_tokens(tokenizer))[:3]]
    vocabulary = tokjax.get_vocabulary(tokenizer)
    ids = [vocabulary.get_id(form) for form in data.draw(st.lists(st.sampled_from(forms), max_size=20))]
    check_stream(tokenizer, ids, data)


@pytest.mark.parametrize("name", ["byte-level BPE", "bytes", "tokenizer.json, Llama 2"])
@given(data=st.data())
def test_complete_characters_are_returned_at_once(name, data):
    tokenizer = ALL[name]()
    ids = draw_ids(tokenizer, data)
    state, emitted = tokjax.DecodeState(), ""
    for stop, id_ in enumerate(ids, 1):
        state, text = tokjax.decode_step(tokenizer, state, id_)
        emitted += text
        decoded = tokjax.decode(tokenizer, ids[:stop])
        assert decoded.startswith(emitted)
        assert decoded[len(emitted) :] in ("", "\ufffd")


@pytest.mark.parametrize("name", mark_slow_except(ALL, list(ALL)[::8]))
def test_steps_hold_few_ids(name):
    """Runs of any id, such as padding, and texts of many ids are held back only where they can change."""
    tokenizer = ALL[name]()
    vocabulary = tokjax.get_vocabulary(tokenizer)
    ids = [id_ for id_, token in vocabulary.bytes_by_id.items() if not token.startswith(b"<0x")][:60]
    padding = [ids[-1], *tokjax.special_tokens(tokenizer).values()][-1]
    for skip in (False, True):
        for rows in (ids * 3, [padding] * 99, [*ids[:9], *[padding] * 99]):
            _, num_held = stream(tokenizer, rows, skip_special_tokens=skip)
            bound = len(rows) if name == "custom" or name.removeprefix("decoder: ") in HELD_BACK else 30
            assert num_held <= bound, (skip, rows)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_whose_text_is_returned_before_the_end(name):
    tokenizer = make_library_tokenizer(name)
    ids = [tokjax.token_to_id(tokenizer, form) for form in ("▁a", "a</w>", "a</w>")]
    texts, _ = stream(tokenizer, ids)
    assert any(texts[:-1]) == (name not in HELD_BACK)


def test_stream_yields_one_text_per_item():
    tokenizer = tokjax.byte_level(["</s>"])
    ids = [byte + 1 for byte in "né!".encode()]
    assert list(tokjax.decode_stream(tokenizer, iter(ids))) == ["n", "", "é", "!"]
    assert list(tokjax.decode_stream(tokenizer, [ids[:2], ids[2:], [0]])) == ["n", "é!", "</s>"]
    assert list(tokjax.decode_stream(tokenizer, [*ids[:2], 0], skip_special_tokens=True)) == [
        "n",
        "",
        "",
        "\ufffd",
    ]
    assert list(tokjax.decode_stream(tokenizer, [])) == []
    assert list(tokjax.decode_stream(tokenizer, jax.numpy.array(ids[:1], "int32"))) == ["n"]


def test_errors_of_steps():
    tokenizer = tokjax.byte_level()
    with pytest.raises(tokjax.errors.UnknownTokenError, match="no id 256"):
        tokjax.decode_step(tokenizer, tokjax.DecodeState(), 256)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="not 5; for one id, call decode_step"):
        list(tokjax.decode_stream(tokjax.byte_level(), 5))
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"shape \(n,\), not \(1, 1\)"):
        tokjax.decode_step(tokenizer, tokjax.DecodeState(), [[1]])
    with pytest.raises(UnicodeDecodeError):
        stream(tokenizer, [0xC3, 0x41], errors="strict")
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="has no implementation for 'str'"):
        tokjax.decode_step("tokenizer", tokjax.DecodeState(), 1)


def test_text_that_later_ids_change_is_an_error():
    with pytest.raises(
        tokjax.errors.UnsupportedTokenizerError,
        match=r"already \(b'a'\); register tokjax.find_decode_context for ReversingTokenizer",
    ):
        stream(ReversingTokenizer(), b"ab")
