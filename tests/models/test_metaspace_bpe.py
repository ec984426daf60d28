"""Tests of BPE with byte fallback: equality with Hugging Face's tokenizers and with sentencepiece."""

import io
import json
from functools import lru_cache

import pytest
import sentencepiece
from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer

import tokjax
from tests.conftest import CORPUS
from tests.support.span_checks import assert_spans_agree
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.bpe import chunks, pre_tokenizers
from tokjax.bpe.array_engine import ArrayEngine
from tokjax.bpe.pre_tokenizers import AdjacencyPreTokenizer
from tokjax.core.utf8 import is_encodable, to_utf8
from tokjax.formats.huggingface.tokenizer_json import build_tokenizer_json

BYTE_FORMS = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = "▁abé日本中🙂\n"


@st.composite
def draw_tokenizers(draw):
    """Draws tokenizers with arbitrary merges in arbitrary order; several merges may make the same token."""
    tokens = list(LETTERS)
    merges = []
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if len(left + right) <= 8 and (left, right) not in merges:
            merges.append((left, right))
            tokens.append(left + right)
    prefix, split_words = draw(
        st.sampled_from(
            [
                ("always", False),
                ("missing", False),
                ("missing", True),
                ("first", True),
                (None, False),
                (None, True),
            ]
        )
    )
    return tokjax.metaspace_bpe(
        {token: id_ for id_, token in enumerate(dict.fromkeys([*BYTE_FORMS, *tokens]))},
        draw(st.permutations(merges)) if draw(st.booleans()) else merges,
        add_prefix_space=prefix,
        split_words=split_words,
        special_tokens={"<s>": 1000, "</s>": 1001},
        bos_token="<s>",
        added_tokens=["ab"] if "ab" in tokens and draw(st.booleans()) else [],
    )


texts = st.lists(
    st.text(LETTERS + "  cü語", max_size=30) | st.sampled_from(["<s>", "  ", "ababab", "日本日本"]),
    max_size=6,
).map("".join)


@given(ours=draw_tokenizers(), drawn_texts=st.lists(texts | hard_texts, min_size=1, max_size=6))
def test_ids_offsets_and_decoding_equal_the_library(ours, drawn_texts):
    theirs = Tokenizer.from_str(json.dumps(build_tokenizer_json(ours)))
    drawn_texts = [text for text in drawn_texts if is_encodable(text)]
    # Repeat the texts until there is enough text for the array engine.
    copies = 1 + ArrayEngine.few_characters // (1 + sum(map(len, drawn_texts)))
    batch = tokjax.encode_batch_result(ours, drawn_texts * copies, allowed_special="all")
    for text, batch_result in zip(drawn_texts, batch[: len(drawn_texts)], strict=True):
        expected = theirs.encode(text)
        alone = tokjax.encode_result(ours, text, allowed_special="all")
        assert alone == batch_result
        assert alone.ids.tolist() == expected.ids
        assert_spans_agree(text, alone.offsets[1:].tolist(), expected.offsets[1:])
        ids = expected.ids[1:]
        assert tokjax.encode(ours, text, allowed_special="all", add_special_tokens=False).tolist() == ids
        assert tokjax.decode(ours, ids) == theirs.decode(ids, skip_special_tokens=False)
    restored = tokjax.formats.from_huggingface(theirs, bos_token="<s>")
    for name in ("merges", "add_prefix_space", "split_words", "strip"):
        assert getattr(restored, name) == getattr(ours, name)
    assert restored.vocabulary.ordinary == ours.vocabulary.ordinary


def test_leading_space_is_part_of_the_first_word():
    tokens = [*BYTE_FORMS, "▁", "a", "b", "▁a"]
    ids = {token: id_ for id_, token in enumerate(tokens)}
    ours = tokjax.metaspace_bpe(ids, [("▁", "a")])
    result = tokjax.encode_result(ours, " a b")
    assert result.tokens == ("▁", "▁a", "▁", "b")
    assert result.offsets.tolist() == [[1, 1], [1, 3], [3, 4], [4, 5]]
    assert result.word_ids.tolist() == [0, 0, 1, 1]


@lru_cache
def make_piece_models():
    """A SentencePiece model, and a `MetaspaceBPE` with its pieces and with all merges that make them."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=model,
        model_type="bpe",
        vocab_size=700,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = {theirs.id_to_piece(i): i for i in range(theirs.get_piece_size())}
    special = {name: ids.pop(name) for name in ("<unk>", "<s>", "</s>")}
    merges = [
        (form[:middle], form[middle:])
        for form in sorted(ids, key=lambda form: -theirs.get_score(ids[form]))
        for middle in range(1, len(form))
        if form not in BYTE_FORMS and form[:middle] in ids and form[middle:] in ids
    ]
    assert len({left + right for left, right in merges}) < len(merges)  # some tokens have several merges
    return theirs, tokjax.metaspace_bpe(ids, merges, special_tokens=special, unk_token="<unk>")


@given(text=hard_texts | st.sampled_from(CORPUS) | st.permutations(CORPUS).map(" ".join))
def test_ids_equal_sentencepiece(text):
    theirs, ours = make_piece_models()
    assert tokjax.encode(ours, text).tolist() == theirs.encode(text)


@given(text=byte_strings | st.text(), options=st.sampled_from([{}, {"add_prefix_space": None}]))
@example(text=b"\xe6\x97", options={})
@example(text=b"a\xe6\x97\xa5\xe6", options={})
@example(text="a\ud83d\ude42\ud83d", options={})
def test_byte_round_trip(text, options):
    merges = [("日", "本"), ("▁", "a")]
    tokens = {form: i for i, form in enumerate([*BYTE_FORMS, *LETTERS, "日本", "▁a"])}
    ours = tokjax.metaspace_bpe(tokens, merges, **options)
    plain = to_utf8(text).replace("▁".encode(), b" ")
    result = tokjax.encode_result(ours, text)
    assert tokjax.decode_bytes(ours, result.ids) == plain
    assert tokjax.offsets.validate_offsets_contract(text, result.offsets)
    spans = [tokjax.offsets.span_bytes(text, span) for span in result.offsets[bool(ours.add_prefix_space) :]]
    pieces = [tokjax.decode_bytes(ours, [id_]) for id_ in result.ids]
    if ours.add_prefix_space is None:
        assert [span.replace("▁".encode(), b" ") for span in spans] == pieces


@given(tokens=st.lists(st.text(LETTERS, min_size=1, max_size=4)), text=st.text(LETTERS + " xü", max_size=60))
@example(tokens=["ab"], text="xab ab")
def test_pretokens_end_at_token_boundaries(tokens, text):
    parts = ["é".encode()[:1], *map(str.encode, tokens)]  # a part of a character joins nothing
    pre_tokenizer = AdjacencyPreTokenizer(parts, split_before_spaces=False)
    pretokens = pre_tokenizer.split(text)
    assert "".join(pretokens) == text
    adjacent_pairs = {token[i : i + 2] for token in tokens for i in range(len(token) - 1)}
    boundaries = [left[-1] + right[0] for left, right in zip(pretokens, pretokens[1:], strict=False)]
    assert not adjacent_pairs.intersection(boundaries)
    inside = {pretoken[i : i + 2] for pretoken in pretokens for i in range(len(pretoken) - 1)}
    assert inside <= adjacent_pairs  # these few characters have no hash collisions
    stops = [sum(map(len, pretokens[:i])) for i in range(1, len(pretokens) + 1)]
    for target in range(1, len(text) + 1):
        assert pre_tokenizer.find_split(text, target) == min(stop for stop in stops if stop >= target)


def test_long_texts_are_split(monkeypatch):
    theirs, ours = make_piece_models()
    monkeypatch.setattr(ArrayEngine, "chunk_characters", 1000)
    monkeypatch.setattr(pre_tokenizers, "_LOOK_AHEAD", 10)
    text = "".join(CORPUS).replace(" ", "日") * 20 + "\U0001f642" * 5000 + "low lower " * 1000
    segments = chunks.as_segments([text])
    assert len(list(chunks.group_segments(segments, 1000, ours._engine.find_split))) > 10
    assert tokjax.encode(ours, text).tolist() == theirs.encode(text)
    pairs = "\ud83d\ude42" * 5000
    assert tokjax.encode(ours, pairs).tolist() == theirs.encode("\U0001f642" * 5000)


TOKENS = {form: i for i, form in enumerate([*BYTE_FORMS, "▁", "a", "b", "ab", "a b", "<0x61>b"])}


@pytest.mark.parametrize(
    ("tokens", "merges", "options", "message"),
    [
        (["▁"], [], {}, r"must contain '▁' and every byte as '<0xNN>'; '<0x00>' is missing \(255 in all"),
        (TOKENS, [("a", "c")], {}, r"merge 0 of 'a' and 'c': there is no token '(c|ac)'"),
        (TOKENS, [("a", "b"), ("a", "b")], {}, "merge 1 of 'a' and 'b': it is a duplicate"),
        (TOKENS, [("a b", "b")], {}, "merge 0 of 'a b' and 'b': 'a b' can't be part of a text; write '▁'"),
        (TOKENS, [("<0x61>", "b")], {}, r"merge 0 of '<0x61>' and 'b': '<0x61>b?' can't be part of a text"),
        (TOKENS, [], {"add_prefix_space": "yes"}, "must be 'always', 'missing', 'first' or None, not 'yes'"),
        (TOKENS, [], {"split_words": None}, "split_words must be True or False, not None"),
        (TOKENS, [], {"split_words": True}, "split_words=True needs add_prefix_space='missing', 'first'"),
        (TOKENS, ["a b"], {}, "merge 0 must be a pair of str, not 'a b'"),
        (TOKENS, [("a",)], {}, r"merge 0 must be a pair of str, not \('a',\)"),
        (TOKENS, None, {}, "merges must be a list of pairs of tokens, not None"),
        (
            TOKENS,
            [],
            {"added_tokens": "ab"},
            r"must be a list of names, not 'ab'; pass \['ab'\]",
        ),
        (TOKENS | {"\ud800": 999}, [], {}, r"token '\\ud800' has a lone surrogate"),
        (TOKENS, [], {"strip": 1}, "strip must be True, False or None, not 1"),
        (TOKENS, [], {"added_tokens": ["zz"]}, "the added token 'zz' has no id"),
    ],
)
def test_invalid_arguments_are_rejected(tokens, merges, options, message):
    tokens = tokens if isinstance(tokens, dict) else {form: i for i, form in enumerate(tokens)}
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.metaspace_bpe(tokens, merges, **options)


def test_export_of_duplicate_token_is_rejected(tmp_path):
    ours = tokjax.metaspace_bpe(TOKENS, [("a", "b")], special_tokens={"ab": 300})
    with pytest.raises(
        tokjax.errors.UnsupportedTokenizerError, match="can't represent 'ab': .* the token with id 259"
    ):
        tokjax.formats.export_tokenizer(ours, tmp_path, "huggingface")
