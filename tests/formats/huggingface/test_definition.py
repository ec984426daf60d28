"""Tests of definitions: those with a built-in tokenizer, those that need the library, and invalid ones."""

import json
import pickle
from functools import lru_cache

import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import tokjax
from tests.support.huggingface_tokenizers import (
    LIBRARY_TOKENIZERS,
    NATIVE_TOKENIZERS,
    DefinitionStub,
    make_pair,
)


def change_definition(name, **changes):
    """Returns a definition with some fields replaced, as JSON text."""
    parts = json.loads(make_pair(name)[0].to_str())
    for field, value in changes.items():
        if field == "model":
            parts["model"] |= value
        else:
            parts[field] = value
    return json.dumps(parts)


def make_added_token(content, id_, **flags):
    defaults = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
    return defaults | {"content": content, "id": id_} | flags


def add_tokens(name, *tokens):
    """Returns a definition with additional added tokens, given as pairs of a name and flags."""
    parts = json.loads(make_pair(name)[0].to_str())
    size = len(parts["model"]["vocab"])
    additional = [make_added_token(content, size + i, **flags) for i, (content, flags) in enumerate(tokens)]
    return json.dumps(parts | {"added_tokens": [*parts["added_tokens"], *additional]})


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
        lambda: change_definition("GPT-2", decoder=["a"]),
        lambda: change_definition("GPT-2", post_processor={"type": "ByteLevel", "trim_offsets": None}),
        lambda: change_definition("Llama 2", pre_tokenizer=make_space_split("Removed", invert=True)),
        lambda: change_definition("Llama 2", decoder=make_decoder(start=True)),
        lambda: change_definition("Llama 2", decoder=None),
        lambda: change_definition("Llama 2", normalizer=SPACE_TO_METASPACE_STEPS[0]),
        lambda: change_definition("Mistral", pre_tokenizer=make_metaspace_step(prepend_scheme="sometimes")),
        lambda: change_definition("Mistral", pre_tokenizer=make_metaspace_step(replacement="_")),
        lambda: change_definition("Llama 2", model={"byte_fallback": "false"}),
        lambda: change_definition("Llama 2", model={"ignore_merges": True}),
        lambda: change_definition("Llama 2", model={"unk_token": "none"}),
        lambda: add_tokens("GPT-2", ("zz", {}), ("zz", {"special": True}), ("yy", {})),
        lambda: add_tokens("Mistral", (" ", {"lstrip": True, "rstrip": True})),
        lambda: add_piece("<0xab>"),
    ],
)
def test_definitions_that_run_on_the_library(definition):
    """Each differs in one field from a definition with a built-in tokenizer."""
    definition = definition()
    try:
        reference = Tokenizer.from_str(definition)
    except Exception:
        with pytest.raises(tokjax.errors.TokenizerFormatError, match="the tokenizers library can't read it"):
            tokjax.formats.from_huggingface(DefinitionStub(definition))
        return
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
    for text in ("AB ab", "a  b", "abzzab zz yy", "<0xab>"):
        result = tokjax.encode_result(tokenizer, text, allowed_special="all")
        assert result.ids.tolist() == reference.encode(text).ids
        expected = reference.decode(result.ids.tolist(), skip_special_tokens=False)
        assert tokjax.decode(tokenizer, result.ids) == expected


@pytest.mark.parametrize(
    "definition",
    [
        lambda: change_definition("Mistral", pre_tokenizer=make_metaspace_step(split=None)),
        lambda: change_definition("Llama 2", pre_tokenizer=make_space_split("Removed", invert=False)),
        lambda: change_definition(
            "GPT-2", post_processor={"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]}
        ),
    ],
)
def test_definition_variants_with_a_built_in_tokenizer(definition):
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition()))
    reference = Tokenizer.from_str(definition())
    assert not isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
    for text in ("AB ab", "a  b", "  "):
        assert tokjax.encode_result(tokenizer, text).ids.tolist() == reference.encode(text).ids


def make_space_split(behavior, invert):
    return {"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": invert}


def make_decoder(**options):
    steps = json.loads(make_pair("Llama 2")[0].to_str())["decoder"]
    steps["decoders"][-1] |= options
    return steps


def make_metaspace_step(**options):
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return step | options


def add_piece(form):
    vocab = json.loads(make_pair("Llama 2")[0].to_str())["model"]["vocab"]
    return change_definition("Llama 2", model={"vocab": vocab | {form: len(vocab)}})


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("", "is empty"),
        ("{", "not JSON, or truncated"),
        ("[" * 100_000, "not JSON, or truncated"),
        ("[]", "expected a JSON object, got a list"),
        ('{"model": {"type": "BPE"}}', "the tokenizers library can't read it"),
        (
            '{"model": {"type": "WordLevel"}, "pre_tokenizer": {"type": "WhitespaceSplit"}}',
            "field 'vocab' is",
        ),
        ('{"model": {"type": "WordPiece", "type": 1}}', "duplicate key 'type' in one object"),
        (change_definition("GPT-2", model={"vocab": {"a": 1, "b": 1}}), "id 1 is given to both 'a' and 'b'"),
        (change_definition("GPT-2", model={"vocab": {"a": 2**31}}), "the id of 'a' is 2147483648; ids are"),
        (
            change_definition("GPT-2", model={"merges": ["a b c"]}),
            "the merge 'a b c' is not a pair of tokens that makes a token",
        ),
        (
            change_definition("GPT-2", added_tokens=[{"id": 1}]),
            "an added token has the content None and the id 1",
        ),
        (change_definition("GPT-2", added_tokens=[{"content": ["a"]}]), "the values are invalid: unhashable"),
        (
            change_definition(
                "unigram", post_processor={"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 9999]}
            ),
            "its template inserts id 9999, which is not that of an added token",
        ),
        (
            change_definition(
                "GPT-2", post_processor={"type": "BertProcessing", "sep": ["x"], "cls": ["y", 2]}
            ),
            r"'sep' of its post-processor is \['x'\]; expected a list of a token and its id",
        ),
        (change_definition("GPT-2", version="2.0"), "unknown version '2.0'; supported is '1.0'"),
        (change_definition("unigram", model={"vocab": "a"}), "the values are invalid: not enough values"),
        (change_definition("unigram", model={"type": "Magic"}), "the tokenizers library can't read it"),
    ],
)
def test_invalid_files(definition, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(definition)
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=message) as caught:
        tokjax.load_tokenizer(path, format="huggingface")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalizer": {"type": "NFD"}}, "its normalizer is NFD"),
        ({"model": {"dropout": 0.5}}, "it has dropout|its BPE model has dropout=0.5"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "its pre-tokenizer is Whitespace"),
        ({"pre_tokenizer": None}, "its pre-tokenizer is none"),
    ],
)
def test_reason_for_running_on_the_library(change, reason):
    reference = Tokenizer.from_str(change_definition("GPT-2", **change))
    tokenizer = tokjax.formats.from_huggingface(reference)
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
    assert tokenizer.reason in reason.split("|")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": {"fuse_unk": True}}, "its BPE model of words has fuse_unk=true"),
        ({"model": {"end_of_word_suffix": "$"}}, "its BPE model has end_of_word_suffix='$'"),
        ({"model": {"unk_token": None}}, "its unknown token None is not a special token of its vocabulary"),
        ({"decoder": {"type": "Fuse"}}, "its decoder is Fuse"),
        ({"decoder": {"type": "BPEDecoder", "suffix": "@"}}, "its decoder is BPEDecoder with another suffix"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "its pre-tokenizer is Whitespace"),
        (
            {"model": {"vocab": ["a", "b", "ab", "abb"], "merges": [["ab", "b"], ["a", "b"]]}},
            "a token is used before the last merge that makes it",
        ),
        ({"model": {"vocab": ["a</w>a"], "merges": []}}, "its token 'a</w>a' has '</w>' before its end"),
        ({"added_tokens": "é"}, "text can become the added token 'é'"),
    ],
)
def test_reason_for_running_word_bpe_on_the_library(change, reason):
    parts = json.loads(make_pair("OpenAI GPT")[0].to_str())
    model = parts["model"] | change.pop("model", {}) if "model" in change else parts["model"]
    if isinstance(model["vocab"], list):
        tokens = ["<s>", "</s>", "<pad>", "<mask>", "<unk>", *model["vocab"]]
        model["vocab"] = {token: id_ for id_, token in enumerate(tokens)}
    if isinstance(change.get("added_tokens"), str):
        name = change.pop("added_tokens")
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        parts["added_tokens"].append({"id": len(model["vocab"]), "content": name, **flags})
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(parts | change | {"model": model}))
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
    assert tokenizer.reason.partition("; pass")[0] == reason


@given(
    names=st.lists(st.text("日本語", min_size=1, max_size=3), min_size=2, max_size=4, unique=True),
    num_normalized=st.integers(1, 3),
    text=st.text("日本語a", max_size=12),
)
def test_added_tokens_that_are_matched_in_two_passes(names, num_normalized, text):
    tokens = [(name, {"normalized": i < num_normalized}) for i, name in enumerate(names)]
    definition = add_tokens("GPT-2", *tokens)
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    is_ambiguous = any(
        other in name or any(name.endswith(other[:length]) for length in range(1, min(len(name), len(other))))
        for name in names[:num_normalized]
        for other in names[num_normalized:]
    )
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer) == is_ambiguous
    if is_ambiguous:
        assert tokenizer.reason.endswith("can overlap")
    assert tokjax.encode(tokenizer, text).tolist() == Tokenizer.from_str(definition).encode(text).ids


@given(
    flags=st.lists(st.fixed_dictionaries(dict.fromkeys(("normalized", "lstrip", "rstrip"), st.booleans()))),
    text=st.lists(st.sampled_from([" ", "  ", "\n", "a", "<0>", "<1>", "<2>"]), max_size=12).map("".join),
)
def test_added_tokens_that_include_whitespace_in_two_passes(flags, text):
    definition = add_tokens("GPT-2", *((f"<{i}>", token_flags) for i, token_flags in enumerate(flags[:3])))
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert isinstance(tokenizer, tokjax.models.ByteLevelBPE)
    assert tokjax.encode(tokenizer, text).tolist() == Tokenizer.from_str(definition).encode(text).ids


@pytest.mark.parametrize("flag", ["add_prefix_space", "trim_offsets"])
def test_roberta_processing_without_a_flag(flag):
    """The library reads it as `BertProcessing`."""
    reference = Tokenizer.from_str(make_pair("GPT-2")[0].to_str())
    reference.add_special_tokens(["<turn>"])
    parts = json.loads(reference.to_str())
    processor = {"type": "RobertaProcessing", "add_prefix_space": True, "trim_offsets": True}
    del processor[flag]
    token = ["<turn>", reference.token_to_id("<turn>")]
    definition = json.dumps(parts | {"post_processor": processor | {"sep": token, "cls": token}})
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    expected = Tokenizer.from_str(definition).encode("low", " low")
    result = tokjax.encode_result(tokenizer, "low", " low")
    assert result.ids.tolist() == expected.ids
    assert result.token_type_ids.tolist() == expected.type_ids
    assert result.offsets[result.sequence_ids == 1].min() == 1  # the space is not trimmed


@pytest.mark.parametrize(
    ("character", "is_builtin"), [("\t", True), ("A", True), ("é", False), (None, False)]
)
def test_vocabulary_without_a_byte_token(character, is_builtin):
    """If an ASCII character is a token, a text never needs its byte token."""
    parts = json.loads(make_pair("Llama 2")[0].to_str())
    vocab = parts["model"]["vocab"]
    form = f"<0x{ord(character or 'A'):02X}>"
    id_ = vocab.pop(form)
    vocab.pop(character, None)
    vocab["unused" if character is None else character] = id_
    definition = json.dumps(parts)
    tokenizer, reference = (
        tokjax.formats.from_huggingface(DefinitionStub(definition)),
        Tokenizer.from_str(definition),
    )
    assert isinstance(tokenizer, tokjax.models.MetaspaceBPE) == is_builtin
    for text in ("\tA\t", "é A", "日\x00\t"):
        ids = tokjax.encode(tokenizer, text).tolist()
        assert ids == reference.encode(text).ids
        assert tokjax.decode(tokenizer, ids, skip_special_tokens=True) == reference.decode(ids)


def test_special_token_that_normalization_makes():
    reference = Tokenizer.from_str(make_pair("BERT")[0].to_str())
    form = next(form for form in sorted(reference.get_vocab()) if form.isalpha() and len(form) > 1)
    reference.add_special_tokens([form])
    tokenizer = tokjax.formats.from_huggingface(reference)
    assert tokenizer.reason == f"text can become the special token {form!r}"
    ids = tokjax.encode(tokenizer, form.upper(), add_special_tokens=False, allowed_special="all")
    assert ids.tolist() == reference.encode(form.upper(), add_special_tokens=False).ids
    with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="becomes the special token"):
        tokjax.encode(tokenizer, form.upper())


def test_unknown_token_without_the_role():
    reference = Tokenizer.from_str(make_pair("unsplit unigram")[0].to_str())
    unknown = reference.id_to_token(json.loads(reference.to_str())["model"]["unk_id"])
    reference.add_special_tokens([unknown, "<other>"])
    tokenizer = tokjax.formats.from_huggingface(reference, unk_token="<other>")
    assert tokjax.unk_id(tokenizer) == reference.token_to_id("<other>") != reference.token_to_id(unknown)
    for text in ("\u0b95 a", "\u0b95 a " * 200):
        ids = tokjax.encode(tokenizer, text).tolist()
        assert reference.token_to_id(unknown) in ids
        assert ids == reference.encode(text).ids


@pytest.mark.parametrize("name", ["GPT-2", "punctuation"])
@given(text=st.text(" a\n"))
def test_added_token_with_the_bytes_of_another(name, text):
    reference, tokenizer = make_with_duplicate(name)
    assert len(tokjax.get_vocabulary(tokenizer).duplicate_token_ids) == 1
    encoding = reference.encode(text, add_special_tokens=False)
    result = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
    assert result.ids.tolist() == encoding.ids
    assert tokjax.decode(tokenizer, result.ids) == text
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer


@lru_cache
def make_with_duplicate(name):
    """Returns tokenizers with an added token of two spaces, which is also the result of a merge."""
    parts = json.loads((NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)[name]().to_str())
    model = parts["model"]
    forms = ["ĠĠ"] if "ĠĠ" not in model["vocab"] else []
    model["vocab"] |= {form: len(model["vocab"]) for form in forms}
    model["merges"] += [["Ġ", "Ġ"] for _ in forms]
    reference = Tokenizer.from_str(json.dumps(parts))
    reference.add_tokens([AddedToken("  ", normalized=False)])
    return reference, tokjax.formats.from_huggingface(reference)


def make_with_unreachable_tokens(**changes):
    """Returns a definition with two tokens that no text becomes, one of them with the bytes of another."""
    parts = json.loads(make_pair("GPT-2")[0].to_str())
    model = parts["model"]
    size = len(model["vocab"])
    model["vocab"] |= {"âĦ": size, "âĦ¢": size + 1, "™": size + 2, "✓": size + 3}
    model["merges"] += [["â", "Ħ"], ["âĦ", "¢"]]
    return json.dumps(parts | changes | {"model": model | changes.get("model", {})})


@pytest.mark.parametrize("normalizer", [None, {"type": "Lowercase"}])
def test_tokens_that_no_text_becomes(normalizer, tmp_path):
    definition = make_with_unreachable_tokens(normalizer=normalizer)
    reference = Tokenizer.from_str(definition)
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer) == (normalizer is not None)
    trademark, unreachable = reference.token_to_id("âĦ¢"), reference.token_to_id("™")
    for text in ("a™", "✓™✓", " ™"):
        assert tokjax.encode(tokenizer, text).tolist() == reference.encode(text).ids
    ids = [unreachable, trademark, unreachable + 1]
    assert tokjax.decode(tokenizer, ids) == reference.decode(ids) == "™™✓"
    assert tokjax.token_to_id(tokenizer, "™") == tokjax.token_to_id(tokenizer, "™".encode()) == trademark
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    tokjax.save_tokenizer(tokenizer, tmp_path / "saved.json")
    assert tokjax.load_tokenizer(tmp_path / "saved.json") == tokenizer
    extended, _ = tokjax.extend_vocabulary(tokenizer, ["™"])
    reference.add_tokens(["™"])
    assert tokjax.encode(extended, "a™").tolist() == reference.encode("a™").ids


def test_export_of_tokens_that_no_text_becomes(tmp_path):
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(make_with_unreachable_tokens()))
    for format_ in ("huggingface", "gpt2"):
        path = tmp_path / format_
        path.mkdir()
        tokjax.formats.export_tokenizer(tokenizer, path, format=format_)
        assert tokjax.load_tokenizer(path).vocabulary.bytes_by_id == tokenizer.vocabulary.bytes_by_id
    with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="two tokens with the bytes of '™'"):
        tokjax.formats.export_tokenizer(tokenizer, tmp_path / "x.tiktoken", format="tiktoken")


def test_tokens_that_no_text_becomes_with_ignore_merges():
    definition = make_with_unreachable_tokens(model={"ignore_merges": True})
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert tokenizer.reason == "it has ignore_merges, and a token that is not written as bytes"
    assert tokjax.encode(tokenizer, "✓").tolist() == Tokenizer.from_str(definition).encode("✓").ids


@pytest.mark.parametrize("name", ["GPT-2", "Llama 2", "BERT"])
def test_template_with_an_added_token_that_is_not_special(name, tmp_path):
    reference = Tokenizer.from_str(make_pair(name)[0].to_str())
    reference.add_tokens([AddedToken("<turn>", normalized=False)])
    reference.post_processor = processors.TemplateProcessing(
        single="<s> $A <turn>:1",
        pair="<s> $A <turn> $B:1",
        special_tokens=[(token, reference.token_to_id(token)) for token in ("<s>", "<turn>")],
    )
    tokenizer = tokjax.formats.from_huggingface(reference)
    assert not isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
    for texts in (("a b",), ("a<turn>b", "c")):
        expected = reference.encode(*texts)
        result = tokjax.encode_result(tokenizer, *texts)
        assert result.ids.tolist() == expected.ids
        assert result.token_type_ids.tolist() == expected.type_ids
        assert result.special_tokens_mask.tolist() == expected.special_tokens_mask
        assert [(span == 0).all() for span in result.offsets] == [
            sequence is None for sequence in expected.sequence_ids
        ]
        for skip in (False, True):
            decoded = tokjax.decode(tokenizer, result.ids, skip_special_tokens=skip)
            assert decoded == reference.decode(expected.ids, skip_special_tokens=skip)
    tokjax.save_tokenizer(tokenizer, tmp_path / "saved.json")
    assert tokjax.load_tokenizer(tmp_path / "saved.json") == tokenizer
    assert tokjax.with_template(tokenizer, "$A <turn>").vocabulary.template.single[1].token == "<turn>"


def make_like_internlm(*special):
    """Makes a definition whose model makes `<s>` and `</s>` of text, and whose template inserts them.

    Args:
        *special: names of the special tokens.
    """
    contents = json.loads(change_definition("Gemma"))
    model = contents["model"]
    forms = model["vocab"]
    merges = [["<", "s>"], ["<", "/s>"], ["</", "s>"], ["s", ">"], ["<", "/"], ["/", "s>"]]
    for form in ("<s>", "</s>", "s>", "</", "/s>", "<", "/", ">"):
        forms.setdefault(form, len(forms))
    model["merges"] += [merge for merge in merges if merge not in model["merges"]]
    contents["added_tokens"] = [
        token | {"id": forms[token["content"]]}
        for token in contents["added_tokens"]
        if token["content"] in special
    ]
    entries = {name: {"id": name, "ids": [forms[name]], "tokens": [name]} for name in ("<s>", "</s>")}
    before, after = ({"SpecialToken": {"id": name, "type_id": 0}} for name in entries)
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    template = {
        "type": "TemplateProcessing",
        "single": [before, texts[0], after],
        "pair": [before, *texts, after],
        "special_tokens": entries,
    }
    return json.dumps(contents | {"post_processor": template})


INTERNLM_TEXTS = ("<s>", "a <s> b</s>", "</s></s><s>", "< s>", "<unk>", "<s</s>>")


@pytest.mark.parametrize("special", [(), ("<s>",), ("<s>", "</s>", "<unk>")])
@given(
    text=st.sampled_from(INTERNLM_TEXTS) | st.lists(st.sampled_from(["<", "/", "s", ">", "a"])).map("".join)
)
def test_special_tokens_that_the_model_makes(special, text):
    definition = make_like_internlm(*special)
    reference = Tokenizer.from_str(definition)
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert isinstance(tokenizer, tokjax.models.MetaspaceBPE)
    assert tokjax.special_tokens(tokenizer).keys() >= {"<s>", "</s>", "<unk>"}
    encoding = reference.encode(text)
    result = tokjax.encode_result(tokenizer, text, allowed_special="all")
    assert result.ids.tolist() == encoding.ids
    for skip in (False, True):
        decoded = reference.decode(encoding.ids, skip_special_tokens=skip)
        assert tokjax.decode(tokenizer, result.ids, skip_special_tokens=skip) == decoded
        assert tokjax.decode_batch(tokenizer, [result.ids], skip_special_tokens=skip) == [decoded]
    is_special = tokenizer.vocabulary.is_special[result.ids]
    assert result.special_tokens_mask.tolist() == is_special.tolist()
    inserted = (result.offsets == 0).all(axis=1).tolist()
    assert inserted == [True] + [False] * (len(result.ids) - 2) + [True]


def test_special_tokens_that_the_model_makes_as_ordinary_text():
    inserted, matched = (
        tokjax.formats.from_huggingface(DefinitionStub(make_like_internlm(*special)))
        for special in ((), ("<s>",))
    )
    for tokenizer in (inserted, matched):
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="special token '<s>' at char"):
            tokjax.encode(tokenizer, "<s>")
    for function in (tokjax.encode, tokjax.encode_result):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="contains '<s>', which this model encodes as a special"
        ):
            function(inserted, "<s>", allowed_special={"</s>"}, disallowed_special=())
    ordinary = tokjax.tokenize(inserted, "< s>", disallowed_special=(), add_special_tokens=False)
    assert ordinary == ["<", "▁", "s>"]
    tokens = tokjax.tokenize(matched, "<s>", disallowed_special=(), add_special_tokens=False)
    assert tokens == ["<", "s>"]


@pytest.mark.parametrize("special", [(), ("<s>",)])
def test_round_trips_of_special_tokens_that_the_model_makes(special, tmp_path):
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(make_like_internlm(*special)))
    tokjax.save_tokenizer(tokenizer, tmp_path / "saved.json")
    for restored in (pickle.loads(pickle.dumps(tokenizer)), tokjax.load_tokenizer(tmp_path / "saved.json")):
        assert restored == tokenizer
        assert restored.vocabulary.unmatched_names == tokenizer.vocabulary.unmatched_names
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    exported = tokjax.load_tokenizer(tmp_path)
    shorter, _ = tokjax.truncate_vocabulary(tokenizer, tokjax.vocab_size(tokenizer) - 1)
    longer, _ = tokjax.extend_vocabulary(tokenizer, ["<new>"], special=True)
    for changed in (exported, shorter, longer):
        assert tokjax.special_tokens(changed).keys() >= {"<s>", "</s>"}
        for text in INTERNLM_TEXTS:
            expected = tokjax.encode_result(tokenizer, text, allowed_special="all").tokens
            assert tokjax.encode_result(changed, text, allowed_special="all").tokens == expected


def test_special_token_with_a_space():
    contents = json.loads(make_like_internlm("<s>"))
    contents["model"]["vocab"]["▁<"] = size = len(contents["model"]["vocab"])
    contents["model"]["merges"].append(["▁", "<"])
    contents["added_tokens"].append(make_added_token("▁<", size, special=True))
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(contents))
    assert tokenizer.reason == "text can become the special token '▁<'"


def make_letter_tokenizer(**parts):
    """Makes a tokenizer of four letters that drops all other text."""
    tokenizer = Tokenizer(models.BPE({"[SEP]": 0, "A": 1, "C": 2, "G": 3, "T": 4}, []))
    tokenizer.add_special_tokens(["[SEP]"])
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def test_template_with_an_unknown_id():
    template = processors.TemplateProcessing(single="[X] $A", pair="$A $B", special_tokens=[("[X]", 777)])
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="its template inserts id 777"):
        tokjax.formats.from_huggingface(make_letter_tokenizer(post_processor=template))


def test_normalization_produces_no_special_token():
    reference = Tokenizer(
        models.BPE({byte: i for i, byte in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.decoder = decoders.ByteLevel()
    reference.normalizer = normalizers.Lowercase()
    reference.add_special_tokens([AddedToken("<|end|>", normalized=True)])
    tokenizer = tokjax.formats.from_huggingface(reference)
    with pytest.raises(
        tokjax.errors.DisallowedSpecialTokenError, match=r"becomes the special token '<\|end\|>'"
    ):
        tokjax.encode(tokenizer, "<|END|>")
    assert 256 not in tokjax.encode(tokenizer, "<|END|>", disallowed_special=())
    assert tokjax.encode(tokenizer, "<|END|>", allowed_special="all").tolist() == [256]
