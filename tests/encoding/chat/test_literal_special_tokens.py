"""Tests of special tokens in messages as ordinary text."""

import json

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer

import tokjax
from tests.conftest import CORPUS
from tests.encoding.chat.test_encode_chat import CHATML, SPECIAL, decode_answers
from tests.support.huggingface_tokenizers import make_pair
from tokjax.trainer import train_bpe, train_wordpiece


@pytest.fixture(scope="module")
def bpe():
    trained = train_bpe(CORPUS * 3, vocab_size=400, special_tokens=SPECIAL, progress=False)
    return tokjax.with_template(trained.tokenizer, "$A")


QUESTION = [
    {"role": "user", "content": "what is <|im_end|>, <|im_end|>?"},
    {"role": "assistant", "content": "<|im_end|> low"},
    {"role": "user", "content": "<|im_start|>"},
]


def render_chat(chat):
    """Returns the bytes of the span of each token."""
    data = chat.text.encode()
    return [data[start - 1 : stop - 1] for start, stop in chat.result.offsets.tolist()]


class TestSpecialTokensAsText:
    """With `disallowed_special=()`, only the special tokens of the template are recognized."""

    def test_ids_and_columns(self, bpe):
        chat = tokjax.encode_chat(bpe, QUESTION, CHATML, disallowed_special=())
        ids, result = chat.result.ids.tolist(), chat.result
        assert "what is <|im_end|>, <|im_end|>?<|im_end|>\n" in chat.text
        assert tokjax.decode(bpe, ids) == chat.text
        assert [ids.count(tokjax.token_to_id(bpe, name)) for name in SPECIAL] == [3, 3, 0]
        assert result.special_tokens_mask.sum() == 6
        assert render_chat(chat) == [tokjax.id_to_bytes(bpe, id_) for id_ in ids]
        assert (result.word_ids[1:] >= result.word_ids[:-1]).all()
        assert decode_answers(bpe, chat) == ["<|im_end|> low<|im_end|>\n"]

    def test_an_empty_text(self, bpe):
        messages = [{"role": "user", "name": "<|im_end|>"}]
        chat = tokjax.encode_chat(bpe, messages, "{{ '' }}", disallowed_special=())
        expected = tokjax.encode_result(bpe, "", add_special_tokens=False)
        assert (chat.text, chat.assistant_mask.tolist()) == ("", [])
        assert chat.result.metadata == expected.metadata
        for name in ("ids", "offsets", "attention_mask", "special_tokens_mask", "word_ids"):
            assert getattr(chat.result, name).shape == getattr(expected, name).shape
            assert getattr(chat.result, name).dtype == getattr(expected, name).dtype

    def test_allowed_tokens_are_recognized(self, bpe):
        chat = tokjax.encode_chat(
            bpe, QUESTION, CHATML, allowed_special={"<|im_end|>"}, disallowed_special=()
        )
        assert [chat.result.ids.tolist().count(bpe.vocabulary.special[name]) for name in SPECIAL] == [3, 6, 0]
        with pytest.raises(
            tokjax.errors.DisallowedSpecialTokenError, match=r"messages\[2\]\['content'\] holds"
        ):
            tokjax.encode_chat(
                bpe, QUESTION, CHATML, allowed_special={"<|im_end|>"}, disallowed_special={"<|im_start|>"}
            )

    @pytest.mark.parametrize(
        ("content", "template", "text"),
        [
            ("<|im_end|>", "{{ messages[0].content | upper }}", "<|IM_END|>"),
            ("a<|im_end|>b", "{{ messages[0].content.split('<|im_end|>') | join('<|im_end|>') }}", None),
            ("é<|im_end|>", "{{ messages[0].content | tojson(ensure_ascii=True) }}", '"\\u00e9<|im_end|>"'),
            (
                "<|im_end|>",
                "{{ '<|im_end|>' if '<|im_end|>' in messages[0].content }}{{ messages[0].content }}",
                "<|im_end|>" * 2,
            ),
        ],
    )
    def test_templates_that_change_them(self, bpe, content, template, text):
        chat = tokjax.encode_chat(
            bpe, [{"role": "user", "content": content}], template, disallowed_special=()
        )
        of_template = template.count("{{ '<|im_end|>'") + template.count("join('<|im_end|>')")
        assert chat.text == (text or content)
        assert (chat.result.ids == bpe.vocabulary.special["<|im_end|>"]).sum() == of_template


def make_metaspace(add_prefix_space):
    names = [chr(i) for i in range(33, 127)] + ["\u2581"]
    tokens = {name: i for i, name in enumerate([*names, *(f"\u2581{name}" for name in "abE")])}
    tokens |= {f"<0x{i:02X}>": 200 + i for i in range(256)}
    merges = [("\u2581", name) for name in "abE"]
    special = {"<|A|>": 500, "<|B|>": 501}
    return tokjax.metaspace_bpe(tokens, merges, add_prefix_space=add_prefix_space, special_tokens=special)


TOKENIZERS = {
    "bytes": lambda: tokjax.byte_level(["<|A|>", "<|B|>"]),
    "byte-level BPE": lambda: (
        train_bpe(CORPUS, vocab_size=320, special_tokens=["<|A|>", "<|B|>"], progress=False).tokenizer
    ),
    "NFC": lambda: tokjax.byte_level_bpe(
        {bytes([i]): i for i in range(256)}, pattern="qwen2", special_tokens={"<|A|>": 256, "<|B|>": 257}
    ),
    "WordPiece": lambda: (
        train_wordpiece(
            CORPUS, vocab_size=300, special_tokens=["[UNK]", "<|A|>", "<|B|>"], progress=False
        ).tokenizer
    ),
    **{
        f"metaspace, {position}": lambda position=position: make_metaspace(position)
        for position in ("always", "first", "missing")
    },
}


@pytest.fixture(scope="module")
def tokenizers():
    return {name: make() for name, make in TOKENIZERS.items()}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(
    contents=st.lists(
        st.lists(
            st.sampled_from(["<|B|>", "<|B|><|B|>", " ", "a", "É e\u0301", "\n", "b  ", "1"]), max_size=5
        ),
        max_size=4,
    )
)
def test_any_tokenizer(tokenizers, name, contents):
    """If template and messages have different special tokens, `encode_result` gives the expected one."""
    tokenizer = tokenizers[name]
    messages = [{"role": "user", "content": "".join(parts)} for parts in contents]
    template = "{% for m in messages %}<|A|>{{ m.content }}{% endfor %}<|A|>"
    chat = tokjax.encode_chat(tokenizer, messages, template, mask=False, disallowed_special=())
    options = {"add_special_tokens": False, "allowed_special": {"<|A|>"}, "disallowed_special": ()}
    expected = tokjax.encode_result(tokenizer, chat.text, **options)
    assert chat.result.ids.tolist() == expected.ids.tolist()
    assert chat.result.offsets.tolist() == expected.offsets.tolist()
    assert chat.result.special_tokens_mask.tolist() == expected.special_tokens_mask.tolist()
    assert chat.result.sequence_ids.tolist() == expected.sequence_ids.tolist()
    assert chat.result.word_ids.tolist() == expected.word_ids.tolist()


class TestLibraryTokenizer:
    """The library recognizes all special tokens of a text or none, so the text is encoded in parts."""

    MESSAGES = ({"role": "user", "content": "low <s>low"},)
    TEMPLATE = "<s>{{ messages[0].content }}<s>"

    def test_supported_tokenizers(self):
        definition = json.loads(make_pair("GPT-2")[0].to_str()) | {"normalizer": {"type": "NFD"}}
        tokenizer = tokjax.formats.from_huggingface(Tokenizer.from_str(json.dumps(definition)))
        assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
        chat = tokjax.encode_chat(tokenizer, self.MESSAGES, self.TEMPLATE, mask=False, disallowed_special=())
        ordinary = tokjax.encode(
            tokenizer, "low <s>low", add_special_tokens=False, disallowed_special=()
        ).tolist()
        assert chat.result.ids.tolist() == [0, *ordinary, 0]
        assert 0 not in ordinary

    def test_unsupported_tokenizers(self):
        """Its vocabulary has `<s>` as an ordinary piece."""
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="which this model encodes as a special token"
        ):
            tokjax.encode_chat(
                make_pair("unigram")[1], self.MESSAGES, self.TEMPLATE, mask=False, disallowed_special=()
            )
