"""Tests that encoding functions have the same options and defaults, return equal ids, and report misuse."""

import contextlib
import copy
import inspect
import itertools
import pickle
import re

import numpy as np
import pytest

import tokjax
from tests.support.huggingface_tokenizers import make_pair
from tests.support.sentencepiece_models import train_sentencepiece_models
from tokjax.core.encode_options import DEFAULTS
from tokjax.models import method_hints

SPECIAL = ("allowed_special", "disallowed_special")
ONE_TEXT = [tokjax.encode, tokjax.tokenize, tokjax.encode_result, tokjax.quick.quick_tokenize]
MANY_TEXTS = [
    tokjax.encode_texts,
    tokjax.encode_batch_result,
    tokjax.encode_to_array,
    tokjax.encode_files,
    tokjax.encode_windows,
    tokjax.count_tokens,
    tokjax.quick.quick_encode_batch,
    tokjax.quick.quick_causal_lm_batch,
]
OTHERS = [
    tokjax.models.sample_encode,
    tokjax.models.nbest_encode,
    tokjax.TokenizedTextField,
    tokjax.datasets.BucketedTokenField,
]
ALL = [*ONE_TEXT, *MANY_TEXTS, *OTHERS]


def get_defaults(function):
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


def test_arrays_and_files_have_the_options_of_batches():
    batch = get_defaults(tokjax.encode_batch_result)
    arrays = get_defaults(tokjax.encode_to_array)
    assert set(batch) - set(arrays) == {"return_offsets", "return_masks"}
    files = set(get_defaults(tokjax.encode_files)) - {"paths", "separator", "progress"}
    assert set(batch) - files == {"texts", "pairs", "truncation", "is_pretokenized"}


@pytest.mark.parametrize("function", [*ALL, tokjax.encode_chat, tokjax.PackedTokenField])
def test_defaults_are_those_of_the_encode_options(function):
    required = {"max_length", "truncation"} if function is tokjax.encode_windows else set()
    defaults = {name: value for name, value in get_defaults(function).items() if name in DEFAULTS}
    names = {*SPECIAL} | ({"add_special_tokens"} if function in ALL else set())
    assert names | ({"threads"} if function in MANY_TEXTS else set()) <= defaults.keys()
    assert all(value == DEFAULTS[name] for name, value in defaults.items() if name not in required)
    assert get_defaults(tokjax.encode_batch_result).items() >= DEFAULTS.items()


@pytest.mark.parametrize("function", [*ONE_TEXT, *MANY_TEXTS, *OTHERS[:2]])
def test_unknown_options_raise_an_error(function):
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_len'"):
        function(tokjax.byte_level(), [], max_len=3)


@pytest.mark.parametrize("name", ["bytes", "byte-level BPE", "metaspace BPE", "WordPiece", "Hugging Face"])
def test_options_of_other_functions(tokenizers, name):
    others = {
        "encode_result": get_defaults(tokjax.encode_result),
        "encode_to_array": get_defaults(tokjax.encode_to_array),
    }
    for option in {**DEFAULTS, "return_offsets": True, "return_masks": True}:
        if option not in get_defaults(tokjax.encode):
            accepting = " and ".join(function for function, defaults in others.items() if option in defaults)
            with pytest.raises(TypeError) as error:
                tokjax.encode(tokenizers[name], "x", **{option: None})
            assert re.fullmatch(
                rf"encode\(\) got an unexpected keyword argument '{option}'; {accepting} accepts? it",
                str(error.value),
            )
    with pytest.raises(TypeError, match=r"^encode\(\) got an unexpected keyword argument 'max_len'$"):
        tokjax.encode(tokenizers[name], "x", max_len=3)


def test_errors_of_custom_encoders_are_unchanged():
    class Broken:
        pass

    @tokjax.encode.register
    def _(tokenizer: Broken, text, **options):
        return len(tokenizer)

    with pytest.raises(TypeError, match="has no len"):
        tokjax.encode(Broken(), "x", max_length=3)
    with pytest.raises(TypeError, match="requires at least 1 positional argument"):
        tokjax.encode()


def test_registered_encoders_have_the_same_defaults():
    for generic in (tokjax.encode, tokjax.encode_texts):
        functions = {each for each in generic.registry.values() if each.__module__.startswith("tokjax.")}
        assert len(functions) > 1
        for function in functions:
            assert get_defaults(function)["add_special_tokens"] is True, function


@pytest.mark.parametrize("function", [*ONE_TEXT[:3], *MANY_TEXTS[:6], tokjax.encode_chat])
def test_values_of_another_type(function, tmp_path):
    (tmp_path / "text").write_text("x")
    texts = {tokjax.encode_files: [tmp_path / "text"], tokjax.encode_chat: [[], ""]}
    arguments = tokjax.byte_level(), *texts.get(function, ["x" if function in ONE_TEXT else ["x"]])
    defaults = get_defaults(function)
    required = {"max_length": 9, "separator": None}
    required = {name: required[name] for name in required if defaults.get(name) is inspect.Parameter.empty}
    options = [name for name, value in defaults.items() if value is not inspect.Parameter.empty]
    for name, wrong in itertools.product(options, (np.arange(2), [[]], {})):
        with contextlib.suppress(tokjax.errors.InvalidArgumentError):
            result = function(*arguments, **required | {name: wrong})
            list(result) if function is tokjax.encode_files else None
    message = "allowed_special.* must be a list of names, and one of them is {}"
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        function(*arguments, **required, allowed_special=[{}])


@pytest.fixture(scope="module")
def tokenizers():
    roles = {"bos_token": "<s>", "eos_token": "</s>"}
    return {
        "bytes": tokjax.byte_level(["<s>", "</s>"], **roles),
        "byte-level BPE": tokjax.byte_level_bpe(
            {bytes([i]): i for i in range(256)}, special_tokens={"<s>": 256, "</s>": 257}, **roles
        ),
        "metaspace BPE": tokjax.metaspace_bpe({f"<0x{i:02X}>": i for i in range(256)} | {"\u2581": 256}, []),
        "sentencepiece": train_sentencepiece_models()["unigram"],
        "WordPiece": tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be"]),
        "classic BPE": tokjax.word_bpe(["<unk>", "t", "o</w>", "b", "<s>"], [], bos_token="<s>"),
        "Hugging Face": make_pair("unigram")[1],
    }


@pytest.mark.parametrize(
    "name", ["bytes", "byte-level BPE", "sentencepiece", "WordPiece", "classic BPE", "Hugging Face"]
)
@pytest.mark.parametrize("text", ["to be", "", "to be " * 200])
def test_all_functions_return_the_same_ids(tokenizers, tmp_path, name, text):
    tokenizer = tokenizers[name]
    (tmp_path / "text").write_text(text or "x")
    for options in ({}, {"add_special_tokens": False}):
        expected = tokjax.encode_result(tokenizer, text, **options).ids.tolist()
        assert tokjax.encode(tokenizer, text, **options).tolist() == expected
        assert tokjax.encode(tokenizer, text.encode(), **options).tolist() == expected
        assert tokjax.tokenize(tokenizer, text, **options) == [
            tokjax.id_to_token(tokenizer, i) for i in expected
        ]
        assert tokjax.encode_batch_result(tokenizer, [text], **options).ids.tolist() == expected
        assert tokjax.encode_to_array(tokenizer, [text], **options).ids.tolist() == expected
        assert tokjax.count_tokens(tokenizer, text, **options) == len(expected)
        windows = tokjax.encode_windows(tokenizer, [text], max_length=10_000, **options)
        assert windows.batch.ids.tolist() == expected
        if text:
            [file_batch] = tokjax.encode_files(tokenizer, tmp_path / "text", separator=None, **options)
            assert file_batch.ids.tolist() == expected


def test_arrays_of_pairs_words_and_truncated_texts(tokenizers):
    bert = tokenizers["WordPiece"]
    for arguments, options in (
        ((["to be"], ["be"]), {"max_length": 4, "truncation": "only_first"}),
        ((["to be be"],), {"max_length": 4, "truncation_side": "left"}),
        (([["to", "be"]],), {"is_pretokenized": True}),
        ((["TO"],), {"assume_normalized": True}),
    ):
        expected = tokjax.encode_batch_result(bert, *arguments, **options)
        arrays = tokjax.encode_to_array(bert, *arguments, **options)
        assert arrays.ids.tolist() == expected.ids.tolist()
        assert arrays.offsets is arrays.special_tokens_mask is None


class TestWrongArguments:
    """Errors for methods and functions of other libraries name the function of tokjax to use."""

    @pytest.mark.parametrize("name", ["bytes", "byte-level BPE", "sentencepiece", "Hugging Face"])
    def test_methods(self, tokenizers, name):
        tokenizer = tokenizers[name]
        with pytest.raises(
            AttributeError, match=r"no attribute 'encode'; .* tokjax\.encode\(tokenizer, text\)"
        ):
            tokenizer.encode("text")
        with pytest.raises(AttributeError, match=r"tokjax\.encode_batch_result\(tokenizer, texts\)"):
            tokenizer.encode_batch(["text"])
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError, match=r"is not callable: use tokjax\.encode\("
        ):
            tokenizer("text")
        with pytest.raises(AttributeError, match="no attribute 'nonsense'$"):
            tokenizer.nonsense  # noqa: B018
        assert not hasattr(tokenizer, "encode")
        assert pickle.loads(pickle.dumps(tokenizer)) == copy.deepcopy(tokenizer) == copy.copy(tokenizer)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("encode_batch", r"use tokjax\.encode_batch_result\(tokenizer, texts\)"),
            ("load_dataset", r"use tokjax\.open_dataset\(path\)"),
            ("AutoTokenizer", r"use tokjax\.load_tokenizer\(path\)"),
            ("nonsense", "has no attribute 'nonsense'$"),
        ],
    )
    def test_functions(self, name, message):
        with pytest.raises(AttributeError, match=message):
            getattr(tokjax, name)
        assert not hasattr(tokjax, name)

    def test_advised_functions_exist(self):
        for advice in (*method_hints._METHODS.values(), *method_hints._FUNCTIONS.values()):
            for call in advice.split("tokjax.")[1:]:
                attribute = tokjax
                for part in call.split("(")[0].split("."):
                    attribute = getattr(attribute, part)
                assert callable(attribute)

    @pytest.mark.parametrize("function", ONE_TEXT[:3])
    @pytest.mark.parametrize("name", ["bytes", "byte-level BPE", "Hugging Face"])
    def test_a_list_where_a_text_is_expected(self, tokenizers, name, function):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match="not list; a list of texts is passed to encode_batch_result",
        ):
            function(tokenizers[name], ["a", "b"])

    @pytest.mark.parametrize("function", MANY_TEXTS[1:3] + MANY_TEXTS[-2:])
    def test_a_text_where_texts_are_expected(self, tokenizers, function):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"texts is one text; pass \[text\]"):
            function(tokenizers["bytes"], "text")
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"pass \[text\]"):
            tokjax.encode_windows(tokenizers["bytes"], "text", max_length=5)
