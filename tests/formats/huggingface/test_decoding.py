"""Tests of decoders, templates, merges and added tokens of a `tokenizer.json`, against the library."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

import tokjax
from tests.support.huggingface_tokenizers import DefinitionStub, make_pair


def make_byte_level(**options):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({form: id_ for id_, form in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for name, part in options.items():
        setattr(tokenizer, name, part)
    return tokenizer


@pytest.mark.parametrize("special", [True, False])
def test_added_token_with_the_id_of_a_byte(special):
    reference = make_byte_level()
    reference.add_tokens(
        [AddedToken("é", special=special, normalized=False), AddedToken("Ġ日", normalized=False)]
    )
    tokenizer = tokjax.formats.from_huggingface(reference)
    for text in ("飞机", "éa", "Ġ日é", "\xe9\x20"):
        ids = reference.encode(text).ids
        assert tokjax.encode_result(tokenizer, text, allowed_special="all").ids.tolist() == ids
        assert tokjax.decode(tokenizer, ids) == reference.decode(ids, skip_special_tokens=False)
    assert tokjax.decode(tokenizer, reference.encode("飞机").ids) == "飞机"


def test_added_token_that_is_decoded_to_other_bytes():
    reference = make_byte_level()
    reference.add_tokens(["Ġé"])
    tokenizer = tokjax.formats.from_huggingface(reference)
    assert tokenizer.reason == "its decoder decodes an added token to bytes that differ from its text"
    assert tokjax.decode_bytes(tokenizer, [256]) == b" \xe9"
    assert tokjax.decode(tokenizer, [256]) == reference.decode([256])


def test_panic_of_the_library_is_an_error():
    tokenizer = tokjax.formats.from_huggingface(make_letter_tokenizer(decoder=decoders.Strip("A", 1, 2)))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="the tokenizers library can't decode these ids: "
    ):
        tokjax.decode(tokenizer, [1])


def make_letter_tokenizer(**parts):
    tokenizer = Tokenizer(models.BPE({"[SEP]": 0, "A": 1, "C": 2}, []))
    tokenizer.add_special_tokens(["[SEP]"])
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


@pytest.mark.parametrize("name", ["GPT-2", "unigram"])
@pytest.mark.parametrize("texts", ["A", "B", "", "AA", "AAB"])
def test_pair_template_without_one_of_the_texts(name, texts, tmp_path):
    parts = json.loads(make_pair(name)[0].to_str())
    single, *others = [{"Sequence": {"id": text, "type_id": 0}} for text in ("A", *texts)]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    special = {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}
    template = {"type": "TemplateProcessing", "single": [single, end], "pair": [*others, end]}
    parts["post_processor"] = template | {"special_tokens": special}
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(parts))
    again = tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path))
    assert again == tokenizer
    for candidate in (tokenizer, again):
        assert tokjax.encode_result(candidate, "ab").ids[-1] == 1
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError, match=r"can't encode pairs: in its file the templ"
        ):
            tokjax.encode_result(candidate, "a", "b")
    [path] = tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    assert tokjax.encode_result(tokjax.load_tokenizer(path), "ab").ids[-1] == 1


def test_single_template_without_its_text():
    parts = json.loads(make_letter_tokenizer().to_str())
    parts["post_processor"] = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match="the single template .* must contain text A once"
    ):
        tokjax.formats.from_huggingface(DefinitionStub(parts))


@pytest.mark.parametrize("merge", [["a", "é"], "a é"])
def test_merges_that_would_abort_the_process(merge):
    """The library splits `é` after one byte and creates a string from the rest."""
    parts = json.loads(make_letter_tokenizer().to_str())
    parts["model"] |= {
        "continuing_subword_prefix": "#",
        "vocab": {"a": 0, "é": 1, "aé": 2},
        "merges": [merge],
    }
    with pytest.raises(
        tokjax.errors.TokenizerFormatError, match="does not begin with the continuing_subword_prefix '#'"
    ):
        tokjax.formats.from_huggingface(DefinitionStub(parts))


@pytest.mark.parametrize("add_prefix_space", [True, False])
def test_offsets_of_added_tokens_are_trimmed(add_prefix_space):
    flags_by_name = {"\n": {}, "\u3000": {}, " x ": {}, "<l>": {"lstrip": True}, "<r>": {"rstrip": True}}
    for names in (["\n", "\u3000", " x "], ["<l>", "<r>"]):
        reference = make_byte_level(post_processor=processors.ByteLevel(add_prefix_space=add_prefix_space))
        reference.add_tokens([AddedToken(name, normalized=False, **flags_by_name[name]) for name in names])
        tokenizer = tokjax.formats.from_huggingface(reference)
        assert isinstance(tokenizer, tokjax.models.ByteLevelBPE)
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
            spans = tokjax.offsets.byte_to_char_spans(
                text, tokjax.encode_result(tokenizer, text).offsets
            ).tolist()
            assert spans == [list(span) for span in reference.encode(text).offsets]
