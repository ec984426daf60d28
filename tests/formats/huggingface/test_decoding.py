"""Decoding as a `tokenizer.json` defines it, and templates and merges that need care."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

import tokjax
from tests.formats.huggingface.test_random_definitions import Definition
from tests.support.huggingface_tokenizers import make_pair

DECODERS = {
    "none": None,
    "Fuse": decoders.Fuse(),
    "Metaspace": decoders.Metaspace(),
    "BPEDecoder": decoders.BPEDecoder(),
    "Replace": decoders.Replace("a", "x"),
    "Sequence": decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    "empty": decoders.Sequence([]),
    "ByteLevel": decoders.ByteLevel(),
    "WordPiece": decoders.WordPiece(),
}
OURS = {("word level", "none"), ("byte level", "ByteLevel"), ("WordPiece", "WordPiece")}


def byte_level(**options):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({form: id_ for id_, form in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    for name, part in options.items():
        setattr(made, name, part)
    return made


def words(model):
    made = Tokenizer(model)
    made.add_special_tokens(["[UNK]"])
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


MODELS = {
    "word level": lambda: words(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]")),
    "byte level": byte_level,
    "WordPiece": lambda: words(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")),
}


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("model", MODELS)
def test_the_decoder_is_that_of_the_file(model, decoder):
    parts = json.loads(MODELS[model]().to_str())
    found = DECODERS[decoder]
    parts["decoder"] = found and json.loads(found.__getstate__())
    ours, theirs = tokjax.formats.from_huggingface(Definition(parts)), Tokenizer.from_str(json.dumps(parts))
    assert isinstance(ours, tokjax.formats.HuggingFaceTokenizer) == ((model, decoder) not in OURS)
    for ids in ([1, 2], [0, 1, 2, 1], [2, 2, 1], []):
        for skip in (False, True):
            expected = theirs.decode(ids, skip_special_tokens=skip)
            assert tokjax.decode(ours, ids, skip_special_tokens=skip) == expected


@pytest.mark.parametrize("special", [True, False])
def test_an_added_token_with_the_id_of_a_byte(special):
    theirs = byte_level()
    theirs.add_tokens(
        [AddedToken("é", special=special, normalized=False), AddedToken("Ġ日", normalized=False)]
    )
    ours = tokjax.formats.from_huggingface(theirs)
    for text in ("飞机", "éa", "Ġ日é", "\xe9\x20"):
        ids = theirs.encode(text).ids
        assert tokjax.encode_result(ours, text, allowed_special="all").ids.tolist() == ids
        assert tokjax.decode(ours, ids) == theirs.decode(ids, skip_special_tokens=False)
    assert tokjax.decode(ours, theirs.encode("飞机").ids) == "飞机"


def test_added_tokens_of_the_model_with_the_same_bytes():
    parts = json.loads(byte_level().to_str())
    parts["model"]["vocab"][" "] = 256
    theirs = Tokenizer.from_str(json.dumps(parts))
    theirs.add_tokens([AddedToken("Ġ", normalized=False), AddedToken(" ", normalized=False)])
    ours = tokjax.formats.from_huggingface(theirs)
    ids = theirs.encode("a Ġ").ids
    assert tokjax.encode(ours, "a Ġ").tolist() == ids
    assert tokjax.decode(ours, ids) == theirs.decode(ids) == "a  "


def test_an_added_token_that_the_decoder_takes_for_bytes():
    theirs = byte_level()
    theirs.add_tokens(["Ġé"])
    ours = tokjax.formats.from_huggingface(theirs)
    assert ours.reason == "an added token is decoded to other bytes than its own"
    assert tokjax.decode_bytes(ours, [256]) == b" \xe9"
    assert tokjax.decode(ours, [256]) == theirs.decode([256])


def test_ids_that_the_library_panics_on():
    ours = tokjax.formats.from_huggingface(letters(decoder=decoders.Strip("A", 1, 2)))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="the tokenizers library can't decode these ids: "
    ):
        tokjax.decode(ours, [1])


def letters(**parts):
    made = Tokenizer(models.BPE({"[SEP]": 0, "A": 1, "C": 2}, []))
    made.add_special_tokens(["[SEP]"])
    for name, part in parts.items():
        setattr(made, name, part)
    return made


@pytest.mark.parametrize("name", ["GPT-2", "unigram"])
@pytest.mark.parametrize("texts", ["A", "B", "", "AA", "AAB"])
def test_a_template_of_pairs_that_lacks_a_text(name, texts, tmp_path):
    parts = json.loads(make_pair(name)[0].to_str())
    single, *others = [{"Sequence": {"id": text, "type_id": 0}} for text in ("A", *texts)]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    special = {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}
    template = {"type": "TemplateProcessing", "single": [single, end], "pair": [*others, end]}
    parts["post_processor"] = template | {"special_tokens": special}
    ours = tokjax.formats.from_huggingface(Definition(parts))
    again = tokjax.load_tokenizer(tokjax.save_tokenizer(ours, tmp_path))
    assert again == ours
    for tokenizer in (ours, again):
        assert tokjax.encode_result(tokenizer, "ab").ids[-1] == 1
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError, match=r"can't encode pairs: in its file the templ"
        ):
            tokjax.encode_result(tokenizer, "a", "b")
    [written] = tokjax.formats.export_tokenizer(ours, tmp_path, "huggingface")
    assert tokjax.encode_result(tokjax.load_tokenizer(written), "ab").ids[-1] == 1


def test_a_template_without_the_first_text():
    parts = json.loads(letters().to_str())
    parts["post_processor"] = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match="the single template .* must hold the text A once"
    ):
        tokjax.formats.from_huggingface(Definition(parts))


def test_inserted_tokens_after_two_processors():
    """There the library says that inserted tokens come from a text."""
    ends = processors.RobertaProcessing(("[SEP]", 0), ("[SEP]", 0), trim_offsets=False)
    theirs = letters(post_processor=processors.Sequence([ends, processors.ByteLevel(trim_offsets=False)]))
    result = tokjax.encode_result(tokjax.formats.from_huggingface(theirs), "AC")
    assert theirs.encode("AC").sequence_ids == [0, 0, 0, 0]
    assert result.sequence_ids.tolist() == [-1, 0, 0, -1]
    assert result.offsets.tolist() == [[0, 0], [1, 2], [2, 3], [0, 0]]


@pytest.mark.parametrize("merge", [["a", "é"], "a é"])
def test_merges_that_abort_the_library(merge):
    """It cuts `é` in two, and makes a string of the rest."""
    parts = json.loads(letters().to_str())
    parts["model"] |= {
        "continuing_subword_prefix": "#",
        "vocab": {"a": 0, "é": 1, "aé": 2},
        "merges": [merge],
    }
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match="does not begin with the continuing_subword_prefix '#'"
    ):
        tokjax.formats.from_huggingface(Definition(parts))


@pytest.mark.parametrize("add_prefix_space", [True, False])
def test_white_space_of_added_tokens_is_trimmed(add_prefix_space):
    names = {"\n": {}, "\u3000": {}, " x ": {}, "<l>": {"lstrip": True}, "<r>": {"rstrip": True}}
    for chosen in (["\n", "\u3000", " x "], ["<l>", "<r>"]):
        theirs = byte_level(post_processor=processors.ByteLevel(add_prefix_space=add_prefix_space))
        theirs.add_tokens([AddedToken(name, normalized=False, **names[name]) for name in chosen])
        ours = tokjax.formats.from_huggingface(theirs)
        assert isinstance(ours, tokjax.models.ByteLevelBPE)
        for text in (
            "a\nb",
            "\na",
            "a\u3000",
            "\u3000",
            "a x b",
            " x  x ",
            " <l> a",
            "a \n<l><r>  b",
            "<r> ",
        ):
            spans = tokjax.offsets.byte_to_char_spans(text, tokjax.encode_result(ours, text).offsets).tolist()
            assert spans == [list(span) for span in theirs.encode(text).offsets]
