"""Byte-level BPE by a list of merges, with blanks and added tokens: against Hugging Face's tokenizers."""

import pickle

import pytest
import tokenizers
from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import tokjax
from tests.support.span_checks import assert_spans_agree
from tests.support.text_strategies import hard_texts
from tokjax.bpe import batch_merging, merge_rules
from tokjax.bpe.batch_merging import BatchMerger
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
    """Merges of what there is, in any order; some make what there is already."""
    tokens = [letter.encode() for letter in letters]
    merges = []
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if len(left + right) <= 12 and (left, right) not in merges:
            merges.append((left, right))
            tokens.append(left + right)
    return draw(st.permutations(merges)) if draw(st.booleans()) else merges


def get_ids(merges, offset=1000):
    """Ids in another order than that of merging."""
    tokens = dict.fromkeys(token for left, right in merges for token in (left + right, left, right))
    return {token: offset - i for i, token in enumerate(tokens)} | BYTES


def encode_with_library(ids, merges, ignore_merges):
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
    """Every way to make each of some tokens, the ways of one side by side or not, in any order."""
    texts = draw(st.sets(st.text("ab", min_size=2, max_size=7).map(str.encode), max_size=14))
    tokens = {b"a", b"b", *texts}
    merges = []
    for token in draw(st.permutations(sorted(texts))):
        cuts = [(token[:truncated], token[truncated:]) for truncated in range(1, len(token))]
        merges += draw(st.permutations([pair for pair in cuts if tokens.issuperset(pair)]))
    return draw(st.permutations(merges)) if draw(st.booleans()) else merges


words = st.text("ab c", min_size=1, max_size=30) | st.integers(1, 90).map(lambda n: "ab" * n)


@given(
    merges=draw_merge_lists() | draw_all_pair_lists(),
    whole=st.booleans(),
    words=st.lists(words | st.text("ab", min_size=5, max_size=20), min_size=1, max_size=10),
)
@example(merges=[(b"a", b"b"), (b"ab", b"c")], whole=False, words=["abc", "abcab"])
def test_ids_are_the_library_s(merges, whole, words):
    ids = get_ids(merges)
    ours = tokjax.byte_level_bpe(ids, merges=merges, ignore_merges=whole)
    theirs = encode_with_library(ids, merges, whole)
    for text in words:
        assert tokjax.encode(ours, text).tolist() == theirs.encode(text).ids
    many = tokjax.encode_batch_result(ours, words * 400)  # (by arrays, of one and then of several chunks)
    assert [row.ids.tolist() for row in many[: len(words)]] == [theirs.encode(text).ids for text in words]
    assert many.ids.tolist() == [id_ for text in words * 400 for id_ in theirs.encode(text).ids]


@given(
    merges=draw_merge_lists("abc") | draw_all_pair_lists(),
    words=st.lists(words, min_size=1, max_size=30),
    few=st.sampled_from([1, 1000]),
)
def test_batched_merging_equals_sequential(merges, words, few):
    ids = get_ids(merges)
    rules = make_rules_from_merges(ids, merges, ignore_merges=False)
    words = [pretoken.encode() for pretoken in words]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_FEW_SYMBOLS", "_FEW_PRETOKENS"):
            patch.setattr(batch_merging, name, few)
        merged = BatchMerger(rules).merge(make_pretokens(words))
    expected = [[ids[token] for token in merge_bytes(pretoken, rules)] for pretoken in words]
    assert merged.ids.tolist() == [id_ for row in expected for id_ in row]
    assert [merge_pretoken(pretoken, rules) for pretoken in words] == expected


def test_unreachable_token_needs_ignore_merges():
    ids = BYTES | {b"ab": 300, b"abc": 301, b"bc": 302}
    merges = [(b"a", b"b")]
    apart = tokjax.byte_level_bpe(ids, merges=merges)
    whole = tokjax.byte_level_bpe(ids, merges=merges, ignore_merges=True)
    assert tokjax.encode(apart, "abc").tolist() == [300, 99]
    assert tokjax.encode(whole, "abc").tolist() == [301]
    assert tokjax.encode(whole, "abcd").tolist() == [300, 99, 100]


def test_merges_that_are_too_many(monkeypatch):
    monkeypatch.setattr(merge_rules, "MAX_MERGES", 1)
    ids = BYTES | {b"ab": 256, b"abc": 257}
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="there are 2 merges; 1 are possible"):
        tokjax.byte_level_bpe(ids, merges=[(b"a", b"b"), (b"ab", b"c")])


def test_long_tokens():
    """Doubled again and again, as one that a file from a stranger might hold."""
    merges = [(b"a" * 2**i, b"a" * 2**i) for i in range(17)]
    ids = BYTES | {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    ours = tokjax.byte_level_bpe(ids, merges=merges, pattern="[^ ]+")
    text = "a" * 2**17 + " " + "a" * (2**16 + 5)
    assert tokjax.encode(ours, text).tolist() == [272, 32, 271, 257, 97]
    many = {b"%d" % i + b"a" * (200 + i): 256 + i for i in range(9000)}
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="9,000 tokens of more than 128 bytes, .*: too"
    ):
        tokjax.encode(tokjax.byte_level_bpe(BYTES | many), text)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([(b"a", b"b"), (b"a", b"b")], r"merge 1, b'a' and b'b', stands twice"),
        ([(b"a", b"x?")], r"merge 0, b'a' and b'x\?': there is no token b'x\?'"),
        ([(b"b", b"a")], r"merge 0, b'b' and b'a': there is no token b'ba'"),
    ],
)
def test_merges_that_make_no_sense(merges, message):
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
def test_options_that_make_no_sense(options, message):
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
def test_spaces(text, prefix, trim_offsets, mask):
    merges = [(b"a", b"b"), (b" ", b"a"), (b" ", b" "), (b"  ", b"  "), (b"b", b" ")]
    ids = get_ids(merges)
    theirs = encode_with_library(ids, merges, False)
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
def test_added_tokens(names, parts):
    text = "".join(parts)
    theirs = encode_with_library(BYTES, [], False)
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
    found = [i for i, id_ in enumerate(encoding.ids) if id_ >= 256]
    spans = tokjax.offsets.byte_to_char_spans(text, result.offsets)[found]
    assert spans.tolist() == [list(encoding.offsets[i]) for i in found]
    special = {ids[name] for name, flags in names.items() if flags[2]}
    assert result.special_tokens_mask.tolist() == [int(id_ in special) for id_ in encoding.ids]
    joined = [tokjax.offsets.span_bytes(text, span) for span in result.offsets]
    assert b"".join(joined) == text.encode()
    again = pickle.loads(pickle.dumps(ours))
    assert again == ours
    assert tokjax.encode(again, text, allowed_special="all").tolist() == encoding.ids


def test_all_of_it_is_written_and_read(tmp_path):
    merges = [(b"a", b"b"), (b" ", b"ab")]
    ours = tokjax.byte_level_bpe(
        get_ids(merges) | {b"new": 2000},
        merges=merges,
        add_prefix_space=True,
        trim_offsets="but_first",
        added_tokens=["new"],
        special_tokens={"<m>": 2001},
    )
    again = tokjax.load_tokenizer(tokjax.save_tokenizer(ours, tmp_path))
    assert again == ours
    assert tokjax.fingerprint(again) == tokjax.fingerprint(ours)
    said = "pattern='gpt2', add_prefix_space=True, trim_offsets='but_first', merges=2, ignore_merges=False"
    assert repr(ours) == f"ByteLevelBPE(vocab_size=2002, {said}, special_tokens={{'<m>': 2001}})"
    assert tokjax.encode_result(again, "ab new").offsets.tolist() == [[1, 3], [4, 4], [4, 7]]
