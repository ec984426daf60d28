"""Tests of the `quick_` functions."""

import jax
import pytest
import tiktoken

import tokjax
from tests.support.huggingface_tokenizers import make_pair
from tests.support.rejections import rejects
from tests.support.sentencepiece_models import train_sentencepiece_models


def test_quick_tokenize(tokenizer):
    quick = tokjax.quick.quick_tokenize(tokenizer, "low é")
    result = tokjax.encode_result(tokenizer, "low é")
    assert quick.token_pieces == result.tokens
    assert quick.token_ids.tolist() == result.ids.tolist()
    assert quick.decoded_text == quick.tokenization_text == "low é"
    assert quick.offsets.tolist() == result.offsets.tolist()
    assert quick.attention_mask.tolist() == [1] * len(result)
    assert quick.special_tokens_mask.tolist() == [0] * (len(result) - 1) + [1]
    assert quick.token_type_ids.tolist() == [0] * len(result)
    assert quick.metadata.offsets_reference == "input_text"


def test_offsets_refer_to_the_view(tokenizer):
    qwen2 = tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary), pattern="qwen2")
    quick = tokjax.quick.quick_tokenize(qwen2, "e\u0301!")
    assert quick.tokenization_text == "é!"
    assert tokjax.offsets.validate_offsets_contract("é!", quick.offsets)


def test_quick_encode_batch(tokenizer):
    quick = tokjax.quick.quick_encode_batch(tokenizer, ["low", "low low"])
    assert list(quick.results) == [tokjax.encode_result(tokenizer, t) for t in ("low", "low low")]
    assert quick.sequence_lengths.tolist() == [2, 3]
    assert quick.metadata == quick.results.metadata
    assert quick.tokenization_texts == ("low", "low low")
    assert tokjax.quick.quick_encode_batch(tokenizer, []).sequence_lengths.tolist() == []
    with rejects(r"pass \[text\]"):
        tokjax.quick.quick_encode_batch(tokenizer, "low")


def test_quick_causal_lm_batch(tokenizer, plain_tokenizer):
    low, low_, eos, pad = (
        tokjax.token_to_id(tokenizer, t) for t in ("low", " low", "<|endoftext|>", "<|pad|>")
    )
    batch = tokjax.quick.quick_causal_lm_batch(tokenizer, ["low", "low low"])
    assert batch.ids.tolist() == [[low, eos, pad], [low, low_, eos]]
    assert batch.attention_mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.labels.tolist() == [[eos, -100, -100], [low_, eos, -100]]
    passed = tokjax.quick.quick_causal_lm_batch(tokenizer, ["low", "low low"], pad_id=7, ignore_index=-1)
    assert passed.ids[0, 2] == 7
    assert passed.labels.tolist() == [[eos, -1, -1], [low_, eos, -1]]
    only_eos = tokjax.byte_level_bpe(
        dict(tokenizer.vocabulary.ordinary), special_tokens={"</s>": 999}, eos_token="</s>"
    )
    safe = tokjax.quick.quick_causal_lm_batch(only_eos, ["low", "low low"])
    assert safe.ids[0].tolist()[1:] == [999, 999]
    assert safe.labels[0].tolist() == [999, -100, -100]
    with pytest.raises(
        tokjax.errors.MissingSpecialTokenError, match="neither a pad nor an eos token; pass pad_id=ID"
    ):
        tokjax.quick.quick_causal_lm_batch(plain_tokenizer, ["low", "low low"])
    assert tokjax.quick.quick_causal_lm_batch(tokenizer, []).labels.shape == (0, 0)


def test_quick_train_bundle(tmp_path, corpus):
    bundle = tokjax.quick.quick_train_bundle(corpus, vocab_size=300, directory=tmp_path / "new" / "bundle")
    assert bundle.tokenizer == tokjax.load_tokenizer(tmp_path / "new" / "bundle")
    assert bundle.tokenizer_file.parent == bundle.directory
    assert tokjax.decode(bundle.tokenizer, bundle.sample_ids) == bundle.sample_text
    assert bundle.stats.documents == len(corpus)
    by_path = tokjax.quick.quick_tokenize(bundle.directory, "low")
    assert (
        by_path.token_ids.tolist() == tokjax.quick.quick_tokenize(bundle.tokenizer, "low").token_ids.tolist()
    )
    assert tokjax.quick.quick_encode_batch(str(bundle.tokenizer_file), ["a"]).sequence_lengths.tolist() == [2]


def test_all_fields_of_a_causal_lm_batch(tokenizer):
    low, low_, eos, pad = (
        tokjax.token_to_id(tokenizer, t) for t in ("low", " low", "<|endoftext|>", "<|pad|>")
    )
    options = {"pad_side": "left", "multiple_of": 4, "return_offsets": True, "max_length": 3}
    quick = tokjax.quick.quick_causal_lm_batch(tokenizer, ["low", "low low low"], **options)
    assert quick.ids.tolist() == [[pad, pad, low, eos], [pad, low, low_, eos]]
    assert quick.attention_mask.tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert quick.labels.tolist() == [[-100, -100, eos, -100], [-100, low_, eos, -100]]
    assert quick.special_tokens_mask.tolist() == [[1, 1, 0, 1], [1, 0, 0, 1]]
    assert quick.token_type_ids.tolist() == [[0] * 4] * 2
    assert quick.offsets[1].tolist() == [[0, 0], [1, 4], [4, 8], [0, 0]]
    assert quick.sequence_lengths.tolist() == [2, 3]
    assert quick.tokenization_texts == ("low", "low low low")
    assert (quick.pad_id, quick.ignore_index) == (pad, -100)
    assert tokjax.quick.quick_causal_lm_batch(tokenizer, ["low"]).offsets is None
    count = jax.jit(lambda batch: (batch.labels >= 0).sum())
    assert count(quick.batch) == 3
    for batch in (quick, tokjax.quick.quick_encode_batch(tokenizer, ["low"] * 64)):
        assert len(repr(batch).splitlines()) < 8
    assert jax.tree.map(lambda a: a[:1], quick.batch).ids.shape == (1, 4)


def test_columns_can_be_omitted(tokenizer):
    quick = tokjax.quick.quick_tokenize(tokenizer, "low", return_offsets=False, return_masks=False)
    assert quick.token_pieces == ("low", "<|endoftext|>")
    assert {quick.offsets, quick.attention_mask, quick.token_type_ids, quick.special_tokens_mask} == {None}
    truncated = tokjax.quick.quick_tokenize(tokenizer, "low low", max_length=2, truncation_side="left")
    assert truncated.token_pieces == (" low", "<|endoftext|>")


def test_texts_that_are_already_views():
    wordpiece = tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "low"])
    assert tokjax.quick.quick_tokenize(wordpiece, "LOW").token_pieces == ("[CLS]", "low", "[SEP]")
    passed = tokjax.quick.quick_tokenize(wordpiece, "LOW", apply_tokenization_view=False)
    assert passed.token_pieces == ("[CLS]", "[UNK]", "[SEP]")
    assert passed.tokenization_text == "LOW"


def test_special_tokens_in_texts(tokenizer):
    text = "a<|endoftext|>"
    for call in (
        lambda **options: tokjax.quick.quick_tokenize(tokenizer, text, **options).token_ids,
        lambda **options: tokjax.quick.quick_encode_batch(tokenizer, [text], **options).results.ids,
        lambda **options: tokjax.quick.quick_causal_lm_batch(tokenizer, [text], **options).ids[0],
    ):
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match=r"disallowed_special=\(\)"):
            call()
        assert len(call(allowed_special={"<|endoftext|>"})) == 3
        assert len(call(disallowed_special=())) > 10


class TestTokenizerArguments:
    """All functions accept paths as `load_tokenizer` does, and tokenizer objects of other libraries."""

    def check_ids(self, passed, tokenizer, text="low lower", **options):
        expected = tokjax.encode(tokenizer, text).tolist()
        assert tokjax.quick.quick_tokenize(passed, text, **options).token_ids.tolist() == expected
        assert tokjax.quick.quick_encode_batch(passed, [text], **options).results[0].ids.tolist() == expected
        assert (
            tokjax.quick.quick_causal_lm_batch(passed, [text], pad_id=0, **options).ids[0].tolist()
            == expected
        )

    def test_files_and_directories(self, tmp_path, tokenizer):
        for directory, kind in (("hf", "huggingface"), ("gpt2", "gpt2")):
            (tmp_path / directory).mkdir()
            tokjax.formats.export_tokenizer(tokenizer, tmp_path / directory, kind)
            self.check_ids(tmp_path / directory, tokjax.load_tokenizer(tmp_path / directory))
        self.check_ids(str(tmp_path / "hf" / "tokenizer.json"), tokjax.load_tokenizer(tmp_path / "hf"))
        pair = [tmp_path / "gpt2" / "vocab.json", tmp_path / "gpt2" / "merges.txt"]
        self.check_ids(pair, tokjax.load_tokenizer(pair))
        (tmp_path / "words.txt").write_text("[UNK]\nlow\nlower\n")
        options = {"format": "wordpiece"}
        self.check_ids(
            tmp_path / "words.txt", tokjax.load_tokenizer(tmp_path / "words.txt", **options), **options
        )

    def test_objects_of_subclasses(self, tokenizer):
        ranks = {token: id_ for id_, token in tokenizer.vocabulary.bytes_by_id.items() if id_ < 256}

        class Custom(tiktoken.Encoding):
            pass

        custom = Custom("mine", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens={})
        assert tokjax.quick.quick_tokenize(custom, "ab").token_ids.tolist() == custom.encode("ab")
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError, match=r"pass tokjax.formats.from_tiktoken\(tokenizer\)"
        ):
            tokjax.encode(custom, "ab")

    def test_objects_of_other_libraries(self):
        huggingface_tokenizer, tokenizer = make_pair("GPT-2")
        self.check_ids(huggingface_tokenizer, tokenizer)
        sentence_piece = train_sentencepiece_models()["unigram"]
        plain = tokjax.formats.from_sentencepiece(sentence_piece.processor)
        self.check_ids(sentence_piece.processor, plain)
        tiktoken = pytest.importorskip("tiktoken")
        ranks = {bytes([i]): i for i in range(256)} | {b"lo": 256}
        encoding = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={})
        self.check_ids(encoding, tokjax.formats.from_tiktoken(encoding))

    def test_rejected_inputs(self, tokenizer):
        with rejects("format='gpt2' is for paths, not for ByteLevel"):
            tokjax.quick.quick_tokenize(tokenizer, "a", format="gpt2")
        with rejects("a pair of paths, a name or a tokenizer, not 5"):
            tokjax.quick.quick_tokenize(5, "a")
        with pytest.raises(FileNotFoundError):
            tokjax.quick.quick_tokenize("no/such/file", "a")
        with rejects("for many texts use quick_encode_batch"):
            tokjax.quick.quick_tokenize(tokenizer, ["a"])


@pytest.mark.parametrize("trainer", ["wordpiece", "word_level", "sentencepiece"])
def test_bundles_of_other_trainers(tmp_path, corpus, trainer):
    bundle = tokjax.quick.quick_train_bundle(
        corpus, vocab_size=200, directory=tmp_path / "bundle", trainer=trainer, sample="the low"
    )
    assert bundle.tokenizer == tokjax.load_tokenizer(bundle.directory)
    assert bundle.tokenizer_file in bundle.files
    assert bundle.sample_text == "the low"
    expected = tokjax.encode(bundle.tokenizer, "the low", add_special_tokens=False)
    assert bundle.sample_ids.tolist() == expected.tolist()
    with rejects("trainer must be 'bpe', .*, not 'unigram'"):
        tokjax.quick.quick_train_bundle(corpus, vocab_size=200, directory=tmp_path, trainer="unigram")
