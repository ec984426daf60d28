"""Tests of added tokens that are declared beside a `tokenizer.json`."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

import tokjax
from tests.support.huggingface_tokenizers import make_pair

FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
MODEL_TOKENS = ("<s>", "</s>", "the", "!", "<mask>")
"""Tokens that the vocabularies of the tests have; `<mask>` is an added token there."""
NAMES = (*MODEL_TOKENS, "<new>", "[X]", "<newer>", "word")
MASK_ID = 3
TEXTS = (
    "the <s> cat</s>!",
    "<new>[X] <newer> word",
    "swords! the<mask> <mask>",
    "  <new>  <s>  word  !!  [X]  ",
    "<NEW> <newer><new><newe>",
)
FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def write_directory(directory, contents, config=None, older=None, added=None):
    """Writes a `tokenizer.json` and the configuration files that are not `None`."""
    (directory / "tokenizer.json").write_text(json.dumps(contents))
    for name, values in zip(FILES, (config, older, added), strict=True):
        if values is not None:
            (directory / name).write_text(json.dumps(values))
    return directory


def make_contents(name):
    """Makes a definition with the added token `<mask>` only; `<s>` and others remain in its vocabulary."""
    contents = json.loads(make_pair(name)[0].to_str())
    contents["added_tokens"] = [token for token in contents["added_tokens"] if token["content"] == "<mask>"]
    contents["post_processor"] = None
    vocab = contents["model"]["vocab"]
    for token in MODEL_TOKENS:
        if isinstance(vocab, dict):
            vocab.setdefault(token, len(vocab))
        elif token not in [piece for piece, _ in vocab]:
            vocab.append([token, -20.0])
    return contents


def describe(name, *, special=True, **options):
    return {"content": name, "special": special} | dict.fromkeys(FLAGS[:4], False) | options


def load_by_transformers(directory):
    transformers = pytest.importorskip("transformers", minversion="5")
    return transformers.PreTrainedTokenizerFast.from_pretrained(directory)


def check_equals_transformers(directory, *, same_special=True):
    """Compares a tokenizer with that of transformers, and returns it."""
    fast = load_by_transformers(directory)
    tokenizer = tokjax.load_tokenizer(directory)
    for text in TEXTS:
        ids = tokjax.encode(tokenizer, text, allowed_special="all").tolist()
        assert ids == fast(text, add_special_tokens=False)["input_ids"], text
    added = fast.added_tokens_decoder
    special = {token.content: id_ for id_, token in added.items() if token.special}
    tokens = dict(tokjax.special_tokens(tokenizer))
    unknown = tokenizer.vocabulary.roles.get("unk")
    if same_special:
        assert {name: id_ for name, id_ in tokens.items() if name != unknown} == {
            name: id_ for name, id_ in special.items() if name != unknown
        }
    assert tokjax.vocab_size(tokenizer) == len(fast)
    return tokenizer


ROLES = ["bos", "eos", "pad", "sep", "cls", "mask", "image"]


@st.composite
def configurations(draw):
    """Values of the three configuration files, each of which can be `None`."""
    names = st.sampled_from(NAMES)
    flags = st.fixed_dictionaries({}, optional=dict.fromkeys(FLAGS, st.booleans()))

    def draw_special(lists=("extra_special_tokens", "additional_special_tokens")):
        fields = draw(st.lists(st.sampled_from(ROLES), unique=True))
        listed = draw(st.lists(names, max_size=3, unique=True))
        field = draw(st.sampled_from(lists))
        return {f"{role}_token": draw(names) for role in fields} | ({field: listed} if listed else {})

    config = draw_special() if draw(st.booleans()) else None
    # transformers 5 ignores the other list in the older file, or only declares that its tokens are special.
    older = draw_special(["extra_special_tokens"]) if draw(st.booleans()) else None
    if config is not None and older is not None:
        older.pop("extra_special_tokens", None)
    listed = draw(st.lists(names, max_size=4, unique=True))
    if config is not None and draw(st.booleans()):
        config["added_tokens_decoder"] = {
            str(900 - i): {"content": name} | draw(flags) for i, name in enumerate(listed)
        }
        return config, older, None
    first_id = draw(st.sampled_from([MASK_ID, 900]))
    return config, older, {name: first_id + i for i, name in enumerate(listed)} or None


@pytest.mark.parametrize("name", ["GPT-2", "BERT", "unigram"])
@example(files=({"pad_token": "<new>", "sep_token": "<newer>", "cls_token": "[X]"}, None, None))
@given(files=configurations())
def test_random_configurations(name, files):
    with tempfile.TemporaryDirectory() as directory:
        check_equals_transformers(
            write_directory(Path(directory), make_contents(name), *files), same_special=False
        )


@pytest.mark.parametrize("name", ["GPT-2", "BERT", "unigram"])
def test_new_tokens(name, tmp_path):
    contents = make_contents(name)
    size = len(contents["model"]["vocab"])
    config = {
        "added_tokens_decoder": {
            size + 1: describe("[X]", lstrip=True),
            size: describe("<new>"),
            0: describe("<mask>", rstrip=True),
        },
        "pad_token": "<newer>",
        "eos_token": {"__type": "AddedToken", **describe("</s>", rstrip=True)},
        "additional_special_tokens": ["<new>", "<other>"],
        "image_token": "<image>",
        "add_bos_token": True,
    }
    tokenizer = check_equals_transformers(write_directory(tmp_path, contents, config))
    new_names = "<new>", "[X]", "<newer>", "<image>", "<other>"
    assert [tokjax.token_to_id(tokenizer, new) for new in new_names] == list(range(size, size + 5))
    assert tokjax.pad_id(tokenizer) == size + 2
    result = tokjax.encode_result(tokenizer, "the [X]</s> the", allowed_special="all")
    spans = {token: (start, stop) for token, (start, stop) in zip(result.tokens, result.offsets, strict=True)}
    assert spans["[X]"] == (4, 8)
    assert spans["</s>"] == (8, 13)
    with pytest.raises(
        tokjax.errors.DisallowedSpecialTokenError, match="special token '<new>' at character 1"
    ):
        tokjax.encode(tokenizer, "a<new>")
    restored = tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path / "saved.json"))
    assert restored == tokenizer
    assert tokjax.special_tokens(restored) == tokjax.special_tokens(tokenizer)


def test_files_without_configuration(tmp_path):
    contents = make_contents("GPT-2")
    tokenizer = tokjax.load_tokenizer(write_directory(tmp_path, contents))
    assert dict(tokjax.special_tokens(tokenizer)) == {"<mask>": MASK_ID}
    assert tokjax.encode(tokenizer, "<s>").tolist() != [contents["model"]["vocab"]["<s>"]]


def test_names_without_brackets(tmp_path):
    contents = make_contents("GPT-2")
    config = {"pad_token": "!", "additional_special_tokens": ["the"], "cls_token": "CLS"}
    tokenizer = check_equals_transformers(write_directory(tmp_path, contents, config), same_special=False)
    assert set(tokjax.special_tokens(tokenizer)) == {"<mask>", "CLS"}
    assert tokjax.encode(tokenizer, "!").tolist() == [contents["model"]["vocab"]["!"]]
    config["added_tokens_decoder"] = {"5": describe("!")}
    tokenizer = check_equals_transformers(write_directory(tmp_path, contents, config), same_special=False)
    assert tokenizer.vocabulary.roles["pad"] == "!"


def test_other_ids(tmp_path, caplog):
    contents = make_contents("GPT-2")
    size = len(contents["model"]["vocab"])
    config = {
        "added_tokens_decoder": {size: describe("<new>"), size + 7: describe("[X]"), 0: describe("<s>")}
    }
    check_equals_transformers(write_directory(tmp_path, contents, config))
    ids = f"'[X]', which has {size + 7} there, but gets {size + 1}, as in transformers"
    expected = "added tokens with other ids than in the configuration files of the directory: 1, such as "
    assert expected + ids in caplog.text


def test_ids_of_other_tokens(tmp_path):
    contents = make_contents("unigram")
    vocab = {piece: i + (i > 5) for i, (piece, _) in enumerate(contents["model"]["vocab"])}
    contents["model"] = {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}
    write_directory(tmp_path, contents, {"pad_token": "<new>"})
    with pytest.raises(tokjax.errors.TokenizerFormatError, match=f"id {len(vocab)} .*'<new>'"):
        tokjax.load_tokenizer(tmp_path)


def test_older_file_without_flags(tmp_path):
    contents = make_contents("BERT")
    write_directory(tmp_path, contents, added={"<mask>": MASK_ID})
    tokenizer = check_equals_transformers(tmp_path)
    assert json.loads(tokenizer.definition)["added_tokens"] == contents["added_tokens"]


def test_special_tokens_remain_special(tmp_path):
    config = {"added_tokens_decoder": {0: describe("<mask>", special=False, lstrip=True)}}
    tokenizer = check_equals_transformers(
        write_directory(tmp_path, make_contents("GPT-2"), config), same_special=False
    )
    assert "<mask>" in tokjax.special_tokens(tokenizer)
    assert load_by_transformers(tmp_path).decode([MASK_ID], skip_special_tokens=True) == ""


def test_damaged_configuration(tmp_path):
    write_directory(tmp_path, make_contents("GPT-2"), {"added_tokens_decoder": {"x": describe("<a>")}})
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="expected an id and a token, each once"):
        tokjax.load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "damage", [{"added_tokens": [5]}, {"added_tokens": {"a": 1}}, {"model": 5}, {"model": {"vocab": [5]}}]
)
def test_damaged_definitions(tmp_path, damage):
    write_directory(tmp_path, make_contents("GPT-2") | damage, {"pad_token": "<new>"})
    with pytest.raises(tokjax.errors.TokenizerFormatError):
        tokjax.load_tokenizer(tmp_path)
