"""Tokenizers of Hugging Face's library, from a `tokenizer.json` and from memory: against that library."""

import json
import pickle
import unicodedata
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import tokjax
from tests.conftest import CORPUS
from tests.strategies import byte_strings, hard_texts
from tokjax.text.patterns import PATTERNS
from tokjax.utf8 import to_characters

SPECIAL = ["<s>", "</s>", "<pad>", "<mask>"]


def trained(kind, special=(*SPECIAL, "<unk>"), **options):
    if kind is trainers.BpeTrainer:
        options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()} | options
    return kind(vocab_size=600, special_tokens=list(special), show_progress=False, **options)


def byte_level(pre_tokenizer, post_processor=None, normalizer=None, **model):
    made = Tokenizer(models.BPE(**model))
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS * 3, trained(trainers.BpeTrainer))
    if post_processor:
        made.post_processor = post_processor
    if normalizer:
        made.normalizer = normalizer
    return made


def split(name):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def roberta():
    made = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return made


def llama_3():
    made = byte_level(split("llama3"))
    single, pair = "<s> $A", "<s> $A <s>:1 $B:1"
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 0)])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


def bert(**steps):
    made = Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer(**steps)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(CORPUS, trained(trainers.WordPieceTrainer))
    made.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    return made


def words():
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.train_from_iterator(CORPUS, trained(trainers.WordLevelTrainer))
    return made


def unigram():
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(CORPUS, trained(trainers.UnigramTrainer, unk_token="<unk>"))
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 1)]
    )
    return made


def with_bytes(normalizer=None, pre_tokenizer=None, strip=True):
    """As Llama 2, Mistral and Gemma: blanks are a part of words, and rare characters become bytes."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    if normalizer:
        made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    special = [*SPECIAL, "<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    made.train_from_iterator(CORPUS[:2], trained(trainers.BpeTrainer, special, initial_alphabet=["▁"]))
    parts = json.loads(made.to_str())
    parts["added_tokens"] = parts["added_tokens"][:5]  # (the bytes are no special tokens)
    return Tokenizer.from_str(json.dumps(parts))


BLANK_TO_MARK = normalizers.Replace(" ", "▁")


def metaspace(prepend_scheme, **options):
    return with_bytes(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, **options))


OURS = {
    "GPT-2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "with a blank": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "trimmed": lambda: byte_level(pre_tokenizers.ByteLevel(), processors.ByteLevel(trim_offsets=True)),
    "RoBERTa": roberta,
    "Llama 3": llama_3,
    "Qwen 2": lambda: byte_level(split("qwen2"), normalizer=normalizers.NFC()),
    "GPT-4o": lambda: byte_level(split("o200k"), ignore_merges=True),
    "BERT": bert,
    "BERT, cased": lambda: bert(lowercase=False),
    "words": words,
    "Llama 2": lambda: with_bytes(normalizers.Sequence([normalizers.Prepend("▁"), BLANK_TO_MARK])),
    "Mistral": lambda: metaspace("first", split=False),
    "Gemma": lambda: with_bytes(
        BLANK_TO_MARK, pre_tokenizers.Split(" ", "merged_with_previous"), strip=False
    ),
    "split": lambda: metaspace("always", split=True),
    "split only": lambda: metaspace("never", split=True),
}
THEIRS = {
    "digits": lambda: byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "unigram": unigram,
}


@lru_cache
def pair_of(name):
    """The library's tokenizer, as it reads it again, and ours."""
    definition = (OURS | THEIRS)[name]().to_str()
    theirs = Tokenizer.from_str(definition)
    return theirs, tokjax.from_huggingface(theirs)


@pytest.mark.parametrize("name", OURS | THEIRS)
def test_which_are_ours(name):
    _, ours = pair_of(name)
    assert isinstance(ours, tokjax.HuggingFaceTokenizer) == (name in THEIRS)


def characters_of(text, result):
    spans = tokjax.byte_to_char_spans(text, result.offsets).tolist()
    return [[max(span[0], 0), max(span[1], 0)] for span in spans]


def plain(text):
    return to_characters(text).translate(dict.fromkeys(range(0xD800, 0xE000), "\ufffd"))


specials = st.lists(st.sampled_from([*SPECIAL, "<unk>", "<S>", "<MÁSK>", " ", "a", "é"]), max_size=5).map(
    "".join
)


@pytest.mark.parametrize("name", OURS | THEIRS)
@given(text=hard_texts | specials | st.sampled_from(CORPUS), pair=st.none() | hard_texts)
def test_ids_and_offsets_are_the_library_s(name, text, pair):
    theirs, ours = pair_of(name)
    if isinstance(ours, tokjax.HuggingFaceTokenizer):
        given_texts = text, pair
    else:  # ours encodes other characters for surrogates than U+FFFD
        text, pair = (None if one is None else plain(one) for one in (text, pair))
        given_texts = text, pair
    expected = theirs.encode(plain(text), None if pair is None else plain(pair))
    result = tokjax.encode_result(ours, *given_texts, allowed_special="all")
    assert result.ids.tolist() == expected.ids
    assert result.token_type_ids.tolist() == expected.type_ids
    assert result.sequence_ids.tolist() == [-1 if i is None else i for i in expected.sequence_ids]
    spans = result.offsets
    if result.metadata.offsets_reference == "tokenizer_normalized_text":
        spans = tokjax.map_offsets_to_input(ours, text, spans) if pair is None else None
    composes = name == "Qwen 2" and not unicodedata.is_normalized("NFC", text)
    if pair is None and not composes:  # (the library's spans leave out the marks that were composed)
        assert characters_of(text, tokjax.TokenizationResult(result.ids, result.tokens, spans)) == [
            list(span) for span in expected.offsets
        ]
    alone = tokjax.encode(ours, text, allowed_special="all")
    assert alone.tolist() == theirs.encode(plain(text), add_special_tokens=False).ids


@pytest.mark.parametrize("name", OURS | THEIRS)
@given(texts=st.lists(hard_texts | byte_strings, max_size=5))
def test_a_batch_is_its_texts_one_by_one(name, texts):
    _, ours = pair_of(name)
    options = {"disallowed_special": ()}
    batch = tokjax.encode_batch_result(ours, texts, **options)
    assert list(batch) == [tokjax.encode_result(ours, text, **options) for text in texts]
    for text, row in zip(texts, batch, strict=True):
        view = (
            text if row.metadata.offsets_reference == "input_text" else tokjax.tokenization_view(ours, text)
        )
        assert tokjax.validate_offsets_contract(view, row.offsets)
    bare = tokjax.encode_batch_result(ours, texts, return_offsets=False, return_masks=False, **options)
    assert bare.ids.tolist() == batch.ids.tolist()


@pytest.mark.parametrize("name", OURS | THEIRS)
def test_it_pickles_is_written_and_is_equal(name, tmp_path):
    theirs, ours = pair_of(name)
    again = tokjax.load_tokenizer(tokjax.save_tokenizer(ours, tmp_path))
    for other in (again, pickle.loads(pickle.dumps(ours)), tokjax.from_huggingface(theirs)):
        assert other == ours
        assert hash(other) == hash(ours)
        assert tokjax.fingerprint(other) == tokjax.fingerprint(ours)
        assert (
            tokjax.encode(other, CORPUS[0]).tolist() == theirs.encode(CORPUS[0], add_special_tokens=False).ids
        )


@pytest.mark.parametrize("name", ["digits", "unigram", "Llama 2", "Gemma"])
def test_decoding_is_the_library_s(name):
    theirs, ours = pair_of(name)
    for text in CORPUS:
        ids = theirs.encode(text).ids
        assert tokjax.decode(ours, ids) == theirs.decode(ids, skip_special_tokens=False)
        skipped = theirs.decode(ids, skip_special_tokens=True)
        assert tokjax.decode(ours, ids, skip_special_tokens=True) == skipped
        assert tokjax.decode_batch(ours, [ids, []], skip_special_tokens=True) == [skipped, ""]


def test_bytes_of_one_character_have_spans_of_their_own():
    result = tokjax.encode_result(pair_of("Llama 2")[1], "a日", add_special_tokens=False)
    assert result.tokens[-3:] == ("<0xE6>", "<0x97>", "<0xA5>")
    assert result.offsets[-3:].tolist() == [[2, 3], [3, 4], [4, 5]]
    result = tokjax.encode_result(pair_of("digits")[1], "1\U0001f9e0", add_special_tokens=False)
    assert result.offsets.tolist() == [[1, 2], [2, 4], [4, 5], [5, 6]]


@pytest.mark.parametrize("name", ["unigram", "GPT-2", "digits", "Llama 2"])
def test_special_tokens_in_texts(name):
    _, ours = pair_of(name)
    with pytest.raises(tokjax.DisallowedSpecialTokenError, match=r"special token '</s>' at character 2"):
        tokjax.encode(ours, "a </s>")
    if name == "unigram":
        with pytest.raises(tokjax.InvalidArgumentError, match=r"text 0 holds '</s>', and this model makes"):
            tokjax.encode(ours, "a </s>", disallowed_special=())
    else:
        ordinary = tokjax.encode_result(ours, "a </s>", disallowed_special=(), add_special_tokens=False)
        assert tokjax.token_to_id(ours, "</s>") not in ordinary.ids
    found = tokjax.encode_result(ours, "a </s>", allowed_special={"</s>"}, add_special_tokens=False)
    assert found.special_tokens_mask.tolist()[-1] == 1
    assert found.offsets[-1].tolist() == [3, 7]


def test_the_library_can_t_keep_some_special_and_others_not():
    _, ours = pair_of("unigram")
    with pytest.raises(tokjax.InvalidArgumentError, match=r"all special tokens in a text or none.*'<s>'"):
        tokjax.encode(ours, "<s></s>", allowed_special={"</s>"}, disallowed_special=())


def test_what_it_says_of_itself(caplog, tmp_path):
    path = tmp_path / "tokenizer.json"
    pair_of("unigram")[0].save(str(path))
    with caplog.at_level("INFO", "tokjax"):
        ours = tokjax.load_tokenizer(path)
    assert f"{path} runs on the tokenizers library: its model is Unigram" in caplog.text
    assert repr(ours).endswith("runs on the tokenizers library: its model is Unigram)")
    assert ours.normalization == "NFKC+Lowercase"
    assert tokjax.unk_id(ours) == 4


def test_truncation_and_padding_of_the_file_are_not_done():
    theirs, _ = pair_of("unigram")
    strict = Tokenizer.from_str(theirs.to_str())
    strict.enable_truncation(3)
    strict.enable_padding(length=20)
    ours = tokjax.from_huggingface(strict)
    assert tokjax.encode_result(ours, CORPUS[0]).ids.tolist() == theirs.encode(CORPUS[0]).ids


class TestRoles:
    def test_of_the_files_beside_it(self, tmp_path):
        pair_of("RoBERTa")[0].save(str(tmp_path / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "pad_token": None}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<pad>", "cls_token": "<s>"}')
        ours = tokjax.load_tokenizer(tmp_path)
        assert dict(ours.vocabulary.roles) == {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}

    def test_that_the_caller_names(self):
        ours = tokjax.from_huggingface(pair_of("RoBERTa")[0], pad_token="<pad>")
        assert tokjax.pad_id(ours) == 2
        assert (
            tokjax.encode_result(ours, "a").tokens == tokjax.encode_result(pair_of("RoBERTa")[1], "a").tokens
        )
        for name in ("unigram", "GPT-2"):
            with pytest.raises(tokjax.InvalidArgumentError, match="eos_token is '<eos>', which is not among"):
                tokjax.from_huggingface(pair_of(name)[0], eos_token="<eos>")

    def test_of_transformers(self):
        transformers = pytest.importorskip("transformers")
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=pair_of("unigram")[0], eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
        )
        ours = tokjax.from_huggingface(fast)
        assert dict(ours.vocabulary.roles) == {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
        assert tokjax.encode_result(ours, CORPUS[2]).ids.tolist() == fast(CORPUS[2])["input_ids"]


def test_what_is_none_of_the_library_s():
    with pytest.raises(tokjax.UnsupportedTokenizerError, match=r"not str; a slow one has no offsets"):
        tokjax.from_huggingface("bert-base-uncased")


def changed(name, **changes):
    """A definition with some of its fields replaced."""
    parts = json.loads(pair_of(name)[0].to_str())
    for field, value in changes.items():
        if field == "model":
            parts["model"] |= value
        else:
            parts[field] = value
    return json.dumps(parts)


def added(content, id_, **flags):
    usual = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
    return usual | {"content": content, "id": id_} | flags


def with_added(name, *tokens):
    """A definition with more added tokens: what they are called, and flags."""
    parts = json.loads(pair_of(name)[0].to_str())
    size = len(parts["model"]["vocab"])
    more = [added(content, size + i, **flags) for i, (content, flags) in enumerate(tokens)]
    return json.dumps(parts | {"added_tokens": [*parts["added_tokens"], *more]})


BLANK_TO_MARK_STEPS = [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]


@pytest.mark.parametrize(
    "definition",
    [
        lambda: changed("Llama 2", normalizer={"type": "Lowercase", "normalizers": BLANK_TO_MARK_STEPS}),
        lambda: changed("GPT-2", normalizer={"type": "Lowercase", "normalizers": []}),
        lambda: changed("GPT-2", normalizer=["a"]),
        lambda: changed("GPT-2", post_processor={"type": "ByteLevel", "trim_offsets": None}),
        lambda: changed("Llama 2", pre_tokenizer=split_at_blanks("Removed", invert=True)),
        lambda: changed("Llama 2", decoder=decoder_with(start=True)),
        lambda: changed("Llama 2", decoder=None),
        lambda: changed("Llama 2", normalizer=BLANK_TO_MARK_STEPS[0]),
        lambda: changed("Mistral", pre_tokenizer=metaspace_step(prepend_scheme="sometimes")),
        lambda: changed("Mistral", pre_tokenizer=metaspace_step(replacement="_")),
        lambda: changed("Llama 2", model={"byte_fallback": "false"}),
        lambda: changed("Llama 2", model={"ignore_merges": True}),
        lambda: changed("Llama 2", model={"unk_token": "a"}),
        lambda: with_added("GPT-2", ("zz", {}), ("zz", {"special": True}), ("yy", {})),
        lambda: with_added("Mistral", (" ", {"lstrip": True, "rstrip": True})),
        lambda: with_piece("<0xab>"),
    ],
)
def test_definitions_that_are_not_ours(definition):
    """Each differs in one field from one that tokjax runs by itself."""
    definition = definition()
    try:
        theirs = Tokenizer.from_str(definition)
    except Exception:
        with pytest.raises(tokjax.TokenizerFormatError, match="the tokenizers library can't read it"):
            tokjax.from_huggingface(StandIn(definition))
        return
    ours = tokjax.from_huggingface(StandIn(definition))
    assert isinstance(ours, tokjax.HuggingFaceTokenizer)
    for text in ("AB ab", "a  b", "abzzab zz yy", "<0xab>"):
        result = tokjax.encode_result(ours, text, allowed_special="all")
        assert result.ids.tolist() == theirs.encode(text).ids


@pytest.mark.parametrize(
    "definition",
    [
        lambda: changed("Mistral", pre_tokenizer=metaspace_step(split=None)),
        lambda: changed("Llama 2", pre_tokenizer=split_at_blanks("Removed", invert=False)),
        lambda: changed("GPT-2", post_processor={"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]}),
    ],
)
def test_definitions_that_are_ours_all_the_same(definition):
    ours = tokjax.from_huggingface(StandIn(definition()))
    theirs = Tokenizer.from_str(definition())
    assert not isinstance(ours, tokjax.HuggingFaceTokenizer)
    for text in ("AB ab", "a  b", "  "):
        assert tokjax.encode_result(ours, text).ids.tolist() == theirs.encode(text).ids


class StandIn:
    """What gives a definition as it is; the library's own tokenizers write it anew."""

    def __init__(self, definition):
        self.definition = definition

    def to_str(self):
        return self.definition

    encode_batch = None


def split_at_blanks(behavior, invert):
    return {"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": invert}


def decoder_with(**options):
    steps = json.loads(pair_of("Llama 2")[0].to_str())["decoder"]
    steps["decoders"][-1] |= options
    return steps


def metaspace_step(**options):
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return step | options


def with_piece(form):
    vocab = json.loads(pair_of("Llama 2")[0].to_str())["model"]["vocab"]
    return changed("Llama 2", model={"vocab": vocab | {form: len(vocab)}})


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
        (changed("GPT-2", model={"vocab": {"a": 1, "b": 1}}), "id 1 is given to both 'a' and 'b'"),
        (changed("GPT-2", model={"vocab": {"a": -1}}), "the id of 'a' is -1; ids are integers from 0"),
        (changed("GPT-2", model={"vocab": {"a": 2**31}}), "the id of 'a' is 2147483648; ids are integers"),
        (changed("GPT-2", model={"vocab": {"a": 1.5}}), "the id of 'a' is 1.5; ids are"),
        (changed("GPT-2", model={"merges": ["a b c"]}), "the merge 'a b c' is no pair of tokens"),
        (changed("GPT-2", model={"merges": [["a", "日"]]}), "'日' is no token"),
        (changed("GPT-2", added_tokens=[{"id": 1}]), "an added token has the content None and the id 1"),
        (changed("GPT-2", model={"merges": [["a", 1]]}), r"the merge \['a', 1\] is no pair of tokens"),
        (changed("GPT-2", model={"merges": ["a b", ["a", "b"]]}), "some merges are lines, others pairs"),
        (
            changed(
                "unigram", post_processor={"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 9999]}
            ),
            "it puts id 9999 around texts, which is no special token",
        ),
        (changed("GPT-2", version="2.0"), "version '2.0' is not known; '1.0' is"),
        (changed("unigram", model={"vocab": "a"}), "the tokenizers library can't read it"),
        (changed("unigram", model={"type": "Magic"}), "the tokenizers library can't read it"),
    ],
)
def test_damaged_files(definition, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(definition)
    with pytest.raises(tokjax.TokenizerFormatError, match=message) as caught:
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
    theirs = Tokenizer.from_str(changed("GPT-2", **change))
    ours = tokjax.from_huggingface(theirs)
    assert isinstance(ours, tokjax.HuggingFaceTokenizer)
    assert ours.reason in reason.split("|")


def test_an_added_token_that_is_found_in_normalised_text():
    theirs = Tokenizer.from_str(pair_of("BERT")[0].to_str())
    theirs.add_tokens(["NewWord"])
    ours = tokjax.from_huggingface(theirs)
    assert ours.reason == "the added token 'NewWord' is found in normalised text"
    assert (
        tokjax.encode(ours, "a newword").tolist() == theirs.encode("a newword", add_special_tokens=False).ids
    )


@pytest.mark.parametrize("name", ["GPT-2", "digits"])
@given(text=st.text(" a\n"))
def test_an_added_token_with_the_bytes_of_another(name, text):
    theirs, ours = with_twin(name)
    assert len(tokjax.vocabulary_of(ours).twins) == 1
    encoding = theirs.encode(text, add_special_tokens=False)
    result = tokjax.encode_result(ours, text, add_special_tokens=False)
    assert result.ids.tolist() == encoding.ids
    assert tokjax.decode(ours, result.ids) == text
    assert pickle.loads(pickle.dumps(ours)) == ours


@lru_cache
def with_twin(name):
    """With an added token of two blanks, where a merge makes two blanks as well."""
    parts = json.loads((OURS | THEIRS)[name]().to_str())
    model = parts["model"]
    forms = ["ĠĠ"] if "ĠĠ" not in model["vocab"] else []
    model["vocab"] |= {form: len(model["vocab"]) for form in forms}
    model["merges"] += [["Ġ", "Ġ"] for _ in forms]
    theirs = Tokenizer.from_str(json.dumps(parts))
    theirs.add_tokens([AddedToken("  ", normalized=False)])
    return theirs, tokjax.from_huggingface(theirs)


def test_a_dataset_keeps_the_tokenizer(tmp_path):
    ours = tokjax.from_huggingface(pair_of("unigram")[0], eos_token="</s>")
    tokjax.write_dataset(CORPUS, tokjax.PackedTokenField(ours, chunk_tokens=50), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert dataset.tokenizer == ours
    assert (
        tokjax.encode(dataset.tokenizer, CORPUS[0]).tolist()
        == dataset.read(0, len(tokjax.encode(ours, CORPUS[0]))).tolist()
    )


def letters(**parts):
    """A tokenizer of four letters, to which other text is nothing."""
    made = Tokenizer(models.BPE({"[SEP]": 0, "A": 1, "C": 2, "G": 3, "T": 4}, []))
    made.add_special_tokens(["[SEP]"])
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def test_a_template_is_read_and_not_guessed():
    single, pair = "$A [SEP]", "$A [SEP] $B:1 [SEP]:1"
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("[SEP]", 0)])
    for theirs in (letters(), letters(post_processor=template)):
        ours = tokjax.from_huggingface(theirs)
        assert isinstance(ours, tokjax.HuggingFaceTokenizer)
        assert tokjax.encode_result(ours, "ACGT", "GG").ids.tolist() == theirs.encode("ACGT", "GG").ids
        assert tokjax.encode_result(ours, ["A", "CG"], is_pretokenized=True).ids.tolist()[:3] == [1, 2, 3]


def test_a_template_of_what_is_no_token():
    template = processors.TemplateProcessing(single="[X] $A", pair="$A $B", special_tokens=[("[X]", 777)])
    with pytest.raises(tokjax.TokenizerFormatError, match="it puts id 777 around texts"):
        tokjax.from_huggingface(letters(post_processor=template))


def test_what_the_library_can_not_encode():
    theirs = Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]"))
    ours = tokjax.from_huggingface(theirs)
    assert tokjax.encode(ours, "a").tolist() == [0]
    with pytest.raises(tokjax.InvalidArgumentError, match="the tokenizers library can't encode these texts"):
        tokjax.encode(ours, "b")


def test_normalising_forges_no_special_token():
    theirs = Tokenizer(
        models.BPE({byte: i for i, byte in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    theirs.normalizer = normalizers.Lowercase()
    theirs.add_special_tokens([AddedToken("<|end|>", normalized=True)])
    ours = tokjax.from_huggingface(theirs)
    with pytest.raises(tokjax.DisallowedSpecialTokenError, match=r"becomes the special token '<\|end\|>'"):
        tokjax.encode(ours, "<|END|>")
    assert 256 not in tokjax.encode(ours, "<|END|>", disallowed_special=())
    assert tokjax.encode(ours, "<|END|>", allowed_special="all").tolist() == [256]


@pytest.mark.parametrize("texts", ["ab", b"ab", iter(["ab"])])
def test_what_is_no_sequence_of_texts(texts):
    for options in ({}, {"max_length": 5}, {"pairs": ["a"]}):
        with pytest.raises(tokjax.InvalidArgumentError, match="texts"):
            tokjax.encode_batch_result(pair_of("BERT")[1], texts, **options)
