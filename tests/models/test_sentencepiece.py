"""Tests of SentencePiece tokenizers: equality with the library, spans, words, decoding and files."""

import pickle

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles.sentencepiece_spans import compute_piece_spans
from tests.support.sentencepiece_models import NAMES, fuzz, match_symbols, train_sentencepiece_models
from tests.support.variants import mark_slow_except
from tokjax.core.json_records import read_record, to_json_values
from tokjax.models import SentencePieceTokenizer, sentencepiece
from tokjax.models.sentencepiece_files import iter_fields

KINDS = ["unigram", "bpe with bytes", "suffixes", "plain spaces"]
any_kind = pytest.mark.parametrize("name", mark_slow_except(NAMES, KINDS))


@pytest.fixture(scope="module")
def models():
    return train_sentencepiece_models()


def encode_text(tokenizer, text, **options):
    options = match_symbols(tokenizer) | {"add_special_tokens": False} | options
    return tokjax.encode_result(tokenizer, text, **options)


def compute_expected_spans(name, tokenizer, text):
    mark = " " if name == "plain spaces" else "\u2581"
    prefix = name not in ("identity", "suffixes")
    spans = compute_piece_spans(tokenizer.processor, tokjax.offsets.to_utf8(text), mark=mark, prefix=prefix)
    max_stop = 0
    for start, stop in spans:  # clip the overlaps
        yield [max(start, max_stop), max_stop := max(stop, max_stop)]


@pytest.mark.parametrize("name", NAMES)
@given(text=fuzz)
def test_ids_and_spans_equal_the_library_and_the_oracle(models, name, text):
    tokenizer = models[name]
    expected = tokenizer.processor.encode(tokjax.offsets.to_utf8(text), out_type=int)
    result = encode_text(tokenizer, text)
    offsets = result.offsets
    assert result.ids.tolist() == expected
    options = match_symbols(tokenizer)
    assert tokjax.encode(tokenizer, text, **options, add_special_tokens=False).tolist() == expected
    ids_only = encode_text(tokenizer, text, return_offsets=False)
    assert ids_only.ids.tolist() == expected
    assert ids_only.offsets is None
    tokjax.offsets.assert_offsets_contract(text, offsets)
    assert (offsets - 1).tolist() == list(compute_expected_spans(name, tokenizer, text))
    assert tokjax.offsets.offsets_are_nonoverlapping(offsets)


@any_kind
@given(texts=st.lists(fuzz, max_size=5))
def test_batch_equals_single_texts(models, name, texts):
    tokenizer = models[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentencepiece, "_GROUP_BYTES", 16)
        batch = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=(), threads=3)
    assert list(batch) == [tokjax.encode_result(tokenizer, text, disallowed_special=()) for text in texts]


def test_byte_pieces_have_byte_spans(models):
    result = encode_text(models["bpe with bytes"], "𐍈 𐍈")
    assert result.tokens == ("▁", "<0xF0>", "<0x90>", "<0x8D>", "<0x88>") * 2
    assert result.offsets.tolist() == [[1, 1], *([k, k + 1] for k in range(1, 10))]
    assert result.word_ids.tolist() == [0] * 5 + [1] * 5
    assert result.metadata.offsets_reference == "input_text"
    assert result.metadata.normalizer == "nmt_nfkc"


def test_invalid_utf8(models):
    tokenizer = models["bpe"]
    result = encode_text(tokenizer, b"a\xff\xfeb")
    unknown = result.ids == tokjax.unk_id(tokenizer)
    assert result.offsets[unknown].tolist() == [[2, 4]]
    assert result.special_tokens_mask.tolist() == unknown.astype(int).tolist()
    by_bytes = encode_text(models["unigram with bytes"], b"\xff\xfe")
    assert by_bytes.tokens == ("▁", *("<0xEF>", "<0xBF>", "<0xBD>") * 2)
    assert by_bytes.offsets.tolist() == [[1, 1], [1, 2], *[[2, 2]] * 2, [2, 3], *[[3, 3]] * 2]
    assert encode_text(tokenizer, "a\ud800b") == encode_text(tokenizer, "a\ufffdb")
    assert encode_text(tokenizer, "\ud83d\ude42") == encode_text(tokenizer, "🙂")


def test_word_ids(models):
    def get_words(name, text):
        result = encode_text(models[name], text)
        forms_by_word = {}
        for token, word in zip(result.tokens, result.word_ids.tolist(), strict=True):
            forms_by_word[word] = forms_by_word.get(word, "") + token
        assert list(forms_by_word) == list(range(len(forms_by_word)))
        return list(forms_by_word.values())

    assert get_words("bpe", "the inner<call>  meaning") == ["▁the", "▁inner<call>", "▁meaning"]
    assert get_words("suffixes", "the inner meaning") == ["the▁", "inner▁", "meaning▁"]
    assert get_words("plain spaces", "the inner meaning") == ["<unk>the", "<unk>inner", "<unk>meaning"]
    assert get_words("identity", "the inner meaning") == ["the", "▁inner", "▁meaning"]


@pytest.mark.parametrize("name", NAMES)
@given(numbers=st.lists(st.lists(st.integers(0, 1000), max_size=12), max_size=4))
def test_decoding_equals_the_library(models, name, numbers):
    tokenizer = models[name]
    rows = [[number % tokjax.vocab_size(tokenizer) for number in row] for row in numbers]
    expected = [tokenizer.processor.decode(row, out_type=bytes) for row in rows]
    assert [tokjax.core.protocol.decode_bytes(tokenizer, row) for row in rows] == [
        text or b"" for text in expected
    ]
    assert tokjax.decode_batch(tokenizer, rows) == [text.decode() if text else "" for text in expected]
    is_skipped = tokenizer.vocabulary.is_skipped  # (symbols are text, also if they are special tokens)
    remaining = [[id_ for id_ in row if not is_skipped[id_]] for row in rows]
    assert tokjax.decode_batch(tokenizer, rows, skip_special_tokens=True) == [
        tokjax.decode(tokenizer, row) for row in remaining
    ]


def test_decoding_special_and_unknown_ids(models):
    tokenizer = models["all roles"]
    assert tokjax.decode(tokenizer, [0, 1, 2, 3]) == " \u2047 "
    assert tokjax.decode(tokenizer, [0, 1, 2, 3], skip_special_tokens=True) == ""
    assert tokjax.decode_batch(tokenizer, []) == []
    with pytest.raises(tokjax.errors.UnknownTokenError, match="the vocabulary has no id 100000"):
        tokjax.decode(tokenizer, [100_000])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="decode takes the ids of one text"):
        tokjax.decode(tokenizer, [[1], [2]])


def test_tokenization_view_is_the_text(models):
    tokenizer, text = models["unigram"], "ﬁve½  e\u0301"
    view = tokjax.tokenization_view(tokenizer, text)
    assert view == text
    assert tokjax.encode_result(tokenizer, view, assume_normalized=True) == tokjax.encode_result(
        tokenizer, text
    )
    offsets = tokjax.encode_result(tokenizer, text).offsets
    assert tokjax.map_offsets_to_input(tokenizer, text, offsets).tolist() == offsets.tolist()


def test_special_tokens_only_on_request(models):
    proto = models["all roles"].model_proto
    assert tokjax.encode_result(models["all roles"], "low").ids.tolist() == models[
        "all roles"
    ].processor.encode("low")
    roles = [role(models["all roles"]) for role in (tokjax.bos_id, tokjax.eos_id, tokjax.pad_id)]
    assert roles == [1, 2, 3]  # they are declared, but not inserted
    with_bos_and_eos = tokjax.sentencepiece(proto, bos_token="auto", eos_token="</s>", pad_token=None)
    result = tokjax.encode_result(with_bos_and_eos, "low")
    assert (result.tokens[0], result.tokens[-1]) == ("<s>", "</s>")
    assert result.offsets[[0, -1]].tolist() == [[0, 0], [0, 0]]
    assert tokjax.pad_id(with_bos_and_eos) is None
    without_bos = tokjax.sentencepiece(models["unigram"].model_proto, bos_token="auto")
    assert without_bos.vocabulary.roles == {"eos": "</s>", "unk": "<unk>"}
    with pytest.raises(
        tokjax.errors.InvalidArgumentError,
        match=r"eos_token is '<eos>', which is not a control piece of the model; it has \['<unk>', '<s>', ",
    ):
        tokjax.sentencepiece(proto, eos_token="<eos>")


def test_special_tokens_in_texts(models):
    tokenizer, text = models["all roles"], "é</s>low"
    with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="'</s>' at character 1"):
        tokjax.encode_result(tokenizer, text)
    result = tokjax.encode_result(tokenizer, text, allowed_special="all")
    position = result.tokens.index("</s>")
    assert result.offsets[position].tolist() == [3, 7]
    assert result.special_tokens_mask[position] == 1
    encode = tokenizer.processor.encode
    assert result.ids.tolist() == [*encode("é"), 2, *encode("low")]
    assert result.offsets[-1, 1] == 10
    assert 2 not in encode_text(tokenizer, text).ids


def test_symbols_that_look_like_control_tokens_are_special(models):
    tokenizer = models["bpe"]
    call = tokjax.token_to_id(tokenizer, "<call>")
    encoders = (
        tokjax.encode,
        lambda *args, **options: tokjax.encode_batch_result(*args, **options).ragged.ids,
        lambda *args, **options: tokjax.models.sample_encode(*args, alpha=0.5, seed=1, **options).ids,
    )
    for text, repeats in (("low<call>low½a", 1), ("＜call＞ ½a", 1), ("low<call>low½a", 10_000)):
        for i, encode in enumerate(encoders[: 3 if repeats == 1 else 2]):
            given = [text * repeats] if i == 1 else text * repeats
            if "<" in text:
                with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="holds .* '<call>'"):
                    encode(tokenizer, given)
            ordinary = encode(tokenizer, given, disallowed_special=())
            assert call not in ordinary
            assert tokjax.token_to_id(tokenizer, "½a") in ordinary
            assert (encode(tokenizer, given, allowed_special="all") == call).sum() == repeats
    ids = tokjax.encode(tokenizer, "low<call>", allowed_special={"<call>"}, add_special_tokens=False)
    for skip in (False, True):  # as the library, which does not skip symbols
        assert tokjax.decode(tokenizer, ids, skip_special_tokens=skip) == "low<call>"


def test_vocabulary(models):
    tokenizer = models["unigram with bytes"]
    assert dict(tokjax.special_tokens(tokenizer)) == {"<unk>": 0, "</s>": 1, "<call>": 2}
    assert tokjax.id_to_bytes(tokenizer, tokjax.token_to_id(tokenizer, "<call>")) == b"<call>"
    assert tokjax.id_to_bytes(tokenizer, tokjax.token_to_id(tokenizer, "<0x41>")) == b"<0x41>"
    size = tokjax.vocab_size(tokenizer)
    assert [tokjax.id_to_token(tokenizer, i) for i in range(size)] == tokenizer.processor.id_to_piece(
        list(range(size))
    )
    assert repr(tokenizer) == (
        f"SentencePieceTokenizer(vocab_size={size}, model_type='unigram', normalization='nmt_nfkc', "
        "special_tokens={'<unk>': 0, '</s>': 1, '<call>': 2})"
    )
    assert {name: model.model_type for name, model in models.items()}["word"] == "word"


@any_kind
def test_equality_of_copies(models, name, tmp_path):
    tokenizer = models[name]
    path = tmp_path / "spm.model"
    path.write_bytes(tokenizer.model_proto)
    roles = {"eos_token": "auto" if tokenizer.vocabulary.template_token_ids[1] else None}
    for restored in (
        pickle.loads(pickle.dumps(tokenizer)),
        tokjax.sentencepiece(path, **roles),
        tokjax.sentencepiece(str(path), **roles),
        tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path)),
    ):
        assert restored == tokenizer
        assert hash(restored) == hash(tokenizer)
        assert tokjax.fingerprint(restored) == tokjax.fingerprint(tokenizer)
    other = tokjax.sentencepiece(path, eos_token="auto", bos_token="<unk>")
    assert other != tokenizer
    assert tokjax.fingerprint(other) != tokjax.fingerprint(tokenizer)


def test_truncated_file(models, tmp_path):
    proto, path = models["all roles"].model_proto, tmp_path / "cut.model"
    for size in [
        0,
        1,
        2,
        5,
        100,
        *range(300, len(proto), 3997),
        *range(len(proto) - 200, len(proto) - 2, 29),
    ]:
        path.write_bytes(proto[:size])
        with pytest.raises(
            tokjax.errors.TokenizerFormatError, match="not a SentencePiece model, or truncated|is empty"
        ) as error:
            tokjax.sentencepiece(path)
        assert str(error.value).startswith(f"{path}: ")
    with pytest.raises(FileNotFoundError):
        tokjax.sentencepiece(tmp_path / "absent.model")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\x80\x04K\x01.", b"\xff" * 64, b"PK\x03\x04", "é".encode()]
)
def test_files_of_other_formats_are_rejected(content):
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match=f"the model of {len(content)} bytes: not a Sentence"
    ):
        tokjax.sentencepiece(content)


def test_invalid_model(models):
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"pass processor.serialized_model_proto\(\)"
    ):
        tokjax.sentencepiece(models["bpe"].processor)


def test_invalid_tokenizer_json(models):
    values = to_json_values(models["bpe"])
    with pytest.raises(ValueError, match="base64"):
        read_record(SentencePieceTokenizer, values | {"model_proto": "no base64!"})
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="eos_token is 'x'"):
        read_record(SentencePieceTokenizer, values | {"roles": {"eos": "x"}})


@given(data=st.binary(max_size=40))
def test_messages_are_parsed_or_rejected(data):
    try:
        fields = list(iter_fields(data))
    except ValueError:
        return
    assert all(isinstance(value, (int, bytes)) for _, value in fields)
