"""Every type of tokenizer, compared with the library whose files it reads, or on which it runs.

Each library trains a tokenizer on a part of the text, and tokjax loads its file. Then both encode the same
documents to arrays of ids, offsets and masks.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import tokjax
from benchmarks.contenders import get_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.bench import Bench

    Encode = Callable[[list[str]], object]

PACKAGES = ["tokjax", "numpy", "tokenizers", "sentencepiece"]
MEGABYTES = 10
VOCAB_SIZE = 16_000
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
DROPOUT = 0.1


def make_byte_level_bpe() -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )


def make_bpe_with_bytes() -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=[*SPECIAL, *BYTES], limit_alphabet=1000, show_progress=False
    )


def make_wordpiece() -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=SPECIAL, show_progress=False
    )


def make_unigram() -> tuple[Tokenizer, Any]:
    return make_unigram_with(pre_tokenizers.Metaspace())


def make_unigram_of_words() -> tuple[Tokenizer, Any]:
    """Makes a tokenizer that splits at any whitespace, not only at spaces, as T5 and ALBERT do."""
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    return make_unigram_with(pre_tokenizers.Sequence(steps))


def make_unigram_with(pre_tokenizer: Any) -> tuple[Tokenizer, Any]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )


HUGGING_FACE = {
    "byte-level BPE, built-in": make_byte_level_bpe,
    "BPE with byte fallback, built-in": make_bpe_with_bytes,
    "WordPiece, built-in": make_wordpiece,
    "unigram, built-in": make_unigram,
    "unigram that splits at whitespace, built-in": make_unigram_of_words,
    "unigram that splits at whitespace and marks, built-in": make_unigram_of_words,
}
ADDED_TOKENS = {"unigram that splits at whitespace and marks, built-in": [".", "-", "(", ")", '"']}
"""Added tokens that split words, as in ALBERT and XLNet."""


def drop_special_bytes(trained: Tokenizer) -> Tokenizer:
    """Makes byte tokens ordinary, as in published vocabularies; trainers only allow special ones."""
    parts = json.loads(trained.to_str())
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["content"] not in BYTES]
    return Tokenizer.from_str(json.dumps(parts))


def train_hugging_face(documents: list[str], directory: Path) -> Iterator[tuple[str, Encode, Encode]]:
    """Yields the name of each type, and the functions of tokjax and of the library that encode documents."""
    for name, make in HUGGING_FACE.items():
        theirs, trainer = make()
        theirs.train_from_iterator(documents[: len(documents) // 4], trainer)
        theirs = drop_special_bytes(theirs)
        theirs.add_tokens([AddedToken(mark, normalized=False) for mark in ADDED_TOKENS.get(name, [])])
        path = directory / "tokenizer.json"
        theirs.save(str(path))
        ours = tokjax.load_tokenizer(path)
        yield name, _make_tokjax_call(ours), _make_tokenizers_call(theirs)
        if make is make_byte_level_bpe:
            with_dropout = tokjax.models.with_dropout(ours, DROPOUT, seed=0)
            theirs = Tokenizer.from_file(str(path))
            theirs.model.dropout = DROPOUT
            yield (
                "byte-level BPE with dropout",
                _make_tokjax_call(with_dropout),
                _make_tokenizers_call(theirs),
            )


SENTENCEPIECE = {
    "SentencePiece BPE, built-in": {
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
    "SentencePiece BPE with nmt_nfkc, built-in": {"model_type": "bpe", "byte_fallback": True},
    "SentencePiece unigram, on sentencepiece": {"model_type": "unigram"},
}


def train_sentencepiece_model(
    documents: list[str], name: str, options: dict[str, Any]
) -> tuple[str, Encode, Encode]:
    """Returns the same three values for a model of the sentencepiece library."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents[: len(documents) // 4]),
        model_writer=model,
        vocab_size=VOCAB_SIZE // 2,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def encode(texts: list[str]) -> object:
        rows = processor.encode(texts, out_type="offset_mapping")
        return [(np.array(row["ids"]), np.array(row["offsets"]), np.ones(len(row["ids"]))) for row in rows]

    return (
        name,
        _make_tokjax_call(tokjax.formats.from_sentencepiece(processor)),
        encode,
    )


def _make_tokjax_call(tokenizer: Any) -> Encode:
    return lambda documents: tokjax.encode_batch_result(tokenizer, documents, disallowed_special=()).ragged


def _make_tokenizers_call(tokenizer: Tokenizer) -> Encode:
    return lambda documents: [get_columns(row) for row in tokenizer.encode_batch(documents)]


def measure(bench: Bench) -> None:
    """Measures each type and its library."""
    text = bench.text(MEGABYTES)
    documents = text.documents
    size = {"bytes": sum(len(document.encode()) for document in documents)}
    sentencepiece_kinds = (train_sentencepiece_model(documents, *item) for item in SENTENCEPIECE.items())
    kinds = [*train_hugging_face(documents, bench.scratch), *sentencepiece_kinds]
    for name, ours, theirs in kinds:
        contenders = {
            "tokjax": lambda ours=ours: ours(documents),
            "library": lambda theirs=theirs: theirs(documents),
        }
        bench.compare(name, contenders, bench.rounds(5), reference="library", extra=size)
