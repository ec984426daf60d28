"""Tests of the `repr` of tokenizers and of large results: short, without vocabularies, arrays and texts."""

import pytest

import tokjax
from tests.support.huggingface_tokenizers import make_pair
from tests.support.sentencepiece_models import train_sentencepiece_models

BYTES = {bytes([i]): i for i in range(256)}
WORDS = ["[UNK]", "a", "b"]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tokjax.byte_level(["<s>"]), "ByteTokenizer(vocab_size=257, special_tokens={'<s>': 0})"),
        (
            lambda: tokjax.models.char_level(WORDS),
            "CharTokenizer(vocab_size=3, special_tokens={'[UNK]': 0})",
        ),
        (
            lambda: tokjax.models.from_callable(str.split, WORDS, name="split"),
            "CallableTokenizer(vocab_size=3, name='split', special_tokens={'[UNK]': 0})",
        ),
        (lambda: tokjax.models.word_level(WORDS), "WordLevelTokenizer(vocab_size=3, "),
        (lambda: tokjax.wordpiece(WORDS), "WordPieceTokenizer(vocab_size=3, "),
        (
            lambda: tokjax.word_bpe(WORDS, [], unk_token="[UNK]"),
            "WordBPE(vocab_size=3, merges=0, ",
        ),
        (lambda: tokjax.byte_level_bpe(BYTES), "ByteLevelBPE(vocab_size=256, "),
        (
            lambda: tokjax.metaspace_bpe({f"<0x{i:02X}>": i for i in range(256)} | {"\u2581": 256}, []),
            "MetaspaceBPE(vocab_size=257, ",
        ),
        (lambda: train_sentencepiece_models()["unigram"], "SentencePieceTokenizer(vocab_size="),
        (lambda: make_pair("unigram")[1], "Unigram(vocab_size=133, pieces=133, unknown_id=4, "),
        (lambda: make_pair("unsplit unigram")[1], "HuggingFaceTokenizer(vocab_size="),
    ],
)
def test_reprs_have_the_size_and_the_special_tokens(make, expected):
    text = repr(make())
    assert text.startswith(expected)
    assert len(text) < 400
    assert "special_tokens={" in text
    assert "Vocabulary(" not in text


def test_reprs_of_results_do_not_grow_with_the_text():
    text = "naïve café " * 1000
    tokenizer = tokjax.byte_level_bpe(BYTES)
    template = "{% for message in messages %}{{ message.content }}{% endfor %}" * 20
    words = " ".join(map(str, range(1000)))
    for value in (
        tokjax.encode_chat(tokenizer, [{"role": "assistant", "content": text}], template),
        tokjax.trainer.count_pretokens([words], progress=False),
        tokjax.trainer.train_bpe([words], vocab_size=300, progress=False),
        tokjax.pre_tokenize(tokenizer, text),
        tokjax.encode_batch_result(tokenizer, [text]).ragged,
        tokjax.encode_windows(tokenizer, [text], max_length=9),
        tokjax.quick.quick_tokenize(tokenizer, text),
        tokjax.corpus.AnnotatedText(text, ()),
        tokjax.datasets.ChatField(tokenizer, template),
    ):
        assert repr(value).startswith(f"{type(value).__name__}(")
        assert len(repr(value)) < 500
