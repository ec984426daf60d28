"""Small tokenizers of all types, by name."""

from functools import lru_cache

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import LIBRARY_TOKENIZERS, NATIVE_TOKENIZERS, make_pair
from tests.support.sentencepiece_models import NAMES, train_sentencepiece_models
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


def make_word_bpe(end_of_word, **options):
    tokens = ["<unk>", "<s>", "</s>", "</w>", *"lower", "lo", "low", "low</w>", "r</w>", "er</w>", "ö"]
    merges = [("l", "o"), ("lo", "w"), ("low", "</w>"), ("e", "r</w>")]
    return tokjax.word_bpe(
        list(dict.fromkeys(tokens)),
        merges,
        end_of_word=end_of_word,
        bos_token="<s>",
        eos_token="</s>",
        **options,
    )


CHARACTERS = ["[UNK]", "[PAD]", *sorted(set("".join(CORPUS)))]
TOKENIZERS = {
    "byte-level BPE": byte_bpe,
    "byte-level BPE, NFC": lambda: byte_bpe(pattern="qwen2"),
    "byte-level BPE, merges": make_full_tokenizer,
    "byte-level BPE, dropout": lambda: tokjax.models.with_dropout(byte_bpe(), 0.3, seed=1),
    "byte-level BPE, NFC, dropout": lambda: tokjax.models.with_dropout(
        byte_bpe(pattern="qwen2"), 0.3, seed=1
    ),
    "byte-level BPE, merges, dropout": lambda: tokjax.models.with_dropout(make_full_tokenizer(), 0.3, seed=1),
    "WordPiece": lambda: train_wordpiece(CORPUS, vocab_size=300, progress=False).tokenizer,
    "classic BPE": lambda: make_word_bpe("symbol"),
    "classic BPE, bytes": lambda: make_word_bpe("suffix", byte_level=True, unknown="word", lowercase=True),
    "word level": lambda: train_word_level(CORPUS, vocab_size=60, progress=False).tokenizer,
    "unigram": lambda: sentencepiece("unigram"),
    "unigram, byte fallback": lambda: (
        train_sentencepiece(CORPUS * 2, vocab_size=380, byte_fallback=True, progress=False).tokenizer
    ),
    "SentencePiece BPE": lambda: sentencepiece("bpe"),
    "bytes": lambda: tokjax.byte_level(SPECIAL, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"),
    "characters": lambda: tokjax.models.char_level(CHARACTERS, pad_token="[PAD]"),
    "callable": lambda: tokjax.models.from_callable(str.split, ["[UNK]", "low", "word", "aaaa"]),
    "Hugging Face unigram": lambda: make_pair("unigram")[1],
    "Hugging Face BPE": lambda: make_pair("punctuation")[1],
    "metaspace BPE": lambda: make_pair("Llama 2")[1],
    "metaspace BPE, prepend first": lambda: make_pair("Mistral")[1],
    "metaspace BPE, split": lambda: make_pair("split")[1],
    "metaspace BPE, dropout": lambda: tokjax.models.with_dropout(make_pair("Mistral")[1], 0.3, seed=1),
}


VARIANTS = {
    *("byte-level BPE, NFC", "byte-level BPE, NFC, dropout", "byte-level BPE, merges, dropout"),
    *("metaspace BPE, dropout", "classic BPE, bytes", "Hugging Face BPE"),
    *("unigram, byte fallback", "metaspace BPE, prepend first", "metaspace BPE, split"),
}
"""Tokenizers with options of a type, whose results are compared with those of a library elsewhere."""
JSON_TOKENIZERS = {
    f"tokenizer.json, {name}": lambda name=name: make_pair(name)[1]
    for name in NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS
}
ALL_TOKENIZERS = TOKENIZERS | JSON_TOKENIZERS
ALL_TOKENIZERS |= {
    f"SentencePiece, {name}": lambda name=name: train_sentencepiece_models()[name] for name in NAMES
}
"""Those, definitions of a `tokenizer.json`, and SentencePiece models."""
ALL_VARIANTS = {
    *VARIANTS,
    *("Hugging Face unigram", "metaspace BPE"),
    *(
        f"tokenizer.json, {name}"
        for name in (
            *("with a space", "Llama 3", "GPT-4o", "StarCoder", "DeepSeek V3", "DeepSeek LLM", "Kimi K2"),
            *("BLOOM", "Qwen 3.5", "BERT, cased", "OpenAI GPT", "word BPE without a mark", "Gemma"),
            "split only",
        )
    ),
    *(f"SentencePiece, {name}" for name in ("bpe with bytes", "case folded", "identity, bytes", "all roles")),
}
"""Tokenizers of a type that another one has, with another split pattern, option or training set."""


@lru_cache
def make_tokenizer(name):
    return ALL_TOKENIZERS[name]()
