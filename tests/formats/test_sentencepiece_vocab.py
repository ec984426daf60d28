"""Tests of lists of pieces and scores, which SentencePiece's trainer writes next to a model."""

import functools

import pytest
import sentencepiece
from hypothesis import given

import tokjax
from tests.conftest import CORPUS
from tests.support.sentencepiece_models import fuzz
from tokjax.core.utf8 import is_encodable

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError
# Texts whose characters the normalization changes: the pieces show if the trainer did not change them.
TEXTS = [*CORPUS, "½ ﬃ Ａ … ™ ㌔ 1 2 3 Hello World"]
MODELS = {
    "unigram": ({"vocab_size": 250}, {}),
    "bpe": ({"vocab_size": 300, "model_type": "bpe"}, {}),
    "bpe, bytes": ({"vocab_size": 500, "model_type": "bpe", "byte_fallback": True}, {}),
    "unigram, bytes": ({"vocab_size": 500, "byte_fallback": True}, {}),
    "identity": (
        {"vocab_size": 300, "model_type": "bpe", "normalization_rule_name": "identity"},
        {"normalizer": "identity"},
    ),
    "case folded": (
        {"vocab_size": 250, "model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf"},
        {"normalizer": "nmt_nfkc_cf"},
    ),
    "symbols": (
        {"vocab_size": 300, "model_type": "bpe", "user_defined_symbols": ["<u>"], "control_symbols": ["<c>"]},
        {"special_tokens": ["<c>"]},
    ),
    "other unknown piece": (
        {"vocab_size": 300, "model_type": "bpe", "unk_piece": "[UNK]", "pad_id": 3},
        {"unk_token": "[UNK]"},
    ),
    "char": ({"vocab_size": 200, "model_type": "char"}, {}),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("vocabularies")


@functools.cache
def train(name, directory, texts=tuple(TEXTS)):
    """Trains a model; returns the path of the list, without the model beside it, and the library's model."""
    path = directory / f"{name}.vocab"
    options, _ = MODELS[name]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.replace("\n", " ") for text in texts] * 3),
        model_prefix=str(directory / name),
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path.with_suffix(".model")))
    path.with_suffix(".model").unlink()
    return path, processor


@functools.cache
def load(name, directory):
    path, _ = train(name, directory)
    return tokjax.load_tokenizer(path, **MODELS[name][1])


@pytest.mark.parametrize("name", MODELS)
@given(text=fuzz.filter(lambda text: isinstance(text, str) and is_encodable(text) and "\x00" not in text))
def test_ids_equal_those_of_the_model(directory, name, text):
    _, processor = train(name, directory)
    tokenizer = load(name, directory)
    for each in (text, *TEXTS):
        ids = tokjax.encode(tokenizer, each, disallowed_special=())
        expected = processor.encode(each)
        if "unigram" in name and ids.tolist() != expected:  # a tie of rounded scores
            assert compute_score(processor, ids.tolist()) == pytest.approx(
                compute_score(processor, expected), rel=1e-5
            )
        else:
            assert ids.tolist() == expected
        assert tokjax.decode(tokenizer, expected) == processor.decode(expected)


@pytest.mark.parametrize("name", ["unigram", "bpe", "bpe, bytes"])
def test_scores_in_full_precision(directory, name, tmp_path):
    _, processor = train(name, directory)
    path = tmp_path / "tokens.vocab"
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor))]
    path.write_text("".join(f"{piece}\t{score}\n" for piece, score in pieces))
    assert "<unk>\t0.0\n" in path.read_text()
    assert tokjax.formats.detect_tokenizer_files(path).format == "sentencepiece_vocab"
    tokenizer = tokjax.load_tokenizer(path)
    assert tokenizer.model_type == name.partition(",")[0]
    for text in TEXTS:
        assert tokjax.encode(tokenizer, text).tolist() == processor.encode(text)


def compute_score(processor, ids):
    return sum(map(processor.get_score, ids))


@pytest.mark.parametrize("name", MODELS)
def test_pieces_equal_those_of_the_model(directory, name):
    _, processor = train(name, directory)
    tokenizer = load(name, directory)
    assert tokjax.vocab_size(tokenizer) == len(processor)
    for id_ in range(len(processor)):
        assert tokjax.id_to_token(tokenizer, id_) == processor.id_to_piece(id_)
        is_special = processor.is_control(id_) or processor.is_unknown(id_)
        assert (id_ in tokjax.special_tokens(tokenizer).values()) == is_special
    assert tokjax.unk_id(tokenizer) == processor.unk_id()
    assert tokjax.pad_id(tokenizer) == (None if processor.pad_id() < 0 else processor.pad_id())


def test_round_trips(directory, tmp_path):
    tokenizer = load("symbols", directory)
    assert tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path)) == tokenizer
    [model] = tokjax.formats.export_tokenizer(tokenizer, tmp_path / "spm.model", "sentencepiece")
    assert tokjax.load_tokenizer(model) == tokenizer
    with_bos = tokjax.load_tokenizer(train("bpe", directory)[0], bos_token="auto", eos_token="</s>")
    assert tokjax.tokenize(with_bos, "")[:: len(tokjax.tokenize(with_bos, "")) - 1] == ["<s>", "</s>"]


class TestAmbiguousLists:
    def load(self, directory, text, **options):
        (directory / "m.vocab").write_text(text, "utf-8")
        return tokjax.load_tokenizer(directory / "m.vocab", "sentencepiece_vocab", **options)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            (
                "identity",
                {},
                r"its piece '.*' does not occur in texts that are normalized .* pass normalizer=",
            ),
            ("case folded", {}, "no piece has an upper-case letter, .* pass normalizer='nmt_nfkc_cf' if"),
            ("symbols", {}, r"the pieces \['<c>', '<u>'\] have the score 0: .* pass special_tokens="),
            ("other unknown piece", {}, r"no line has the piece '<unk>' with the score 0; pass unk_token="),
        ],
    )
    def test_required_options(self, directory, name, options, message):
        with pytest.raises(FormatError, match=rf"{name}\.vocab: {message}"):
            tokjax.load_tokenizer(train(name, directory)[0], **options)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "<unk>\t0\n▁A\t-1.5\n▁b\t-2\n",
                "every piece begins with '▁', as in a model of whole words; pass",
            ),
            ("<unk>\t0\nA\t-1\nb\t-7\n", "its scores are integers, but not 0, -1, -2, ... as in a BPE model"),
            ("<unk>\t0\nA▁▁b\t-1.5\n", "the piece 'A▁▁b' shows that the model keeps runs of spaces"),
            ("<unk>\t0\nA\t-1.5\nAb▁\t-2.5\n", "its pieces have '▁' at the end of words"),
            (
                "<unk>\t0\nA\t1\n",
                r"line 2: expected a piece, a tab, and a score that is 0 or negative; got 'A",
            ),
            ("<unk>\t0\nA\n", r"line 2: expected a piece, a tab, and a score"),
            ("<unk>\t0\nA\tnan\n", r"line 2: expected a piece, a tab, and a score"),
            ("<unk>\t0\nA\t-inf\n", r"line 2: expected a piece, a tab, and a score"),
            ("<unk>\t0\nA\t-1.5\n\t-2\n", r"line 3: expected a piece, a tab, and a score"),
            ("<unk>\t0\nA\t-1.5\nA\t-2\n", r"line 3: duplicate of the piece 'A'"),
        ],
    )
    def test_damaged_or_unusual_lists(self, tmp_path, text, message):
        with pytest.raises(FormatError, match=rf"m\.vocab(: .*|, ){message}"):
            self.load(tmp_path, text)

    def test_model_type(self, tmp_path):
        text = "<unk>\t0\n▁Ab\t-1.5\n▁A\t-2.5\n▁\t-3.5\n"
        tokenizer = self.load(tmp_path, text, model_type="unigram")
        assert tokjax.tokenize(tokenizer, "Ab A") == ["▁Ab", "▁A"]
        assert tokenizer.model_type == "unigram"
        with pytest.raises(ArgumentError, match="model_type must be 'unigram' or 'bpe', not 'word'"):
            self.load(tmp_path, text, model_type="word")
        with pytest.raises(ArgumentError, match="normalizer must be 'nmt_nfkc' or .*, not 'nfc'"):
            self.load(tmp_path, text, normalizer="nfc")
        with pytest.raises(ArgumentError, match="special_tokens has '<x>', which is not a piece with the sc"):
            self.load(tmp_path, text, special_tokens=["<x>"])

    def test_options_do_not_apply_to_models(self, tmp_path):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_prefix=str(tmp_path / "m"), vocab_size=100, minloglevel=2
        )
        with pytest.raises(ArgumentError, match="the format 'sentencepiece' .* has no option 'normalizer'"):
            tokjax.load_tokenizer(tmp_path / "m.vocab", normalizer="identity")
