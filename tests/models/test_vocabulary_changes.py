"""Tests of longer and shorter vocabularies, against transformers, `tokenizers` and the trainers."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import make_pair
from tests.support.sentencepiece_models import NAMES, train_by_library, train_sentencepiece_models
from tests.support.tokenizers import TOKENIZERS, VARIANTS, make_tokenizer
from tests.support.variants import mark_slow_except
from tokjax.trainer import train_bpe, train_word_level, train_wordpiece

Error = tokjax.errors.InvalidArgumentError
Unsupported = tokjax.errors.UnsupportedTokenizerError
BUILT_IN = [
    "GPT-2",
    "Llama 3",
    "GPT-4o",
    "Qwen 2",
    "BERT",
    "BERT, cased",
    "Llama 2",
    "Mistral",
    "split",
    "words",
    "OpenAI GPT",
    "HerBERT",
    "word BPE at whitespace",
]
WORD_BPE = ["OpenAI GPT", "word BPE at whitespace", "word BPE without a mark"]
ONE_PER_TYPE = ["GPT-2", "BERT", "Mistral", "split", "words", "HerBERT", "unigram"]
NEW_TOKENS = ["<user>", "low", " new", "brandnew", "naïve", "<s>", "日", "widest"]
TEXTS = ["low brandnew, naïve <user>", "brandnewest new lower", "日本 widest<user>", *CORPUS[:2]]


def check_files(tokenizer, directory, formats=()):
    """Checks the fingerprint, pickling, saving, loading and exporting of a tokenizer."""
    directory.mkdir(exist_ok=True)
    restored = [pickle.loads(pickle.dumps(tokenizer))]
    restored.append(tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, directory / "ours.json")))
    for again in restored:
        assert again == tokenizer
        assert tokjax.fingerprint(again) == tokjax.fingerprint(tokenizer)
    for format_ in formats:
        (directory / format_).mkdir(exist_ok=True)
        tokjax.formats.export_tokenizer(tokenizer, directory / format_, format_)
        restored.append(tokjax.load_tokenizer(directory / format_))
    for again in restored:
        for text in TEXTS:
            ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
            assert tokjax.encode(again, text, allowed_special="all").tolist() == ids


# Extended vocabularies.


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", mark_slow_except([*BUILT_IN, "unigram", "punctuation"], ONE_PER_TYPE))
def test_ids_equal_transformers(name, special, tmp_path):
    transformers = pytest.importorskip("transformers")
    library_tokenizer, tokenizer = make_pair(name)
    # Built-in BPE types reject special tokens that text can become.
    is_bpe = isinstance(
        tokenizer, (tokjax.models.ByteLevelBPE, tokjax.models.MetaspaceBPE, tokjax.models.WordBPE)
    )
    can_become = {"low", "widest"} | ({"日"} if isinstance(tokenizer, tokjax.models.WordBPE) else set())
    tokens = [token for token in NEW_TOKENS if not (special and is_bpe and token in can_become)]
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(library_tokenizer.to_str())
    )
    theirs_tokens = tokens
    if name in BUILT_IN and not special:
        theirs_tokens = [AddedToken(token, normalized=False) for token in tokens]
    theirs.add_tokens(theirs_tokens[:2], special_tokens=special)
    theirs.add_tokens(theirs_tokens[2:], special_tokens=special)
    first, _ = tokjax.extend_vocabulary(tokenizer, tokens[:2], special=special)
    ours, old_ids = tokjax.extend_vocabulary(first, tokens[2:], special=special)
    for token in tokens:
        assert tokjax.token_to_id(ours, token) == theirs.convert_tokens_to_ids(token), token
    assert tokjax.vocab_size(ours) == len(theirs) == len(old_ids)
    assert (tokjax.special_tokens(ours).keys() >= set(tokens)) == special
    assert old_ids.dtype == np.int32
    for text in TEXTS:
        ids = tokjax.encode(ours, text, allowed_special="all").tolist()
        assert ids == theirs(text)["input_ids"], text
        if name in BUILT_IN:
            decoded = tokjax.decode(ours, ids)
            assert all(token in decoded for token in ("brandnew", "naïve", "日") if token in text)
    check_files(ours, tmp_path)
    assert tokjax.fingerprint(ours) != tokjax.fingerprint(tokenizer)


@pytest.mark.parametrize(
    "name",
    mark_slow_except(
        [name for name in TOKENIZERS if name != "callable"], TOKENIZERS.keys() - VARIANTS - {"callable"}
    ),
)
def test_special_tokens_in_files(name, tmp_path):
    tokenizer = make_tokenizer(name)
    extended, old_ids = tokjax.extend_vocabulary(tokenizer, ["<new>", "<2>"], special=True, pad_token="<new>")
    size = tokjax.vocab_size(tokenizer)
    assert [tokjax.token_to_id(extended, token) for token in ("<new>", "<2>")] == [size, size + 1]
    assert tokjax.pad_id(extended) == size
    assert old_ids.tolist() == [*range(size), -1, -1]
    assert tokjax.get_vocabulary(extended).template == tokjax.get_vocabulary(tokenizer).template
    for text in CORPUS:
        assert tokjax.encode_result(extended, text) == tokjax.encode_result(tokenizer, text)
    result = tokjax.encode_result(
        extended, "low<new>low", add_special_tokens=False, allowed_special={"<new>"}
    )
    assert result.offsets[result.ids == size].tolist() == [[4, 9]]
    check_files(extended, tmp_path)


@pytest.mark.parametrize("name", ["GPT-2", "Llama 3", "BERT", "Llama 2", "split", "words", *WORD_BPE])
def test_extended_tokenizers_are_exported(name, tmp_path):
    _, tokenizer = make_pair(name)
    with_special, _ = tokjax.extend_vocabulary(tokenizer, ["<user>"], special=True)
    extended, _ = tokjax.extend_vocabulary(with_special, ["brandnew", "low"])
    check_files(extended, tmp_path, ["huggingface"])
    [path] = tokjax.formats.export_tokenizer(extended, tmp_path / "tokenizer.json", "huggingface")
    reference = Tokenizer.from_file(str(path))
    assert type(tokjax.load_tokenizer(path)) is type(extended)
    for text in TEXTS:
        assert tokjax.encode(extended, text, allowed_special="all").tolist() == reference.encode(text).ids


@pytest.mark.parametrize("name", mark_slow_except(NAMES, ["unigram", "bpe with bytes", "suffixes"]))
def test_sentencepiece_models(name, tmp_path):
    tokenizer = train_sentencepiece_models()[name]
    with_control, _ = tokjax.extend_vocabulary(tokenizer, ["<user>"], special=True, pad_token="<user>")
    if name == "word":
        with pytest.raises(Unsupported, match=r'type "word" matches no symbols .* pass special=True'):
            tokjax.extend_vocabulary(with_control, ["<tool>"])
        return
    extended, old_ids = tokjax.extend_vocabulary(with_control, ["<call>", "<tool>"])
    size = tokjax.vocab_size(tokenizer)
    new_ids = list(range(size, tokjax.vocab_size(extended)))
    assert old_ids.tolist() == [*range(size + 1), *[-1] * (len(new_ids) - 1)]
    assert tokjax.token_to_id(extended, "<user>") == size == tokjax.pad_id(extended)
    assert tokjax.token_to_id(extended, "<tool>") == new_ids[-1]
    for text in CORPUS:
        assert tokjax.encode(extended, text).tolist() == tokjax.encode(tokenizer, text).tolist()
    ids = tokjax.encode(extended, "low<tool><user>low", allowed_special={"<user>", "<tool>"})
    assert {new_ids[-1], size} <= set(ids.tolist())
    assert tokjax.decode(extended, ids).replace(" ", "").replace("⁇", "") == "low<tool>low"
    assert size not in tokjax.encode(extended, "<user>", disallowed_special=())
    check_files(extended, tmp_path, ["sentencepiece"])


@pytest.mark.parametrize(("name", "symbol"), [("unigram with bytes", "st"), ("bpe", "st"), ("char", "s")])
def test_piece_becomes_a_symbol(name, symbol, tmp_path):
    tokenizer = train_sentencepiece_models()[name]
    extended, old_ids = tokjax.extend_vocabulary(tokenizer, [symbol, "<new>"])
    size = tokjax.vocab_size(tokenizer)
    assert old_ids.tolist() == [*range(size), -1]
    text = "lowest best"
    result = tokjax.encode_result(extended, text, add_special_tokens=False)
    assert result.ids.tolist() == extended.processor.encode(text)
    id_ = tokjax.token_to_id(tokenizer, symbol)
    assert result.offsets[result.ids == id_, 0].tolist() == [5, 10]  # everywhere, also in "▁lowest"
    check_files(extended, tmp_path, ["sentencepiece"])


WORD_PIECES = ["[UNK]", "low", "##s", "s", "co", "##v", "##id", "##low"]


@pytest.mark.parametrize("name", ["covid", "##covid", "low", "##low"])
def test_words_that_normalization_makes_an_added_token(name, tmp_path):
    bert = tokjax.wordpiece(WORD_PIECES)
    extended, _ = tokjax.extend_vocabulary(bert, [name])
    [path] = tokjax.formats.export_tokenizer(bert, tmp_path / "bert", "huggingface")
    library = Tokenizer.from_file(str(path))
    library.add_tokens([AddedToken(name, normalized=False)])
    [exported] = tokjax.formats.export_tokenizer(extended, tmp_path, "huggingface")
    loaded = tokjax.load_tokenizer(exported)
    assert type(loaded) is type(extended)
    reloaded = tokjax.load_tokenizer(tokjax.save_tokenizer(extended, tmp_path / "saved"))
    for text in (
        "covid COVID covids COVIDs",
        "LOW low lows LOWS slow SLOW ##LOW ##low",
        "s##covid co##COVID",
    ):
        expected = library.encode(text, add_special_tokens=False).ids
        for tokenizer in (extended, loaded, reloaded):
            assert tokjax.encode(tokenizer, text).tolist() == expected
        assert Tokenizer.from_file(str(exported)).encode(text).ids == expected


def test_added_tokens_of_the_model_are_not_truncated():
    extended, _ = tokjax.extend_vocabulary(tokjax.wordpiece(WORD_PIECES), ["##low"])
    shorter, old_ids = tokjax.truncate_vocabulary(extended, 5)
    assert old_ids.tolist() == [0, 2, 3, 5, 7]
    assert tokjax.tokenize(shorter, "s##low slow") == ["s", "##low", "s", "##low"]


@pytest.mark.parametrize("special", [False, True])
def test_the_library_would_use_an_unused_id(special):
    library = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 5}, unk_token="?"))
    library.normalizer = normalizers.Lowercase()
    tokenizer = tokjax.formats.from_huggingface(library)
    with pytest.raises(
        Unsupported,
        match=r"^'<x>' can't be added: the ids of the vocabulary, from 0 to 5, have gaps, and the tokenizers "
        r"library would give it the id 3$",
    ):
        tokjax.extend_vocabulary(tokenizer, ["a", "<x>"], special=special)


def test_names_that_need_no_new_id():
    bert = tokjax.wordpiece(["[UNK]", "[CLS]", "[unused0]", "low"], special_tokens=["[CLS]"])
    extended, old_ids = tokjax.extend_vocabulary(bert, ["[unused0]", "[CLS]"], special=True)
    assert dict(extended.vocabulary.special) == {"[UNK]": 0, "[CLS]": 1, "[unused0]": 2}
    assert old_ids.tolist() == [0, 1, 2, 3]
    same, old_ids = tokjax.extend_vocabulary(bert, [])
    assert same == bert
    assert old_ids.tolist() == [0, 1, 2, 3]
    gaps = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}, special_tokens={"<x>": 300})
    assert tokjax.token_to_id(tokjax.extend_vocabulary(gaps, ["ab"])[0], "ab") == 301


def test_added_tokens_of_bpe_stay_ordinary():
    _, tokenizer = make_pair("GPT-2")
    extended, _ = tokjax.extend_vocabulary(tokenizer, [" low", "brandnew"])
    for name in (" low", "brandnew"):
        with pytest.raises(Error, match=f"'{name}' can't be special: it is an ordinary token"):
            tokjax.extend_vocabulary(extended, [name], special=True)


def test_extension_errors(tokenizer):
    for tokens, options, message in (
        ("<x>", {}, r"tokens must be a list of names, not '<x>'; pass \['<x>'\]"),
        (["<x>", "<x>"], {}, "duplicate special token '<x>'"),
        (
            ["low"],
            {"special": True},
            r"'low' can't be special: it is an ordinary token \(id \d+\), which text",
        ),
        (["<x>"], {"pad_token": "<x>"}, "pad_token is '<x>', which is not among the special tokens"),
    ):
        with pytest.raises(Error, match=message):
            tokjax.extend_vocabulary(tokenizer, tokens, **options)
    for name in ("unigram", "Hugging Face unigram"):
        with pytest.raises(Error, match="pad_token is '<x>', which is not"):
            tokjax.extend_vocabulary(make_tokenizer(name), [], pad_token="<x>")
    unigram = make_tokenizer("unigram")
    with pytest.raises(Error, match="the model already has the piece '▁the', of another type"):
        tokjax.extend_vocabulary(unigram, ["▁the"], special=True)
    with pytest.raises(Error, match="can't contain a space, as 'a b' does"):
        tokjax.extend_vocabulary(unigram, ["a b"])
    for name in ("bytes", "characters"):
        with pytest.raises(Unsupported, match="no tokens of several .* pass special=True"):
            tokjax.extend_vocabulary(make_tokenizer(name), ["low"])
    with pytest.raises(Unsupported, match="no implementation for 'int'; pass a tokenizer such as"):
        tokjax.extend_vocabulary(3, ["a"])


# Truncated vocabularies.

OPTIONS = {"progress": False, "special_tokens": ["<|endoftext|>", "<|pad|>"]}
WORD_OPTIONS = {"progress": False, "special_tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]}
TRAINERS = {
    "BPE": (lambda size: train_bpe(CORPUS * 3, vocab_size=size, **OPTIONS).tokenizer, 258, 500),
    "WordPiece": (lambda size: train_wordpiece(CORPUS, vocab_size=size, **WORD_OPTIONS).tokenizer, 162, 195),
    "word level": (lambda size: train_word_level(CORPUS, vocab_size=size, **WORD_OPTIONS).tokenizer, 5, 53),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_truncated_vocabularies_equal_trained_ones(name, tmp_path):
    train, minimum, size = TRAINERS[name]
    tokenizer = train(size)
    for shorter in (minimum, (minimum + size) // 2, size - 1, size):
        truncated, old_ids = tokjax.truncate_vocabulary(tokenizer, shorter)
        assert truncated == train(shorter)
        assert tokjax.fingerprint(truncated) == tokjax.fingerprint(train(shorter))
        assert old_ids.tolist() == list(range(shorter))
        assert old_ids.dtype == np.int32
    check_files(truncated, tmp_path, ["huggingface"])
    with pytest.raises(Error, match=f"has {size} tokens, of which {minimum} have to be kept"):
        tokjax.truncate_vocabulary(tokenizer, minimum - 1)


@pytest.mark.parametrize(
    "name",
    mark_slow_except(
        ["GPT-2", "RoBERTa", "GPT-4o", "Llama 2", "Mistral", "split", *WORD_BPE],
        ["GPT-2", "Llama 2", "split", "OpenAI GPT"],
    ),
)
@given(data=st.data())
def test_truncated_merges_equal_the_library(name, data):
    library_tokenizer, tokenizer = make_pair(name)
    definition = json.loads(library_tokenizer.to_str())
    model = definition["model"]
    num_removed = data.draw(st.integers(0, len(model["merges"])))
    size = tokjax.vocab_size(tokenizer) - num_removed
    truncated, old_ids = tokjax.truncate_vocabulary(tokenizer, size)
    assert len(old_ids) == tokjax.vocab_size(truncated) == size
    # The same tokens with the same ids, but with fewer merges: none of the removed tokens can occur.
    model["merges"] = model["merges"][: len(model["merges"]) - num_removed]
    removed = {form for form, id_ in model["vocab"].items() if id_ not in old_ids}
    model["ignore_merges"] = False
    reference = Tokenizer.from_str(json.dumps(definition))
    for text in TEXTS:
        expected = reference.encode(text.replace("<user>", ""))
        assert removed.isdisjoint(expected.tokens)
        ids = tokjax.encode(truncated, text.replace("<user>", ""), allowed_special="all")
        assert old_ids[ids].tolist() == expected.ids
    for special, id_ in tokjax.special_tokens(truncated).items():
        assert old_ids[id_] == tokjax.special_tokens(tokenizer)[special]


def test_classic_bpe_with_merges_of_other_tokens():
    """Merges may make tokens that are not in the vocabulary, and that are not removed either."""
    merges = [("l", "o"), ("lo", "w"), ("low", "e"), ("e", "r</w>"), ("lowe", "r</w>")]
    words = ["l</w>", "o</w>", "w</w>", "e</w>"]
    tokens = ["<unk>", *words, "lo", *"lowe", "lowe", "er</w>", "lower</w>"]
    tokenizer = tokjax.word_bpe(tokens, merges)
    truncated, old_ids = tokjax.truncate_vocabulary(tokenizer, 12)
    assert truncated.merges == tuple(merges[:4])
    assert old_ids.tolist() == list(range(12))
    truncated, _ = tokjax.truncate_vocabulary(tokenizer, 10)
    assert truncated.merges == (("l", "o"), ("lo", "w"))
    assert tokjax.tokenize(truncated, "lo lower") == ["l", "o</w>", "<unk>", "e", "<unk>"]
    with pytest.raises(Error, match="size is 8, but the vocabulary has 13 tokens, of which 9 have to be"):
        tokjax.truncate_vocabulary(tokenizer, 8)


def test_special_tokens_after_the_merges_are_renumbered(tmp_path):
    ranks = {bytes([i]): i for i in range(256)} | {b"lo": 256, b"low": 257, b"ow": 258}
    special = {"<s>": 300, "<pad>": 310}
    tokenizer = tokjax.byte_level_bpe(ranks, special_tokens=special, bos_token="<s>", pad_token="<pad>")
    truncated, old_ids = tokjax.truncate_vocabulary(tokenizer, 259)
    assert dict(truncated.vocabulary.special) == {"<s>": 257, "<pad>": 258}
    assert old_ids[-3:].tolist() == [256, 300, 310]
    assert tokjax.encode(truncated, "low").tolist() == [257, 256, ord("w")]
    check_files(truncated, tmp_path, ["huggingface"])
    compact, old_ids = tokjax.truncate_vocabulary(tokenizer, 261)
    assert tokjax.pad_id(compact) == 260
    assert old_ids[-2:].tolist() == [300, 310]


def test_merges_with_removed_tokens_are_removed():
    ids = {bytes([i]): i for i in range(256)} | {b"ab": 256, b"abc": 257, b"bc": 258, b"cd": 259}
    merges = [(b"a", b"b"), (b"a", b"bc"), (b"ab", b"c"), (b"b", b"c"), (b"c", b"d"), (b"ab", b"cd")]
    tokenizer = tokjax.byte_level_bpe(ids | {b"abcd": 260}, merges=merges, added_tokens=["cd"])
    truncated, old_ids = tokjax.truncate_vocabulary(tokenizer, 259)
    assert truncated.merges == ((b"a", b"b"), (b"ab", b"c"))
    assert old_ids[-3:].tolist() == [256, 257, 259]
    assert tokjax.encode(truncated, "abccd").tolist() == [257, 258]


def test_added_tokens_are_kept():
    _, tokenizer = make_pair("GPT-2")
    extended, _ = tokjax.extend_vocabulary(tokenizer, [" low", "brandnew", "low"])
    minimum = 256 + 5 + 3
    truncated, _ = tokjax.truncate_vocabulary(extended, minimum)
    assert not truncated.vocabulary.duplicate_token_ids
    for token in (" low", "brandnew", "low"):
        assert tokjax.encode(truncated, token).tolist() == [tokjax.token_to_id(truncated, token)]
    with pytest.raises(Error, match=f"of which {minimum} have to be kept"):
        tokjax.truncate_vocabulary(extended, minimum - 1)


def test_wordpiece_keeps_characters():
    bert = tokjax.wordpiece(["[UNK]", "low", "l", "##o", "##w", "##er", "é", "new"])
    truncated, old_ids = tokjax.truncate_vocabulary(bert, 6)
    assert old_ids.tolist() == [0, 1, 2, 3, 4, 6]
    assert tokjax.tokenize(truncated, "low lower") == ["low", "[UNK]"]


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_truncated_sentencepiece_model_equals_a_trained_one(byte_fallback, tmp_path):
    options = {"model_type": "bpe", "byte_fallback": byte_fallback, "user_defined_symbols": ["<call>"]}
    long, short = (
        tokjax.with_template(tokjax.sentencepiece(train_by_library(vocab_size=size, **options)), "<s> $A")
        for size in (125 + 256 * byte_fallback, 110 + 256 * byte_fallback)
    )
    truncated, old_ids = tokjax.truncate_vocabulary(long, tokjax.vocab_size(short))
    names = [
        [tokjax.id_to_token(t, id_) for id_ in range(tokjax.vocab_size(t))] for t in (truncated, short, long)
    ]
    assert names[0] == names[1] == [names[2][id_] for id_ in old_ids]
    for text in (*CORPUS, "<call> low lowest é"):
        result, expected = (tokjax.encode_result(t, text, allowed_special="all") for t in (truncated, short))
        assert result.ids.tolist() == expected.ids.tolist()
        assert result.offsets.tolist() == expected.offsets.tolist()
    check_files(truncated, tmp_path, ["sentencepiece"])
    with pytest.raises(Error, match="of which [0-9]+ have to be kept"):
        tokjax.truncate_vocabulary(long, 5)


def test_other_sentencepiece_models_cannot_be_truncated():
    with pytest.raises(Unsupported, match="of type 'unigram' can't be truncated; train a model with fewer"):
        tokjax.truncate_vocabulary(make_tokenizer("unigram"), 10)


@pytest.mark.parametrize("name", ["bytes", "characters", "Hugging Face unigram"])
def test_types_that_cannot_be_truncated(name):
    tokenizer = make_tokenizer(name)
    message = f"of a {type(tokenizer).__name__} can't be truncated; truncate_vocabulary is for BPE, WordPiece"
    with pytest.raises(Unsupported, match=message):
        tokjax.truncate_vocabulary(tokenizer, 10)


def test_size_errors(tokenizer):
    with pytest.raises(Error, match="size is 501, but the vocabulary has 500 tokens, of which 259"):
        tokjax.truncate_vocabulary(tokenizer, 501)
    with pytest.raises(Error, match="size must be an integer"):
        tokjax.truncate_vocabulary(tokenizer, 2.5)
