"""Tests of which words of unigram tokenizers are encoded on arrays."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, normalizers

import tokjax
from tests.formats.huggingface.test_word_engine import SPECIAL, make_tokenizer, metaspace
from tokjax.formats.huggingface import definition

TEXT = Path(definition.__file__).read_text("utf-8").replace("<", "(").replace("▁", "_").replace("x", "z")


def edit_model(tokenizer, **changes):
    definition = json.loads(tokenizer.to_str())
    definition["model"] |= changes
    return Tokenizer.from_str(json.dumps(definition))


def count_words(tokenizer):
    """Encodes the text. Returns how many different words the library encodes, and the number of all words."""
    engine = tokenizer.encoder.word_engine
    encoded, needs_library = engine.encode([TEXT], sources=True)
    assert not needs_library.any()
    expected = tokenizer.library_tokenizer.encode(TEXT, add_special_tokens=False)
    assert encoded.ids.tolist() == expected.ids
    return engine._words._num_by_library, len(engine._words.table)


def test_most_words_are_encoded_on_arrays():
    library = make_tokenizer(normalizers.NFKC(), metaspace)
    by_library, total = count_words(tokjax.formats.from_huggingface(library))
    assert total > 1000
    assert by_library < 200


def test_few_words_are_encoded_by_the_library():
    tokenizer = tokjax.formats.from_huggingface(make_tokenizer(normalizers.NFKC(), metaspace))
    tokenizer.encoder.word_engine.encode(["the newest lower widest"], sources=True)
    assert "_unigram" not in vars(tokenizer.encoder.word_engine._words)
    assert tokenizer.encoder.word_engine._words._num_by_library == 4


def test_repeated_long_words_are_encoded_once():
    tokenizer = tokjax.formats.from_huggingface(make_tokenizer(normalizers.NFKC(), metaspace))
    text = " ".join(["low" * 100] * 3)
    expected = tokenizer.library_tokenizer.encode(text, add_special_tokens=False).ids
    for _ in range(3):
        encoded, _ = tokenizer.encoder.word_engine.encode([text], sources=False)
        assert encoded.ids.tolist() == expected
        assert encoded.begins_word is None
    assert len(tokenizer.encoder.word_engine._words.table) == 2


BYTES = [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
base = make_tokenizer(normalizers.NFKC(), metaspace)
vocab = json.loads(base.to_str())["model"]["vocab"]
MODELS = {
    "some byte pieces": edit_model(base, vocab=vocab + BYTES[:200], byte_fallback=True),
    "huge score": edit_model(base, vocab=[*vocab, ["zz", 1e200]]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_need_the_library(name):
    tokenizer = tokjax.formats.from_huggingface(MODELS[name])
    by_library, total = count_words(tokenizer)
    assert by_library == total > 1000


def test_scores_are_those_of_the_library():
    """The library rounds some decimal numbers differently than Python does."""
    generator = np.random.default_rng(0)
    scores = (-10 * generator.random(3000)).tolist()
    pieces = [["<unk>", 0.0], *([f"piece{i}", score] for i, score in enumerate(scores))]
    tokenizer = tokjax.formats.from_huggingface(
        edit_model(base, vocab=pieces + [[s, 0.0] for s in SPECIAL[:-1]], unk_id=0)
    )
    unigram = tokenizer.encoder.word_engine._words._unigram
    parsed = json.loads(tokenizer.library_tokenizer.to_str())["model"]["vocab"]
    ids = unigram._model._slot_ids
    used = np.flatnonzero(unigram._model._trie.pieces >= 0)
    assert [unigram._model._scores[slot] for slot in used] == [parsed[ids[slot]][1] for slot in used]
