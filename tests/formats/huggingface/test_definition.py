"""Definitions of Hugging Face's library: which are ours to run, which are not and why, and damaged ones."""

import json
import pickle
from functools import lru_cache

import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import tokjax
from tests.support.huggingface_tokenizers import LIBRARY_TOKENIZERS, NATIVE_TOKENIZERS, make_pair


def change_definition(name, **changes):
    """A definition with some of its fields replaced."""
    parts = json.loads(make_pair(name)[0].to_str())
    for field, value in changes.items():
        if field == "model":
            parts["model"] |= value
        else:
            parts[field] = value
    return json.dumps(parts)


def make_added_token(content, id_, **flags):
    usual = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
    return usual | {"content": content, "id": id_} | flags


def add_token(name, *tokens):
    """A definition with more added tokens: what they are called, and flags."""
    parts = json.loads(make_pair(name)[0].to_str())
    size = len(parts["model"]["vocab"])
    more = [make_added_token(content, size + i, **flags) for i, (content, flags) in enumerate(tokens)]
    return json.dumps(parts | {"added_tokens": [*parts["added_tokens"], *more]})


SPACE_TO_METASPACE_STEPS = [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]


@pytest.mark.parametrize(
    "definition",
    [
        lambda: change_definition(
            "Llama 2", normalizer={"type": "Lowercase", "normalizers": SPACE_TO_METASPACE_STEPS}
        ),
        lambda: change_definition("GPT-2", normalizer={"type": "Lowercase", "normalizers": []}),
        lambda: change_definition("GPT-2", normalizer=["a"]),
        lambda: change_definition("GPT-2", post_processor={"type": "ByteLevel", "trim_offsets": None}),
        lambda: change_definition("Llama 2", pre_tokenizer=make_space_split("Removed", invert=True)),
        lambda: change_definition("Llama 2", decoder=make_decoder(start=True)),
        lambda: change_definition("Llama 2", decoder=None),
        lambda: change_definition("Llama 2", normalizer=SPACE_TO_METASPACE_STEPS[0]),
        lambda: change_definition("Mistral", pre_tokenizer=metaspace_step(prepend_scheme="sometimes")),
        lambda: change_definition("Mistral", pre_tokenizer=metaspace_step(replacement="_")),
        lambda: change_definition("Llama 2", model={"byte_fallback": "false"}),
        lambda: change_definition("Llama 2", model={"ignore_merges": True}),
        lambda: change_definition("Llama 2", model={"unk_token": "a"}),
        lambda: add_token("GPT-2", ("zz", {}), ("zz", {"special": True}), ("yy", {})),
        lambda: add_token("Mistral", (" ", {"lstrip": True, "rstrip": True})),
        lambda: make_template_piece("<0xab>"),
    ],
)
def test_unsupported_definitions(definition):
    """Each differs in one field from one that tokjax runs by itself."""
    definition = definition()
    try:
        theirs = Tokenizer.from_str(definition)
    except Exception:
        with pytest.raises(tokjax.errors.TokenizerFormatError, match="the tokenizers library can't read it"):
            tokjax.formats.from_huggingface(DefinitionStub(definition))
        return
    ours = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert isinstance(ours, tokjax.formats.HuggingFaceTokenizer)
    for text in ("AB ab", "a  b", "abzzab zz yy", "<0xab>"):
        result = tokjax.encode_result(ours, text, allowed_special="all")
        assert result.ids.tolist() == theirs.encode(text).ids


@pytest.mark.parametrize(
    "definition",
    [
        lambda: change_definition("Mistral", pre_tokenizer=metaspace_step(split=None)),
        lambda: change_definition("Llama 2", pre_tokenizer=make_space_split("Removed", invert=False)),
        lambda: change_definition(
            "GPT-2", post_processor={"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]}
        ),
    ],
)
def test_supported_definition_variants(definition):
    ours = tokjax.formats.from_huggingface(DefinitionStub(definition()))
    theirs = Tokenizer.from_str(definition())
    assert not isinstance(ours, tokjax.formats.HuggingFaceTokenizer)
    for text in ("AB ab", "a  b", "  "):
        assert tokjax.encode_result(ours, text).ids.tolist() == theirs.encode(text).ids


class DefinitionStub:
    """What gives a definition as it is; the library's own tokenizers write it anew."""

    def __init__(self, definition):
        self.definition = definition

    def to_str(self):
        return self.definition

    encode_batch = None


def make_space_split(behavior, invert):
    return {"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": invert}


def make_decoder(**options):
    steps = json.loads(make_pair("Llama 2")[0].to_str())["decoder"]
    steps["decoders"][-1] |= options
    return steps


def metaspace_step(**options):
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return step | options


def make_template_piece(form):
    vocab = json.loads(make_pair("Llama 2")[0].to_str())["model"]["vocab"]
    return change_definition("Llama 2", model={"vocab": vocab | {form: len(vocab)}})


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("", "is empty"),
        ("{", "not JSON, or cut short"),
        ("[" * 100_000, "not JSON, or cut short"),
        ("[]", "a JSON object is expected, not a list"),
        ('{"model": {"type": "BPE"}}', "the tokenizers library can't read it"),
        (
            '{"model": {"type": "WordLevel"}, "pre_tokenizer": {"type": "WhitespaceSplit"}}',
            "field 'vocab' is",
        ),
        ('{"model": {"type": "WordPiece", "type": 1}}', "the key 'type' stands twice in one object"),
        (change_definition("GPT-2", model={"vocab": {"a": 1, "b": 1}}), "id 1 is given to both 'a' and 'b'"),
        (
            change_definition("GPT-2", model={"vocab": {"a": -1}}),
            "the id of 'a' is -1; ids are integers from 0",
        ),
        (
            change_definition("GPT-2", model={"vocab": {"a": 2**31}}),
            "the id of 'a' is 2147483648; ids are integers",
        ),
        (change_definition("GPT-2", model={"vocab": {"a": 1.5}}), "the id of 'a' is 1.5; ids are"),
        (change_definition("GPT-2", model={"merges": ["a b c"]}), "the merge 'a b c' is no pair of tokens"),
        (change_definition("GPT-2", model={"merges": [["a", "日"]]}), "'日' is no token"),
        (
            change_definition("GPT-2", added_tokens=[{"id": 1}]),
            "an added token has the content None and the id 1",
        ),
        (
            change_definition("GPT-2", model={"merges": [["a", 1]]}),
            r"the merge \['a', 1\] is no pair of tokens",
        ),
        (
            change_definition("GPT-2", model={"merges": ["a b", ["a", "b"]]}),
            "some merges are lines, others pairs",
        ),
        (
            change_definition(
                "unigram", post_processor={"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 9999]}
            ),
            "it puts id 9999 around texts, which is no special token",
        ),
        (change_definition("GPT-2", version="2.0"), "version '2.0' is not known; '1.0' is"),
        (change_definition("unigram", model={"vocab": "a"}), "the tokenizers library can't read it"),
        (change_definition("unigram", model={"type": "Magic"}), "the tokenizers library can't read it"),
    ],
)
def test_damaged_files(definition, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(definition)
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message) as caught:
        tokjax.load_tokenizer(path, format="huggingface")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalizer": {"type": "NFD"}}, "its normaliser is NFD"),
        ({"model": {"dropout": 0.5}}, "it has dropout|its BPE model has dropout=0.5"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "its pre-tokenizer is Whitespace"),
        ({"pre_tokenizer": None}, "its pre-tokenizer is none"),
    ],
)
def test_why_it_runs_on_the_library(change, reason):
    theirs = Tokenizer.from_str(change_definition("GPT-2", **change))
    ours = tokjax.formats.from_huggingface(theirs)
    assert isinstance(ours, tokjax.formats.HuggingFaceTokenizer)
    assert ours.reason in reason.split("|")


def test_an_added_token_that_is_found_in_normalised_text():
    theirs = Tokenizer.from_str(make_pair("BERT")[0].to_str())
    theirs.add_tokens(["NewWord"])
    ours = tokjax.formats.from_huggingface(theirs)
    assert ours.reason == "the added token 'NewWord' is found in normalised text"
    assert (
        tokjax.encode(ours, "a newword", add_special_tokens=False).tolist()
        == theirs.encode("a newword", add_special_tokens=False).ids
    )


@pytest.mark.parametrize("name", ["GPT-2", "digits"])
@given(text=st.text(" a\n"))
def test_an_added_token_with_the_bytes_of_another(name, text):
    theirs, ours = make_with_duplicate(name)
    assert len(tokjax.get_vocabulary(ours).duplicate_token_ids) == 1
    encoding = theirs.encode(text, add_special_tokens=False)
    result = tokjax.encode_result(ours, text, add_special_tokens=False)
    assert result.ids.tolist() == encoding.ids
    assert tokjax.decode(ours, result.ids) == text
    assert pickle.loads(pickle.dumps(ours)) == ours


@lru_cache
def make_with_duplicate(name):
    """With an added token of two blanks, where a merge makes two blanks as well."""
    parts = json.loads((NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)[name]().to_str())
    model = parts["model"]
    forms = ["ĠĠ"] if "ĠĠ" not in model["vocab"] else []
    model["vocab"] |= {form: len(model["vocab"]) for form in forms}
    model["merges"] += [["Ġ", "Ġ"] for _ in forms]
    theirs = Tokenizer.from_str(json.dumps(parts))
    theirs.add_tokens([AddedToken("  ", normalized=False)])
    return theirs, tokjax.formats.from_huggingface(theirs)


def make_letter_tokenizer(**parts):
    """A tokenizer of four letters, to which other text is nothing."""
    made = Tokenizer(models.BPE({"[SEP]": 0, "A": 1, "C": 2, "G": 3, "T": 4}, []))
    made.add_special_tokens(["[SEP]"])
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def test_a_template_is_read_and_not_guessed():
    single, pair = "$A [SEP]", "$A [SEP] $B:1 [SEP]:1"
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("[SEP]", 0)])
    for theirs in (make_letter_tokenizer(), make_letter_tokenizer(post_processor=template)):
        ours = tokjax.formats.from_huggingface(theirs)
        assert isinstance(ours, tokjax.formats.HuggingFaceTokenizer)
        assert tokjax.encode_result(ours, "ACGT", "GG").ids.tolist() == theirs.encode("ACGT", "GG").ids
        assert tokjax.encode_result(ours, ["A", "CG"], is_pretokenized=True).ids.tolist()[:3] == [1, 2, 3]


def test_a_template_of_what_is_no_token():
    template = processors.TemplateProcessing(single="[X] $A", pair="$A $B", special_tokens=[("[X]", 777)])
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="it puts id 777 around texts"):
        tokjax.formats.from_huggingface(make_letter_tokenizer(post_processor=template))


def test_what_the_library_can_not_encode():
    theirs = Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]"))
    ours = tokjax.formats.from_huggingface(theirs)
    assert tokjax.encode(ours, "a").tolist() == [0]
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="the tokenizers library can't encode these texts"
    ):
        tokjax.encode(ours, "b")


def test_normalising_forges_no_special_token():
    theirs = Tokenizer(
        models.BPE({byte: i for i, byte in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    theirs.normalizer = normalizers.Lowercase()
    theirs.add_special_tokens([AddedToken("<|end|>", normalized=True)])
    ours = tokjax.formats.from_huggingface(theirs)
    with pytest.raises(
        tokjax.errors.DisallowedSpecialTokenError, match=r"becomes the special token '<\|end\|>'"
    ):
        tokjax.encode(ours, "<|END|>")
    assert 256 not in tokjax.encode(ours, "<|END|>", disallowed_special=())
    assert tokjax.encode(ours, "<|END|>", allowed_special="all").tolist() == [256]
