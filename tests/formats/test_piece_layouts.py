"""Tests of SentencePiece models whose pieces have other ids in transformers."""

import json

import pytest

import tokjax
from tests.support.sentencepiece_models import train_by_library
from tokjax.core.vocabulary import ROLES
from tokjax.formats.detection import list_candidates, select_files

FormatError = tokjax.errors.TokenizerFormatError
SIZE = 120
TEXT = "the lower the newest \u0416"
LANGUAGES = ["en_XX", "de_DE"]
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>"]
PEGASUS = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103))]
CLASSES = {  # class: its first tokens, pieces of the model that these replace, last tokens
    "XLMRobertaTokenizer": (FAIRSEQ, 3, ["<mask>"]),
    "XGLMTokenizer": (FAIRSEQ, 3, [f"<madeupword{i}>" for i in range(7)]),
    "MBart50Tokenizer": (FAIRSEQ, 3, [*LANGUAGES, "<mask>"]),
    "NllbTokenizerFast": (FAIRSEQ, 3, [*LANGUAGES, "<mask>"]),
    "CamembertTokenizer": (
        ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"],
        1,
        ["<mask>"],
    ),
    "PegasusTokenizer": (PEGASUS, 2, []),
    "DebertaV2Tokenizer": ([], 0, ["[MASK]"]),
    "LlamaTokenizer": ([], 0, []),
}
MODELS = {"PegasusTokenizer": "pegasus", "DebertaV2Tokenizer": "deberta"}


@pytest.fixture(scope="module")
def protos():
    fairseq = train_by_library(vocab_size=SIZE, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    return {
        "fairseq": fairseq,
        "pegasus": train_by_library(vocab_size=SIZE, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
        "deberta": train_by_library(
            vocab_size=SIZE, pad_id=-1, unk_piece="[UNK]", bos_piece="[CLS]", eos_piece="[SEP]"
        ),
    }


@pytest.fixture
def write(protos, tmp_path):
    def write(name, model="fairseq", **config):
        (tmp_path / "spiece.model").write_bytes(protos[model])
        config = {"tokenizer_class": name, **config}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return tmp_path

    return write


@pytest.mark.parametrize("name", CLASSES)
def test_ids(name, write, protos):
    first, num_replaced, last = CLASSES[name]
    model = MODELS.get(name, "fairseq")
    options = {"additional_special_tokens": LANGUAGES} if LANGUAGES[0] in last else {}
    tokenizer = tokjax.load_tokenizer(write(name, model, **options))
    plain = tokjax.sentencepiece(protos[model])
    pieces = [tokjax.id_to_token(plain, id_) for id_ in range(SIZE)]
    expected = [*first, *pieces[num_replaced:], *last]
    assert [tokjax.id_to_token(tokenizer, id_) for id_ in range(tokjax.vocab_size(tokenizer))] == expected
    result, reference = tokjax.encode_result(tokenizer, TEXT), tokjax.encode_result(plain, TEXT)
    assert tokjax.unk_id(tokenizer) in result.ids
    assert result.tokens == reference.tokens
    assert result.offsets.tolist() == reference.offsets.tolist()
    assert tokjax.decode(tokenizer, result.ids) == tokjax.decode(plain, reference.ids)
    assert tokjax.special_tokens(tokenizer).keys() >= {*first, *last}


@pytest.mark.parametrize("name", ["XLMRobertaTokenizer", "CamembertTokenizer", "PegasusTokenizer"])
def test_ids_equal_transformers(name, write):
    transformers = pytest.importorskip("transformers", minversion="5")
    directory = write(name, "pegasus" if name == "PegasusTokenizer" else "fairseq")
    tokenizer = tokjax.load_tokenizer(directory)
    if name != "PegasusTokenizer":  # transformers looks for another name
        (directory / "spiece.model").rename(directory / "sentencepiece.bpe.model")
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    vocabulary = {tokjax.id_to_token(tokenizer, id_): id_ for id_ in range(tokjax.vocab_size(tokenizer))}
    assert vocabulary == reference.get_vocab()
    ids = reference(TEXT, add_special_tokens=False)["input_ids"]
    assert tokjax.encode(tokenizer, TEXT).tolist() == ids
    for role in ROLES:
        assert getattr(tokjax, f"{role}_id")(tokenizer) == getattr(reference, f"{role}_token_id")


def test_class_of_the_model_type(write):
    directory = write(None)
    (directory / "config.json").write_text('{"model_type": "xlm-roberta"}')
    assert tokjax.vocab_size(tokjax.load_tokenizer(directory)) == SIZE + 2
    present = ["spiece.model", "config.json", "README.md"]
    assert select_files(present, None, "x") == ["config.json", "spiece.model"]
    assert "config.json" in list_candidates("spiece.model")


def test_added_tokens(write):
    tokens = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>", SIZE + 1: "<mask>", SIZE + 2: "<user>"}
    decoder = {id_: {"content": token, "special": True} for id_, token in tokens.items()}
    directory = write("XLMRobertaTokenizer", added_tokens_decoder=decoder)
    tokenizer = tokjax.load_tokenizer(directory)
    assert tokjax.special_tokens(tokenizer) == {token: id_ for id_, token in tokens.items()}
    [saved] = tokjax.formats.export_tokenizer(tokenizer, directory, "sentencepiece")
    saved.rename(directory / "spiece.model")
    assert tokjax.load_tokenizer(directory).vocabulary.special == tokenizer.vocabulary.special


def test_models_without_other_ids(write):
    tokenizer = tokjax.load_tokenizer(write("PegasusTokenizer", offset=0))
    assert tokjax.vocab_size(tokenizer) == SIZE


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("DebertaV2Tokenizer", {}, r"spiece\.model: has no piece '\[CLS\]', which DebertaV2Tokenizer needs"),
        ("GPTSw3Tokenizer", {}, "GPTSw3Tokenizer, which changes texts before the model encodes them"),
        ("RemBertTokenizer", {}, "RemBertTokenizer, which changes texts before the model encodes them"),
        (
            "M2M100Tokenizer",
            {},
            r"M2M100Tokenizer, which assigns other ids\. The ids of transformers are not",
        ),
        ("PegasusTokenizer", {"offset": 3}, "which with the offset 3 assigns other ids"),
        ("NllbTokenizer", {}, "adds codes of languages, which these files do not declare"),
        ("PegasusTokenizer", {}, r"needs other pieces: the first pieces are \['<unk>', '<s>'\]"),
        (
            "XLMRobertaTokenizer",
            {"added_tokens_decoder": {SIZE: {"content": "<mask>", "special": True}}},
            r"'<mask>' has the id 120, but in spiece\.model it has the id 121",
        ),
    ],
)
def test_other_ids(name, options, message, write):
    with pytest.raises(FormatError, match=message):
        tokjax.load_tokenizer(write(name, **options))
    with pytest.raises(FormatError, match=r"tokenizer\.json|sentencepiece\('.*spiece\.model'\)"):
        tokjax.load_tokenizer(write(name, **options))
