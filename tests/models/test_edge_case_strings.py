"""Tests of the offsets contract for tokenizers of all formats, on strings that are hard to map back."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import tokjax
from tests.support.huggingface_tokenizers import LIBRARY_TOKENIZERS, NATIVE_TOKENIZERS, make_pair
from tests.support.sentencepiece_models import train_sentencepiece_models
from tests.support.span_checks import assert_contract
from tokjax.models.byte_spans import separate_spans

EDGE_CASES = [
    *["", " ", "   ", "\n", "\t\t", "\r\n", " \n\t ", "\u3000", "\u200b", "\x00", "\x85", "\ufeffa"],
    *[
        "zzz",
        " zzz",
        "zzz ",
        "  zzz  ",
        "a zzz b",
        "zzz\nqqq",
        "\tzzz",
        "a\u00a0b",
        "a  b   c",
        "▁",
        "a▁b",
        "▁ ▁",
    ],
    *["½", "½ cup", "①②③", "ﬁne", "ﬃ", "㌔", "™", "…", "Ⅷ", "x²", "ﷺ", "ｶﾞ", "ｱｲｳ", "Å", "ﬀ½ﬀ"],
    *["e\u0301", "\u0301", "a\u0301\u0302\u0303", "İstanbul", "ß", "Σας", "ǅ", "한국", "\u1112\u1161\u11ab"],
    *[
        "日本語",
        "飞机",
        "ไทย",
        "العربية",
        "हिन्दी",
        "שלום",
        "🙂",
        "👍🏽",
        "👩\u200d👩\u200d👧",
        "🇩🇪🇫🇷",
        "\u202eabc\u202c",
    ],
    *[
        "don't",
        "it's 12,345.67!",
        "https://a.example/?q=1&r=é#x",
        "a_b-c/d\\e",
        "C++",
        "<0x41>",
        "</w>",
        "##ing",
    ],
    *[
        "x" * 40,
        "é" * 20,
        "日" * 15,
        "a " * 15,
        "?!" * 10,
        "\u0e33",
        "e\u0301é",
        "AaÀ",
        "0x1F600",
        "\U000e0041",
    ],
]
NAMES = ["unigram", "unigram with bytes", "bpe", "identity", "case folded", "suffixes"]


def make_character_unigram():
    """Makes a Unigram model that adds `▁` before texts, normalizes, and has few tokens."""
    pieces = [("<unk>", -9.0), ("▁hello", -0.1), ("▁", -2.0), *((letter, -5.0) for letter in "helo12")]
    library = Tokenizer(models.Unigram(pieces, 0))
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.StripAccents()])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokjax.formats.from_huggingface(library)


TOKENIZERS = {
    **{
        f"tokenizer.json, {name}": lambda name=name: make_pair(name)[1]
        for name in NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS
    },
    **{f"SentencePiece, {name}": lambda name=name: train_sentencepiece_models()[name] for name in NAMES},
    "tokenizer.json, characters": make_character_unigram,
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_offsets_contract(name):
    tokenizer = TOKENIZERS[name]()
    batch = tokjax.encode_batch_result(tokenizer, EDGE_CASES, disallowed_special=())
    for text, row in zip(EDGE_CASES, batch, strict=True):
        in_text = row.metadata.offsets_reference == "input_text"
        reference_text = text if in_text else tokjax.tokenization_view(tokenizer, text)
        from_text = row.sequence_ids == 0
        assert_contract(reference_text, row.offsets[from_text].tolist())
        assert (row.offsets[from_text] >= 1).all()
        assert (row.offsets[~from_text] == 0).all()


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("zzz", [[1, 1], [1, 4]]),
        (" zzz", [[1, 2], [2, 5]]),
        ("hello zzz", [[1, 6], [6, 7], [7, 10]]),
        ("½", [[1, 1], [1, 3], [3, 3], [3, 3]]),
        ("日", [[1, 1], [1, 4]]),
    ],
)
def test_prefix_token_has_empty_span(text, spans):
    assert tokjax.encode_result(make_character_unigram(), text).offsets.tolist() == spans


def test_two_prefixes_that_are_trimmed():
    """The library reports trimmed prefixes at the position after the character that they precede."""
    library = Tokenizer(models.BPE({"Ġ": 0, "a": 1}, []))
    library.normalizer = normalizers.Sequence([normalizers.Prepend(" "), normalizers.Prepend(" ")])
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.post_processor = processors.ByteLevel(add_prefix_space=False)
    assert library.encode("aa").offsets == [(1, 1), (1, 1), (0, 1), (1, 2)]
    spans = tokjax.encode_result(tokjax.formats.from_huggingface(library), "aa").offsets.tolist()
    assert spans == [[1, 1], [1, 1], [1, 2], [2, 3]]


def test_empty_span_does_not_shorten_the_next():
    spans = np.array([[3, 3], [1, 3], [1, 3], [3, 4]])
    pieces = [b"x", b"y", b"z", b"a"]
    separate = separate_spans(spans, np.arange(4), pieces, (), "éa".encode())
    assert separate.tolist() == [[1, 1], [1, 3], [3, 3], [3, 4]]


@pytest.mark.parametrize("name", ["tokenizer.json, with a space", "tokenizer.json, Llama 2"])
def test_separate_prefix_token_has_empty_span(name):
    tokenizer = TOKENIZERS[name]()
    result = tokjax.encode_result(tokenizer, "Zq", add_special_tokens=False)
    assert tokjax.id_to_token(tokenizer, int(result.ids[0])).strip(" ▁") == ""
    assert result.offsets[:2].tolist() == [[1, 1], [1, 2]]
    assert result.word_ids.max() == 0
