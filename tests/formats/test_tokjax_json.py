"""Tests of tokjax's own tokenizer format."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import pytest
from hypothesis import given, strategies as st

import tokjax
from tokjax._util.atomic_files import compute_json_checksum
from tokjax.core.template import Template
from tokjax.core.vocabulary import ROLES, AddedToken, make_vocabulary

BYTES = {bytes([i]): i for i in range(256)}


@pytest.fixture
def saved_path(tokenizer, tmp_path):
    return tokjax.save_tokenizer(tokenizer, tmp_path / "tokenizer.json")


@st.composite
def vocabularies(draw):
    """Vocabularies with all bytes, and with any roles, template, added tokens and duplicates."""
    names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="$"), min_size=1, max_size=4)
    tokens = draw(st.sets(st.binary(min_size=2, max_size=5), max_size=8))
    special, added, others = (draw(st.lists(names, min_size=1, max_size=3, unique=True)) for _ in range(3))
    ordinary = BYTES | {token: 1300 + draw(st.integers(0, 1)) + 2 * i for i, token in enumerate(tokens)}
    ordinary |= {name.encode(): 400 + i for i, name in enumerate(added) if name.encode() not in ordinary}
    token = st.sampled_from(special)
    piece = st.builds("{}:{}".format, token, st.integers(0, 3))
    template = tokjax.make_template([draw(piece), "$A", draw(piece)], draw(st.none() | st.just("$B:1 $A")))
    return make_vocabulary(
        ordinary,
        {name: 500 + i for i, name in enumerate(special)},
        draw(st.dictionaries(st.sampled_from(ROLES), token)),
        draw(st.sampled_from([None, template, Template(template.single, ())])),
        draw(st.dictionaries(st.sampled_from(added), st.builds(AddedToken, st.booleans(), st.booleans()))),
        {name: 600 + i for i, name in enumerate(added[1:])},
        {name: 700 + i for i, name in enumerate(others) if name not in {*special, *added}} | {"": 710},
    )


@given(
    vocabulary=vocabularies(),
    pattern=st.sampled_from(["gpt2", r"\w+|\W", ("o200k", r"\w+|\W")]),
    normalizer=st.sampled_from([None, "nfc"]),
)
def test_round_trip(tmp_path_factory, vocabulary, pattern, normalizer):
    tokenizer = tokjax.models.ByteLevelBPE(vocabulary, pattern, normalizer)
    path = tmp_path_factory.mktemp("formats") / "tokenizer.json"
    assert tokjax.save_tokenizer(tokenizer, path) == path
    again = tokjax.load_tokenizer(path)
    assert again == tokenizer
    assert list(again.vocabulary.special) == list(vocabulary.special)
    assert tokjax.fingerprint(again) == tokjax.fingerprint(tokenizer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(pattern="cl100k"), "altered or damaged"),
        (lambda c: c["vocabulary"]["ordinary"]["0"].pop(), "altered or damaged"),
        (lambda c: c.pop("checksum"), "altered or damaged"),
        (
            lambda c: c.update(version=2),
            "has version 2 of the format; this version of tokjax reads version 3",
        ),
        (lambda c: c.update(format="tokenizers"), "not a tokjax tokenizer: its 'format' is 'tokenizers'"),
    ],
)
def test_altered_file(saved_path, change, message):
    contents = json.loads(saved_path.read_text())
    change(contents)
    saved_path.write_text(json.dumps(contents))
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message) as error:
        tokjax.load_tokenizer(saved_path)
    assert str(saved_path) in str(error.value)


def make_all_kinds():
    """Makes a tokenizer whose fields have values of all kinds."""
    plain = tokjax.byte_level_bpe(
        BYTES, special_tokens={"<s>": 256}, bos_token="<s>", merges=[], trim_offsets="all"
    )
    return tokjax.models.with_dropout(tokjax.with_template(plain, "<s> $A"), 0.5, seed=1)


VOCABULARY = ("tokenizer", "vocabulary")


@pytest.mark.parametrize(
    ("names", "value", "message"),
    [
        (["model"], "word2vec", "unknown model 'word2vec'; supported: "),
        (["model"], [1], "unknown model"),
        (["seed"], ..., "the field 'seed' is missing"),
        ([*VOCABULARY, "ordinary"], ..., "tokenizer: vocabulary: the field 'ordinary' is missing"),
        (["x"], 1, "unknown field 'x'; the fields are tokenizer, dropout, seed"),
        ([*VOCABULARY, "model"], "x", "vocabulary: unknown field 'model'"),
        (["seed"], True, "seed: must be int, not True"),
        (["seed"], -1, "the values are invalid: seed must be at least 0, not -1"),
        (["tokenizer", "model"], "wordpiece", "must be .*ByteLevelBPE | .*, not {'model': 'wordpiece', "),
        (["tokenizer"], [], r"tokenizer: must be .*ByteLevelBPE | .*, not \[\]"),
        (VOCABULARY, 5, "vocabulary: must be .*Vocabulary, not 5"),
        (["tokenizer", "pattern"], 7, r"pattern: must be str | tuple\[str, ...\], not 7"),
        (["tokenizer", "pattern"], "[", "the values are invalid: .*regular expression"),
        (["tokenizer", "normalizer"], "nfkc", r"normalizer: must be .*Literal\['nfc'\].*, not 'nfkc'"),
        (["tokenizer", "merges"], [["a"]], r"merges: a list must have 2 values, not be \['a'\]"),
        (["tokenizer", "merges"], [["a", 5]], "merges: must be bytes, not 5"),
        (["tokenizer", "merges"], [["a", "b"]], "the values are invalid: .*merge"),
        ([*VOCABULARY, "ordinary"], {"0": ["a"]}, "every single byte"),
        ([*VOCABULARY, "ordinary"], {"0": ["a", "a"]}, "ordinary: duplicate token"),
        ([*VOCABULARY, "ordinary", "7"], ["ab"], "id 7 is given to both"),
        ([*VOCABULARY, "ordinary"], {"a": ["a"]}, "the values are invalid: invalid literal"),
        ([*VOCABULARY, "ordinary"], {"0": ["\ud800"]}, "the values are invalid: 'utf-8' codec"),
        ([*VOCABULARY, "roles"], {"x": "<s>"}, r"roles: must be Literal\['bos', .*\], not 'x'"),
        ([*VOCABULARY, "roles"], {"eos": "<nope>"}, "not among the special tokens"),
        ([*VOCABULARY, "explicit_template", "single"], [[None, None, 0]], r"must hold \$A once"),
    ],
)
def test_invalid_values_with_a_valid_checksum(tmp_path, names, value, message):
    path = tokjax.save_tokenizer(make_all_kinds(), tmp_path)
    contents = json.loads(path.read_text())
    del contents["checksum"]
    *parents, last = names
    changed = reduce(dict.__getitem__, parents, contents)
    changed[last] = value
    if value is ...:
        del changed[last]
    path.write_text(json.dumps(contents | {"checksum": compute_json_checksum(contents)}))
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message):
        tokjax.load_tokenizer(path)


@pytest.mark.parametrize("text", ["", "{", '{"format": "', "[]", "null", "[" * 100_000, "\xff"])
def test_not_a_json_object(saved_path, text):
    saved_path.write_text(text, "latin-1")
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=str(saved_path)):
        tokjax.load_tokenizer(saved_path)


def test_unsupported_tokenizers_are_rejected(tmp_path):
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="can't write a str"):
        tokjax.save_tokenizer("tokenizer", tmp_path / "t.json")


def test_threads_save_to_one_path(tokenizer, plain_tokenizer, tmp_path):
    path = tmp_path / "t.json"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda t: tokjax.save_tokenizer(t, path), [tokenizer, plain_tokenizer] * 20))
    assert tokjax.load_tokenizer(path) in (tokenizer, plain_tokenizer)
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_missing_directory(tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such directory: '.*nope'"):
        tokjax.save_tokenizer(tokenizer, tmp_path / "nope" / "t.json")
