"""Tests of vocabulary reports and their records, against an oracle that loops over ids and characters."""

import math
import pickle
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import report as oracle
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import any_strings, byte_strings, hard_texts

BYTES = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)})
ARRAYS = ("vocabulary_lengths", "used_lengths")
all_texts = st.lists(st.one_of(hard_texts, any_strings, byte_strings), max_size=6)


@dataclass(frozen=True)
class WhitespaceTokenizer:
    """Custom tokenizer type: one token per word, an unknown token for other words, whitespace is lost."""

    words: tuple[bytes, ...] = (b"hello", b"low", b"lower", b"a")
    max_batch_size: int = 1000
    unknown_id: int = 99


@tokjax.get_vocabulary.register
def _(tokenizer: WhitespaceTokenizer):
    ids = {word: 2 * i for i, word in enumerate(tokenizer.words)}  # The ids are not contiguous.
    return tokjax.make_vocabulary(ids, {"[UNK]": 99, "[CLS]": 101}, {"unk": "[UNK]", "bos": "[CLS]"})


@tokjax.encode_texts.register
def _(tokenizer: WhitespaceTokenizer, texts, *, add_special_tokens=True, **options):
    assert len(texts) <= tokenizer.max_batch_size
    table = tokjax.get_vocabulary(tokenizer)
    rows = [
        [101] * add_special_tokens
        + [table.ordinary.get(word, tokenizer.unknown_id) for word in tokjax.offsets.to_utf8(text).split()]
        for text in texts
    ]
    return tokjax.TokenizationBatch(
        tokjax.ragged_from_rows(rows), tokjax.ResultMetadata("words"), table.get_token_strings
    )


def make_report(tokenizer, texts, **options):
    return tokjax.reports.vocabulary_report(tokenizer, texts, progress=False, **options)


def check_use(use, tokenizer, texts, **special):
    vocabulary = tokjax.get_vocabulary(tokenizer)
    options = {"disallowed_special": (), **special}
    rows = [tokjax.encode(tokenizer, text, **options, add_special_tokens=False).tolist() for text in texts]
    expected = oracle.compute_token_use(texts, rows, vocabulary)
    size = oracle.compute_text_size(texts)
    assert {name: getattr(use.text, name) for name in size} == size
    longest, frequent = expected.pop("longest"), expected.pop("most_frequent")
    assert [(token.id, token.nbytes, token.times) for token in use.longest()] == longest
    assert [(token.id, token.times) for token in use.most_frequent()] == frequent
    for token in use.longest() + use.most_frequent():
        assert token.token == tokjax.id_to_token(tokenizer, token.id)
    for name, value in expected.items():
        actual = getattr(use, name)
        if name in ARRAYS:
            assert actual.tolist() == value, name
        else:
            assert actual == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


@get_max_examples(60)
@given(first=all_texts, second=all_texts)
def test_several_tokenizers_and_kinds_of_text(first, second, tokenizer):
    report = make_report(
        tokenizer,
        {"1": iter(first), "2": iter(second)},
        name="t",
        against={"bytes": BYTES, "w": WhitespaceTokenizer()},
    )
    assert (report.tokenizers, report.kinds) == (("t", "bytes", "w"), ("1", "2"))
    for name, each in (("t", tokenizer), ("bytes", BYTES), ("w", WhitespaceTokenizer())):
        check_use(report.use(name, "1"), each, first)
        check_use(report.use(name, "2"), each, second)
        check_use(report.use(name), each, first + second)
    single = make_report(tokenizer, iter(first))
    assert single.use() == single.use("tokenizer", "text") == report.use("t", "1")


@given(texts=all_texts, is_allowed=st.booleans())
def test_special_tokens_are_ordinary_text_unless_allowed(texts, is_allowed, tokenizer):
    texts = [*texts, "a<|endoftext|>b<|pad|>"]
    special = {"allowed_special": "all"} if is_allowed else {}
    check_use(make_report(tokenizer, iter(texts), **special).use(), tokenizer, texts, **special)


def test_disallowed_special_tokens(tokenizer):
    with pytest.raises(
        tokjax.errors.DisallowedSpecialTokenError, match="the text holds the special token '<|pad|>'"
    ):
        make_report(tokenizer, ["a<|pad|>"], disallowed_special="all")


def test_empty_texts(tokenizer):
    for texts in ([], [""]):
        use = make_report(tokenizer, texts).use()
        assert use.text == tokjax.reports.TextSize()
        assert (use.tokens, use.unused_share, use.single_use_share) == (0, 1.0, 0.0)
        for name in ("bytes_per_token", "characters_per_token", "tokens_per_word", "bits_per_token"):
            assert math.isnan(getattr(use, name)), name
        for name in ("bits_per_byte", "unknown_share", "single_byte_share"):
            assert math.isnan(getattr(use, name)), name
        assert use.most_frequent() == ()


def test_texts_without_tokens_or_without_words():
    repeated = make_report(BYTES, ["aaaa"]).use()
    assert (str(repeated.bits_per_token), repeated.bits_per_byte) == ("0.0", 0.0)
    space = make_report(WhitespaceTokenizer(), [" \n"]).use()
    assert (space.tokens, space.text.nbytes) == (0, 2)
    assert math.isnan(space.bytes_per_token)
    assert math.isnan(space.bits_per_byte)
    assert math.isnan(make_report(BYTES, [" \n"]).use().tokens_per_word)


def test_entropy_does_not_depend_on_the_order_of_counts():
    table = tokjax.make_vocabulary({bytes([i]): i for i in range(200)})
    counts = np.random.default_rng(0).integers(1, 1000, 200)
    uses = [
        tokjax.reports.TokenUse(table, tokjax.reports.TextSize(), np.roll(counts, by)) for by in range(200)
    ]
    assert len({use.bits_per_token for use in uses}) == 1


def test_byte_fallback_must_be_complete():
    fallback = {b"<0x%02X>" % i: i for i in range(256)}
    counts = np.zeros(258, np.int64)
    counts[[0x41, 0xFF, 256, 257]] = 1, 2, 4, 8
    full = tokjax.make_vocabulary({**fallback, b"a": 256, b"low": 257})
    assert tokjax.reports.TokenUse(full, tokjax.reports.TextSize(), counts).single_byte_share == 7 / 15
    del fallback[b"<0x00>"]
    part = tokjax.make_vocabulary({**fallback, b"a": 256, b"low": 257})
    assert tokjax.reports.TokenUse(part, tokjax.reports.TextSize(), counts).single_byte_share == 4 / 15


@given(texts=all_texts)
def test_batch_size_does_not_change_results(texts, tokenizer):
    with pytest.MonkeyPatch.context() as patch:
        full = make_report(WhitespaceTokenizer(), iter(texts), against={"t": tokenizer})
        patch.setattr("tokjax.encoding.bulk._BATCH_BYTES", 1)
        single_texts = make_report(
            WhitespaceTokenizer(max_batch_size=1), iter(texts), against={"t": tokenizer}
        )
    assert single_texts.uses == full.uses


def test_files_and_separators(tmp_path, tokenizer, corpus):
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(corpus), newline="")
    (tmp_path / "b.txt").write_text("b")
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    report = make_report(tokenizer, {"files": paths, "one": str(paths[1])}, separator="<|endoftext|>")
    expected = make_report(tokenizer, {"files": [*corpus, "b"], "one": ["b"]})
    assert report == expected
    assert report.use(kind="files").text.documents == len(corpus) + 1
    assert make_report(tokenizer, paths).use().text.documents == 2


def test_records_are_immutable_and_comparable(tokenizer, corpus):
    report = make_report(tokenizer, corpus)
    restored = pickle.loads(pickle.dumps(report))
    assert restored == report
    assert hash(restored) == hash(report)
    assert report != make_report(tokenizer, corpus[1:])
    assert report.use() != 1
    with pytest.raises(FrozenInstanceError):
        report.kinds = ()
    for each in (report, restored):
        with pytest.raises(ValueError, match="read-only"):
            each.use().counts[0] = 1


def test_addition_of_token_counts(tokenizer, corpus):
    first, second = make_report(tokenizer, corpus[:2]).use(), make_report(tokenizer, corpus[2:]).use()
    assert first + second == make_report(tokenizer, corpus).use()
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="counts of different vocabularies, of 500 and 256 ids"
    ):
        first + make_report(BYTES, corpus).use()
    for wrong in (first, first.text):
        with pytest.raises(TypeError):
            wrong + 1


def test_progress(tokenizer, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("some text")
    tokjax.reports.vocabulary_report(tokenizer, {"plain": tmp_path / "a.txt", "texts": ["a"]})
    shown = capsys.readouterr()
    assert "measuring" in shown.err
    assert shown.out == ""
    make_report(tokenizer, ["a"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ({}, {}, r"texts is an empty mapping; pass \{NAME: source\}, or one source"),
        ({1: ["a"]}, {}, "the name of a kind of text must be a non-empty string, not 1"),
        ({"": ["a"]}, {}, "the name of a kind of text must be a non-empty string, not ''"),
        ({"a": b"text"}, {}, r"source must be a path, paths, or an iterable of texts, not bytes"),
        ("no/such/file", {}, "'no/such/file' is not a file"),
        ([1], {}, "text 0 of the source must be str or bytes, not int"),
        (["a"], {"against": [BYTES]}, r"against must map names to tokenizers, not be a list; pass \{NAME:"),
        (
            ["a"],
            {"against": {"x": BYTES}, "name": "x"},
            "'x' names two tokenizers, one of them in against; pass",
        ),
        (["a"], {"name": ""}, "the name of a tokenizer must be a non-empty string, not ''"),
        (["a"], {"separator": ""}, "separator is the empty string"),
        (["a"], {"threads": 0}, "threads must be at least 1, not 0"),
        (["a"], {"allowed_special": {"<x>"}}, "allowed_special names '<x>', which is not a special token"),
    ],
)
def test_invalid_arguments_are_rejected(texts, options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        make_report(BYTES, texts, **options)


def test_invalid_tokenizers_are_rejected():
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="no implementation for 'str'"):
        make_report("gpt2", ["a"])
    for invalid_id in (1, 102, -1):
        with pytest.raises(tokjax.errors.UnknownTokenError, match=f"the vocabulary has no id {invalid_id} "):
            make_report(WhitespaceTokenizer(unknown_id=invalid_id), ["low what"])


def test_number_of_listed_tokens(tokenizer, corpus):
    use = make_report(tokenizer, corpus).use()
    for list_tokens in (use.longest, use.most_frequent):
        assert list_tokens(3) == list_tokens()[:3]
        assert list_tokens(0) == ()
        assert len(list_tokens(10_000)) > 20
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="count must be at least 0, not -1"):
            list_tokens(-1)


def test_unknown_names_are_rejected(tokenizer):
    report = make_report(tokenizer, ["a"])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"no tokenizer 'x'; it has \['tokenizer'\]"):
        report.use("x")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"no kind of text 'x'; it has \['text'\]"):
        report.use(kind="x")
