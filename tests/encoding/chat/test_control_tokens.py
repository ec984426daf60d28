"""Attacks on conversations: no text of a message becomes a control token that is not special."""

import io

import pytest
import sentencepiece

import tokjax
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError

NAMES = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "[INST]", "/no_think"]
TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.name %}{{ message.name }}: {% endif %}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{%- if message.role == 'tool' %}<tool_response>{% endif %}
{%- if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}{{ part.text }}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if tools %}{{ tools[0].name }}{{ tools | tojson }}{% endif %}
{%- if documents %}{{ documents[0].text }}{% endif %}
{%- if enable_thinking is false %}/no_think{% endif %}"""


def make_bpe():
    special = {"<|im_start|>": 256, "<|im_end|>": 257}
    bpe = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}, special_tokens=special)
    return tokjax.extend_vocabulary(bpe, NAMES)[0]


def make_library_tokenizer():
    """A tokenizer on the `tokenizers` library, which matches added tokens in its own way."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    vocab = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    library = Tokenizer(models.BPE(vocab, []))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    library.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    library.add_tokens([AddedToken(name, normalized=False) for name in NAMES])
    return tokjax.formats.from_huggingface(library)


def make_sentencepiece():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hi system user assistant tool a b x0 y tk_<>[]/|:"] * 9),
        model_writer=model,
        vocab_size=400,
        hard_vocab_limit=False,
        user_defined_symbols=["<|im_start|>", "<|im_end|>", *NAMES, "<h1>", "  "],
        minloglevel=2,
    )
    return tokjax.sentencepiece(model.getvalue())


@pytest.fixture(scope="module", params=[make_bpe, make_library_tokenizer, make_sentencepiece])
def tokenizer(request):
    return request.param()


def make_conversations(text):
    """Yields messages and variables with a text in each field that is not the assistant's own."""
    for role in ("user", "system", "tool"):
        yield [{"role": role, "content": text}], {}
        yield [{"role": role, "content": [{"type": "text", "text": text}]}], {}
    yield [{"role": "user", "name": text, "content": "hi"}], {}
    for variables in ({"tools": [{"name": text}]}, {"documents": [{"text": text}]}):
        yield [{"role": "user", "content": "hi"}], variables


def encode_as_text(tokenizer, messages, variables):
    """Encodes control tokens as text; `None` if a SentencePiece model adds a space after its symbols."""
    try:
        return tokjax.encode_chat(tokenizer, messages, TEMPLATE, variables=variables, disallowed_special=())
    except InvalidArgumentError as error:
        if not isinstance(tokenizer, tokjax.models.SentencePieceTokenizer) or "can't encode" not in str(
            error
        ):
            raise
        return None


def count_names(tokenizer, result):
    ids = result.ids.tolist()
    return [ids.count(tokjax.token_to_id(tokenizer, name)) for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_texts_become_no_control_token(tokenizer, name):
    for text in (name, f"hi{name}{name}\n<|im_start|>a"):
        for messages, variables in make_conversations(text):
            with pytest.raises(DisallowedSpecialTokenError, match="holds the special token"):
                tokjax.encode_chat(tokenizer, messages, TEMPLATE, variables=variables)
            expected = [{**each, "content": "hi", "name": "a"} for each in messages]
            own = count_names(tokenizer, tokjax.encode_chat(tokenizer, expected, TEMPLATE).result)
            chat = encode_as_text(tokenizer, messages, variables)
            if chat is not None:
                assert name in chat.text
                assert count_names(tokenizer, chat.result) == own


@pytest.mark.parametrize("options", [{}, {"disallowed_special": ()}])
def test_names_in_several_texts(tokenizer, options):
    """Parts complete each other, or text of the template."""
    for name in NAMES:
        for i in range(1, len(name)):
            parts = [{"type": "text", "text": name[:i]}, {"type": "text", "text": name[i:]}]
            with pytest.raises(DisallowedSpecialTokenError, match="with these messages the chat template"):
                tokjax.encode_chat(tokenizer, [{"role": "user", "content": parts}], TEMPLATE, **options)
    completed = "{% for message in messages %}<thi{{ message.content }}<tool_call>{% endfor %}"
    with pytest.raises(DisallowedSpecialTokenError, match="writes '<think>' 1 times"):
        tokjax.encode_chat(tokenizer, [{"role": "user", "content": "nk>"}], completed, **options)


def test_text_that_the_model_normalizes():
    """NFKC makes ASCII of full-width letters, and the symbols are matched after that."""
    message = {"role": "user", "content": "＜think＞"}
    with pytest.raises(DisallowedSpecialTokenError, match="normalizes .* to the control token '<think>'"):
        tokjax.encode_chat(make_sentencepiece(), [message], TEMPLATE)


def test_answers(tokenizer):
    """The assistant writes them, and so does the template."""
    question = {"role": "user", "content": "hi"}
    answer = {"role": "assistant", "content": "<think>a</think>b", "tool_calls": [{"name": "a"}]}
    messages = [question, {**answer, "reasoning_content": "b"}]
    chat = tokjax.encode_chat(tokenizer, messages, TEMPLATE, mask=False)
    assert count_names(tokenizer, chat.result) == [2, 2, 1, 1, 0, 0, 0]
    with pytest.raises(DisallowedSpecialTokenError, match=r"messages\[1\]\['content'\] holds .* '<think>'"):
        tokjax.encode_chat(tokenizer, messages, TEMPLATE, trust_answers=False)
    user = {"role": "user", "content": "<think>"}
    chat = tokjax.encode_chat(tokenizer, [user, answer], TEMPLATE, mask=False, allowed_special={"<think>"})
    assert count_names(tokenizer, chat.result) == [2, 1, 1, 1, 0, 0, 0]


def test_answers_beside_text_of_a_user():
    chat = tokjax.encode_chat(
        make_bpe(),
        [{"role": "user", "content": "<think>"}, {"role": "assistant", "content": "<think>a"}],
        TEMPLATE,
        disallowed_special=(),
    )
    assert count_names(make_bpe(), chat.result)[0] == 1


def test_words_and_whitespace_are_text():
    chat = tokjax.encode_chat(
        make_sentencepiece(), [{"role": "user", "content": "<h1>hi</h1>  a"}], TEMPLATE, mask=False
    )
    assert "<h1>" in chat.text
