"""Tests of merge rules, and of byte-level BPE with lists of merges, against Hugging Face's tokenizers."""

import pickle

import pytest
import tokenizers
from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import tokjax
from tests.support.span_checks import assert_spans_agree
from tests.support.text_strategies import hard_texts
from tokjax.bpe import batched_merging, merge_rules
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.bpe.merge_rules import make_rules_from_merges
from tokjax.bpe.sequential_merging import merge_bytes, merge_pretoken
from tokjax.core.vocabulary import AddedToken, make_vocabulary

BYTES = {bytes([i]): i for i in range(256)}
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
CHARACTER = {byte: chr(byte) for byte in PRINTABLE} | {
    byte: chr(256 + i) for i, byte in enumerate(byte for byte in range(256) if byte not in PRINTABLE)
}


def to_printable(token):
    return "".join(CHARACTER[byte] for byte in token)


@st.composite
def draw_merge_lists(draw, letters="ab c"):
    """Draws merges of existing tokens, in any order. Some make a token that exists already."""
    tokens = [letter.encode() for letter in letters]
    merges = []
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if len(left + right) <= 12 and (left, right) not in merges:
            merges.append((left, right))
            tokens.append(left + right)
    return draw(st.permutations(merges)) if draw(st.booleans()) else merges


def make_ids(merges, offset=1000):
    """Returns ids in another order than that of the merges."""
    tokens = dict.fromkeys(token for left, right in merges for token in (left + right, left, right))
    return {token: offset - i for i, token in enumerate(tokens)} | BYTES


def make_library_tokenizer(ids, merges, ignore_merges):
    model = models.BPE(
        {to_printable(token): id_ for token, id_ in ids.items()},
        [(to_printable(left), to_printable(right)) for left, right in merges],
        ignore_merges=ignore_merges,
    )
    theirs = Tokenizer(model)
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return theirs


@st.composite
def draw_all_pair_lists(draw):
    """Draws tokens, and every merge that makes one of them, grouped by token or not, in any order."""
    texts = draw(st.sets(st.text("ab", min_size=2, max_size=7).map(str.encode), max_size=14))
    tokens = {b"a", b"b", *texts}
    merges = []
    for token in draw(st.permutations(sorted(texts))):
        splits = [(token[:index], token[index:]) for index in range(1, len(token))]
        merges += draw(st.permutations([pair for pair in splits if tokens.issuperset(pair)]))
    return draw(st.permutations(merges)) if draw(st.booleans()) else merges


short_texts = st.text("ab c", min_size=1, max_size=30) | st.integers(1, 90).map(lambda n: "ab" * n)


@given(
    merges=draw_merge_lists() | draw_all_pair_lists(),
    ignore_merges=st.booleans(),
    texts=st.lists(short_texts | st.text("ab", min_size=5, max_size=20), min_size=1, max_size=10),
)
@example(merges=[(b"a", b"b"), (b"ab", b"c")], ignore_merges=False, texts=["abc", "abcab"])
def test_ids_equal_huggingface(merges, ignore_merges, texts):
    ids = make_ids(merges)
    ours = tokjax.byte_level_bpe(ids, merges=merges, ignore_merges=ignore_merges)
    theirs = make_library_tokenizer(ids, merges, ignore_merges)
    for text in texts:
        assert tokjax.encode(ours, text).tolist() == theirs.encode(text).ids
    batch = tokjax.encode_batch_result(ours, texts * 150)  # enough text for the array engine
    assert [row.ids.tolist() for row in batch[: len(texts)]] == [theirs.encode(text).ids for text in texts]
    assert batch.ids.tolist() == [id_ for text in texts * 150 for id_ in theirs.encode(text).ids]


@given(
    merges=draw_merge_lists("abc") | draw_all_pair_lists(),
    texts=st.lists(short_texts, min_size=1, max_size=30),
    few=st.sampled_from([1, 1000]),
)
def test_batched_merging_equals_sequential(merges, texts, few):
    ids = make_ids(merges)
    rules = make_rules_from_merges(ids, merges, ignore_merges=False)
    pretokens = [text.encode() for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_merging, "_FEW_SYMBOLS", few)
        merged = BatchMerger(rules).merge(make_pretokens(pretokens))
    expected = [[ids[token] for token in merge_bytes(pretoken, rules)] for pretoken in pretokens]
    assert merged.ids.tolist() == [id_ for row in expected for id_ in row]
    assert [merge_pretoken(pretoken, rules) for pretoken in pretokens] == expected


def test_unreachable_token_needs_ignore_merges():
    ids = BYTES | {b"ab": 300, b"abc": 301, b"bc": 302}
    merges = [(b"a", b"b")]
    with_merges = tokjax.byte_level_bpe(ids, merges=merges)
    ignoring_merges = tokjax.byte_level_bpe(ids, merges=merges, ignore_merges=True)
    assert tokjax.encode(with_merges, "abc").tolist() == [300, 99]
    assert tokjax.encode(ignoring_merges, "abc").tolist() == [301]
    assert tokjax.encode(ignoring_merges, "abcd").tolist() == [300, 99, 100]


def test_too_many_merges_are_rejected(monkeypatch):
    monkeypatch.setattr(merge_rules, "MAX_MERGES", 1)
    ids = BYTES | {b"ab": 256, b"abc": 257}
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="has 2 merges; at most 1 are supported"):
        tokjax.byte_level_bpe(ids, merges=[(b"a", b"b"), (b"ab", b"c")])


def test_long_tokens_are_merged_or_rejected():
    """An untrusted file could have tokens that are doubled many times."""
    merges = [(b"a" * 2**i, b"a" * 2**i) for i in range(17)]
    ids = BYTES | {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    ours = tokjax.byte_level_bpe(ids, merges=merges, pattern="[^ ]+")
    text = "a" * 2**17 + " " + "a" * (2**16 + 5)
    assert tokjax.encode(ours, text).tolist() == [272, 32, 271, 257, 97]
    long_tokens = {b"%d" % i + b"a" * (200 + i): 256 + i for i in range(9000)}
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="too many long tokens: 9,000 tokens of more than 128 bytes"
    ):
        tokjax.encode(tokjax.byte_level_bpe(BYTES | long_tokens), text)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([(b"a", b"b"), (b"a", b"b")], r"merge 1 of b'a' and b'b': it is a duplicate"),
        ([(b"a", b"x?")], r"merge 0 of b'a' and b'x\?': there is no token b'x\?' in the vocabulary"),
        ([(b"b", b"a")], r"merge 0 of b'b' and b'a': there is no token b'ba'"),
    ],
)
def test_invalid_merges_are_rejected(merges, message):
    ids = BYTES | {token: 300 + i for i, token in enumerate([b"ab", b"bc", b"abc", b"aa"])}
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.byte_level_bpe(ids, merges=merges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignore_merges": False}, "ignore_merges=False needs merges"),
        ({"trim_offsets": "some"}, "trim_offsets must be 'all', 'but_first' or None, not 'some'"),
        ({"add_prefix_space": 1}, "add_prefix_space must be True or False, not 1"),
        ({"added_tokens": ["zz"]}, "the added token 'zz' has no id"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.byte_level_bpe(BYTES, **options)


spaced_texts = st.text(" ab\u00a0é\n", max_size=12) | hard_texts
spaced_texts = spaced_texts.filter(
    lambda text: text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)
)


@given(
    text=spaced_texts,
    prefix=st.booleans(),
    trim_offsets=st.sampled_from([None, "all", "but_first"]),
    mask=st.booleans(),
)
@example(text=" a  b ", prefix=True, trim_offsets="but_first", mask=False)
@example(text="a<m> <m>b", prefix=True, trim_offsets="but_first", mask=True)
def test_space_handling_equals_huggingface(text, prefix, trim_offsets, mask):
    merges = [(b"a", b"b"), (b" ", b"a"), (b" ", b" "), (b"  ", b"  "), (b"b", b" ")]
    ids = make_ids(merges)
    theirs = make_library_tokenizer(ids, merges, False)
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    theirs.post_processor = processors.ByteLevel(
        trim_offsets=trim_offsets is not None, add_prefix_space=trim_offsets == "but_first"
    )
    theirs.add_special_tokens(["<m>"])
    special = {"<m>": theirs.token_to_id("<m>")}
    ours = tokjax.byte_level_bpe(
        ids, merges=merges, add_prefix_space=prefix, trim_offsets=trim_offsets, special_tokens=special
    )
    if mask:
        text = text.replace("b", "<m>")
    result = tokjax.encode_result(ours, text, allowed_special="all")
    encoding = theirs.encode(text)
    assert result.ids.tolist() == encoding.ids
    assert tokjax.encode(ours, text, allowed_special="all").tolist() == encoding.ids
    if text.isascii():
        assert_spans_agree(text, result.offsets.tolist(), encoding.offsets)
    assert result.word_ids.tolist() == encoding.word_ids
    assert tokjax.offsets.validate_offsets_contract(text, result.offsets)


added_tokens = st.sampled_from(["<m>", "<mask>", "ab", "new word", "éé"])


@given(
    names=st.dictionaries(added_tokens, st.tuples(*[st.booleans()] * 3), max_size=4),
    parts=st.lists(added_tokens | st.text(" ab\n\u2003\x1cé<", max_size=4), max_size=8),
)
def test_added_tokens_equal_huggingface(names, parts):
    text = "".join(parts)
    theirs = make_library_tokenizer(BYTES, [], False)
    for name, (left, right, special) in names.items():
        token = tokenizers.AddedToken(name, lstrip=left, rstrip=right, normalized=False, special=special)
        (theirs.add_special_tokens if special else theirs.add_tokens)([token])
    ids = {name: theirs.token_to_id(name) for name in names}
    table = make_vocabulary(
        BYTES | {name.encode(): ids[name] for name, flags in names.items() if not flags[2]},
        {name: ids[name] for name, flags in names.items() if flags[2]},
        added_tokens={name: AddedToken(left, right) for name, (left, right, _) in names.items()},
    )
    ours = tokjax.models.ByteLevelBPE(table, "gpt2")
    encoding = theirs.encode(text)
    result = tokjax.encode_result(ours, text, allowed_special="all")
    assert result.ids.tolist() == encoding.ids
    added = [i for i, id_ in enumerate(encoding.ids) if id_ >= 256]
    spans = tokjax.offsets.byte_to_char_spans(text, result.offsets)[added]
    assert spans.tolist() == [list(encoding.offsets[i]) for i in added]
    special = {ids[name] for name, flags in names.items() if flags[2]}
    assert result.special_tokens_mask.tolist() == [int(id_ in special) for id_ in encoding.ids]
    joined = [tokjax.offsets.span_bytes(text, span) for span in result.offsets]
    assert b"".join(joined) == text.encode()
    unpickled = pickle.loads(pickle.dumps(ours))
    assert unpickled == ours
    assert tokjax.encode(unpickled, text, allowed_special="all").tolist() == encoding.ids


def test_save_and_load_round_trip(tmp_path):
    merges = [(b"a", b"b"), (b" ", b"ab")]
    ours = tokjax.byte_level_bpe(
        make_ids(merges) | {b"new": 2000},
        merges=merges,
        add_prefix_space=True,
        trim_offsets="but_first",
        added_tokens=["new"],
        special_tokens={"<m>": 2001},
    )
    loaded = tokjax.load_tokenizer(tokjax.save_tokenizer(ours, tmp_path))
    assert loaded == ours
    assert tokjax.fingerprint(loaded) == tokjax.fingerprint(ours)
    options = (
        "pattern='gpt2', normalizer=None, merges=2, ignore_merges=False, add_prefix_space=True, "
        "trim_offsets='but_first'"
    )
    assert repr(ours) == f"ByteLevelBPE(vocab_size=2002, {options}, special_tokens={{'<m>': 2001}})"
    assert tokjax.encode_result(loaded, "ab new").offsets.tolist() == [[1, 3], [4, 4], [4, 7]]
