"""One suite over every type of tokenizer."""

import dataclasses
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import make_pair
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import to_utf8
from tokjax.testing import CHECKS, check_tokenizer
from tokjax.trainer import train_bpe, train_sentencepiece, train_word_level, train_wordpiece

SPECIAL = ["<pad>", "</s>", "<unk>"]


def sentencepiece(model_type):
    return train_sentencepiece(
        CORPUS * 2, model_type=model_type, vocab_size=150, bos_token="<s>", progress=False
    ).tokenizer


def byte_bpe(**options):
    special = ["<|endoftext|>", "<|pad|>"]
    return train_bpe(CORPUS * 3, vocab_size=500, special_tokens=special, progress=False, **options).tokenizer


def make_full_tokenizer():
    merges = [(b"l", b"o"), (b"lo", b"w"), (b" ", b"low")]
    ids = {bytes([i]): i for i in range(256)} | {b"lo": 300, b"low": 301, b" low": 302, b"new": 303}
    return tokjax.byte_level_bpe(
        ids,
        merges=merges,
        add_prefix_space=True,
        trim_offsets="but_first",
        added_tokens=["new"],
        special_tokens={"<s>": 304},
        bos_token="<s>",
    )


CHARACTERS = ["[UNK]", "[PAD]", *sorted(set("".join(CORPUS)))]
KINDS = {
    "byte-level BPE": byte_bpe,
    "byte-level BPE, NFC": lambda: byte_bpe(pattern="qwen2"),
    "byte-level BPE, merges": make_full_tokenizer,
    "WordPiece": lambda: train_wordpiece(CORPUS, vocab_size=300, progress=False).tokenizer,
    "words": lambda: train_word_level(CORPUS, vocab_size=60, progress=False).tokenizer,
    "unigram": lambda: sentencepiece("unigram"),
    "unigram with bytes": lambda: (
        train_sentencepiece(CORPUS * 2, vocab_size=380, byte_fallback=True, progress=False).tokenizer
    ),
    "SentencePiece BPE": lambda: sentencepiece("bpe"),
    "bytes": lambda: tokjax.byte_level(SPECIAL, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"),
    "characters": lambda: tokjax.char_level(CHARACTERS, pad_token="[PAD]"),
    "a function": lambda: tokjax.from_callable(str.split, ["[UNK]", "low", "word", "aaaa"]),
    "a library's unigram": lambda: make_pair("unigram")[1],
    "a library's BPE": lambda: make_pair("digits")[1],
    "metaspace BPE": lambda: make_pair("Llama 2")[1],
    "metaspace BPE, first": lambda: make_pair("Mistral")[1],
    "metaspace BPE, split": lambda: make_pair("split")[1],
}
TEXT_PARTS = {"bytes", "byte-level BPE", "byte-level BPE, merges"}


@lru_cache
def make_tokenizer(kind):
    return KINDS[kind]()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_the_contract(kind, check):
    check(make_tokenizer(kind))


@pytest.mark.parametrize("kind", ["bytes", "characters", "a function"])
@given(text=hard_texts | byte_strings)
def test_spans_are_the_tokens(kind, text):
    tokenizer = make_tokenizer(kind)
    result = tokjax.encode_result(tokenizer, text, add_special_tokens=False, disallowed_special=())
    table = tokenizer.vocabulary
    for id_, span, token in zip(result.ids.tolist(), result.offsets, result.tokens, strict=True):
        if id_ != table.get_role_id("unk"):
            assert tokjax.offsets.span_bytes(text, span) == table.bytes_by_id[id_], token
    if kind != "a function":
        spans = b"".join(tokjax.offsets.span_bytes(text, span) for span in result.offsets)
        assert spans == to_utf8(text)
    assert (np.diff(result.word_ids) >= 0).all()


@given(text=hard_texts | byte_strings)
def test_bytes_are_lossless(text):
    tokenizer = make_tokenizer("bytes")
    ids = tokjax.encode(tokenizer, text, disallowed_special=(), add_special_tokens=False)
    assert ids.tolist() == [byte + 3 for byte in to_utf8(text)]
    assert tokjax.decode_bytes(tokenizer, ids) == to_utf8(text)


@given(text=st.text())
def test_characters_one_by_one(text):
    tokenizer = make_tokenizer("characters")
    plain = text.encode("utf-8", "replace").decode() if not text.isascii() else text
    expected = [CHARACTERS.index(c) if c in CHARACTERS[2:] else 0 for c in plain]
    assert tokjax.encode(tokenizer, plain).tolist() == expected


@pytest.mark.parametrize("kind", ["bytes", "characters"])
def test_they_are_written_and_read(kind, tmp_path):
    tokenizer = make_tokenizer(kind)
    assert tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path)) == tokenizer


def test_words_of_bytes_and_characters():
    for tokenizer in (tokjax.byte_level(), tokjax.char_level(["[UNK]", *"ab \n"])):
        assert tokjax.encode_result(tokenizer, "ab  a\nb").word_ids.tolist() == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tokjax.byte_level(["<s>", "<s>"]), "special token '<s>' stands twice"),
        (lambda: tokjax.byte_level(eos_token="</s>"), "eos_token is '</s>', which is not among"),
        (
            lambda: tokjax.char_level(["[UNK]", "ab"]),
            "'ab' is not a single character; if it is a special token",
        ),
        (lambda: tokjax.char_level(["a"]), r"the special token '\[UNK\]' is not among"),
        (lambda: tokjax.from_callable("split", ["[UNK]"]), "split must be a function of a text, not 'split'"),
    ],
)
def test_invalid_tokenizers_are_rejected(make, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        make()


class TestFunctions:
    def test_splitters_with_offsets(self):
        words = tokjax.from_callable(lambda text: [(i, i + 1) for i in range(len(text))], ["[UNK]", "é"])
        result = tokjax.encode_result(words, "aé")
        assert result.ids.tolist() == [0, 1]
        assert result.offsets.tolist() == [[1, 2], [2, 4]]

    def test_splitters_that_change_text(self):
        words = tokjax.from_callable(lambda text: text.lower().split(), ["[UNK]"])
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"returned the word 'b', which is not in the"
        ):
            tokjax.encode(words, "a B")

    @pytest.mark.parametrize("word", [(0, 0), (1, 9), 5, (0, "a")])
    def test_splitters_without_offsets(self, word):
        words = tokjax.from_callable(lambda _: [word], ["[UNK]"], name="wrong")
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="wrong returned the word .* return words as"
        ):
            tokjax.encode(words, "a b")

    def test_without_a_name(self):
        words = tokjax.from_callable(lambda text: text.split(), ["[UNK]"])
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"no qualified name .* from_callable\(.*name="
        ):
            tokjax.fingerprint(words)

    def test_whose_names_differ(self):
        one, other = (tokjax.from_callable(str.split, ["[UNK]"], name=name) for name in ("a", "b"))
        assert tokjax.fingerprint(one) != tokjax.fingerprint(other)

    def test_decode_to_words(self):
        words = tokjax.from_callable(str.split, ["[UNK]", "to", "be"])
        assert tokjax.decode(words, [1, 2, 0]) == "to be [UNK]"
        assert tokjax.decode(words, [1, 2, 0], skip_special_tokens=True) == "to be"


@dataclasses.dataclass(frozen=True)
class FaultyTokenizer:
    """Says of every tokenizer's results something else."""

    change: str


@tokjax.get_vocabulary.register
def _(tokenizer: FaultyTokenizer) -> tokjax.Vocabulary:
    return make_tokenizer("bytes").vocabulary


@tokjax.encode_texts.register
def _(tokenizer: FaultyTokenizer, texts, **options) -> tokjax.TokenizationBatch:
    batch = tokjax.encode_texts(make_tokenizer("bytes"), texts, **options)
    ragged = batch.ragged
    changes = {
        "offsets": lambda: {"offsets": ragged.offsets + 1},
        "empty spans": lambda: {"offsets": np.where(ragged.offsets > 0, 1, 0)},
        "reversed spans": lambda: {"offsets": ragged.offsets[::-1].copy()} if len(texts) == 1 else {},
        "batch": lambda: {"ids": ragged.ids * 0 + 5} if len(texts) > 1 else {},
        "ids": lambda: {"ids": np.where(ragged.ids < 3, ragged.ids, 5)},
        "mask": lambda: {"special_tokens_mask": ragged.special_tokens_mask * 0},
        "full mask": lambda: {"special_tokens_mask": ragged.special_tokens_mask * 0 + 1},
        "types": lambda: {"token_type_ids": ragged.token_type_ids + 7},
        "words": lambda: {"word_ids": ragged.word_ids * 0 - 5},
    }
    if tokenizer.change in changes and ragged.offsets is not None and ragged.special_tokens_mask is not None:
        ragged = ragged._replace(**changes[tokenizer.change]())
    elif tokenizer.change == "ids":
        ragged = ragged._replace(ids=np.where(ragged.ids < 3, ragged.ids, 5))
    return tokjax.TokenizationBatch(
        ragged, batch.metadata, make_tokenizer("bytes").vocabulary.get_token_strings
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("offsets", "offsets of ''|an inserted token of"),
        ("empty spans", "no token's span holds"),
        ("reversed spans", "go backwards|an inserted token|has no span"),
        ("batch", "another row in a batch|columns that are asked for"),
        ("ids", "comes back as"),
        ("mask", "has mask 0"),
        ("full mask", "has mask 1"),
        ("types", "type ids of"),
        ("words", "word id"),
    ],
)
def test_what_the_checks_find(change, message):
    with pytest.raises(AssertionError, match=message):
        check_tokenizer(FaultyTokenizer(change))


def test_the_checks_let_a_good_one_pass():
    check_tokenizer(FaultyTokenizer("nothing"))
