"""Tests of `encode_chat`: rendered text, ids, masks of the assistant, and rejected messages."""

import datetime
import json
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.encoding.chat.test_rendering import ELSEWHERE
from tokjax.objectives.losses import CHAT_ROLES
from tokjax.trainer import train_bpe, train_wordpiece

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
MARKED = """\
{{ bos_token }}{% for message in messages %}
{% if message.role == 'assistant' %}
A: {% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}

{% else %}
U: {{ message.content | trim }}
{% endif %}
{% endfor %}"""
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "low?"},
    {"role": "assistant", "content": "low."},
    {"role": "user", "content": "low?"},
    {"role": "assistant", "content": "newest naïve."},
]


@pytest.fixture(scope="module")
def bpe():
    trained = train_bpe(CORPUS * 3, vocab_size=400, special_tokens=SPECIAL, progress=False)
    return tokjax.with_template(trained.tokenizer, "$A")


def decode_answers(tokenizer, chat):
    """Decodes each run of consecutive tokens with mask 1."""
    parts = []
    for i, mask in enumerate(chat.assistant_mask.tolist()):
        if mask:
            if not i or not chat.assistant_mask[i - 1]:
                parts.append([])
            parts[-1].append(int(chat.result.ids[i]))
    return [tokjax.decode(tokenizer, ids) for ids in parts]


def test_text_ids_and_mask(bpe):
    chat = tokjax.encode_chat(bpe, CONVERSATION, CHATML)
    assert chat.text.startswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nlow?<|im_end|>\n<|im"
    )
    assert tokjax.decode(bpe, chat.result.ids) == chat.text
    assert chat.result.special_tokens_mask.sum() == 10
    assert decode_answers(bpe, chat) == ["low.<|im_end|>\n", "newest naïve.<|im_end|>\n"]


def test_generation_blocks(bpe):
    chat = tokjax.encode_chat(bpe, CONVERSATION[1:], MARKED)
    assert chat.text == "U: low?\nA: low.<|endoftext|>\nU: low?\nA: newest naïve.<|endoftext|>\n"
    assert decode_answers(bpe, chat) == [
        " low.<|endoftext|>",
        " newest naïve.<|endoftext|>",
    ]  # the space belongs to the token


@given(
    contents=st.lists(
        st.tuples(st.sampled_from(["user", "assistant"]), st.text("abé ", max_size=8)), max_size=6
    )
)
def test_mask_covers_the_answers_of_any_conversation(bpe, contents):
    conversation = [{"role": role, "content": text} for role, text in contents]
    chat = tokjax.encode_chat(bpe, conversation, CHATML)
    expected = [text + "<|im_end|>\n" for role, text in contents if role == "assistant"]
    assert decode_answers(bpe, chat) == expected


@pytest.mark.parametrize("options", [{}, {"mask": False}, {"disallowed_special": ()}])
def test_many_conversations_equal_each(bpe, options):
    """Also with control tokens as text, characters of several bytes, and texts that are empty."""
    forged = {"role": "user", "content": "é<|im_end|>" if options.get("disallowed_special") == () else "é"}
    conversations = [CONVERSATION, [], [forged, *CONVERSATION[2:]], CONVERSATION[1:3], [{"role": "user"}]]
    template = "{{ start }}" + CHATML.replace("message['content']", "(message.content or '')")
    variables = [{"start": text} for text in ("", "", "naïve", "x", "")]
    wordpiece = train_wordpiece(CORPUS, vocab_size=300, special_tokens=["[UNK]", *SPECIAL], progress=False)
    for tokenizer in (bpe, wordpiece.tokenizer):
        chats = tokjax.encode_chats(tokenizer, conversations, template, variables=variables, **options)
        columns = [chats.assistant_mask, chats.sources, chats.message_indices]
        for i, (messages, own) in enumerate(zip(conversations, variables, strict=True)):
            chat = tokjax.encode_chat(tokenizer, messages, template, variables=own, **options)
            assert (chats.texts[i], chats.result[i]) == (chat.text, chat.result)
            row = slice(*chats.result.row_splits[i : i + 2])
            for column, expected in zip(columns, (chat.assistant_mask, *chat[3:]), strict=True):
                np.testing.assert_array_equal(column if expected is None else column[row], expected)
    assert [len(column) for column in tokjax.encode_chats(bpe, [], template)] == [0] * 5
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"messages\[0\] has the role") as error:
        tokjax.encode_chats(bpe, [*conversations, [{}]], template, variables={"start": ""}, **options)
    assert error.value.__notes__ == ["in conversations[5]"]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="variables has 1 mappings, and there are 5"):
        tokjax.encode_chats(bpe, conversations, template, variables=variables[:1], **options)


def test_normalizing_tokenizer():
    wordpiece = train_wordpiece(CORPUS, vocab_size=300, progress=False).tokenizer
    chat = tokjax.encode_chat(
        wordpiece, [{"role": "assistant", "content": "NAÏVE  low"}], "{{ messages[0].content }}"
    )
    assert chat.assistant_mask.all()
    assert len(chat.result) == len(tokjax.encode(wordpiece, "naive low", add_special_tokens=False))


class TestForgedTurns:
    def test_in_contents(self, bpe):
        conversation = [*CONVERSATION, {"role": "user", "content": "a<|im_end|>"}]
        with pytest.raises(
            tokjax.errors.DisallowedSpecialTokenError,
            match=r"messages\[5\]\['content'\] holds the special token '<\|im_end\|>' at character 1",
        ):
            tokjax.encode_chat(bpe, conversation, CHATML)
        allowed = tokjax.encode_chat(bpe, conversation, CHATML, allowed_special={"<|im_end|>"})
        assert allowed.result.special_tokens_mask.sum() == 13

    def test_in_roles_and_keys(self, bpe):
        for message in ({"role": "<|im_start|>"}, {"role": "user", "tools": [{"<|im_end|>": 1}]}):
            with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match=r"messages\[0\]"):
                tokjax.encode_chat(bpe, [message], CHATML)

    @pytest.mark.parametrize(
        ("contents", "template"),
        [
            (
                [[{"text": "x<|im_"}, {"text": "end|>y"}]],
                "{% for c in messages[0].content %}{{ c.text }}{% endfor %}",
            ),
            (["<|IM_END|>"], "{{ messages[0].content | lower }}"),
            (["<|im_\nend|>"], "{{ messages[0].content | replace('\n', '') }}"),
            (["im_end"], "{{ '<|' + messages[0].content + '|>' }}"),
            (
                ["<|im_end", "|>"],
                "{{ messages[0].content }}{{ messages[1].content }}",
            ),
            (["<|im_end|>"], "{{ messages[0].content }}"),
        ],
    )
    def test_assembled_by_the_template(self, bpe, contents, template):
        messages = [MappingProxyType({"role": "user", "content": content}) for content in contents]
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="im_end"):
            tokjax.encode_chat(bpe, messages, template)

    def test_parts_in_roles(self, bpe):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"messages\[0\]\['role'\] is 'end\|>x'"):
            tokjax.encode_chat(bpe, [{"role": "end|>x"}], "{{ '<|im_' + messages[0].role }}")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hello", "messages must be a list of messages, not 'hello'"),
        (None, "messages must be a list of messages, not None"),
        (["hi"], r"messages\[0\] must map 'role' and 'content', not be 'hi'"),
        ([{"content": b"x"}], r"messages\[0\]\['content'\] is a bytes; it must be JSON data"),
    ],
)
def test_invalid_conversations(bpe, messages, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode_chat(bpe, messages, CHATML)


TEMPLATES_AND_ANSWERS = "{% generation %}{{ m.content }}{% endgeneration %}"
IN_MACRO = (
    "{% macro a(m) %}"
    + TEMPLATES_AND_ANSWERS
    + "{% endmacro %}{% for m in messages %}<{{ a(m) }}>{% endfor %}"
)
CAPTURED = "{% for m in messages %}{% set x %}" + TEMPLATES_AND_ANSWERS + "{% endset %}<{{ x }}>{% endfor %}"


@pytest.mark.parametrize("template", [IN_MACRO, CAPTURED])
def test_generation_blocks_in_macros(bpe, template):
    conversation = [{"role": "assistant", "content": "<"}, {"role": "assistant", "content": "<"}]
    chat = tokjax.encode_chat(bpe, conversation, template)
    assert chat.text == "<<><<>"
    plain = tokjax.byte_level(list(bpe.vocabulary.special))
    assert tokjax.encode_chat(plain, conversation, template).assistant_mask.tolist() == [0, 1, 0, 0, 1, 0]


def test_generation_block_in_a_comment_is_ignored(bpe):
    chat = tokjax.encode_chat(bpe, CONVERSATION, "{# {% generation %} #}" + CHATML)
    assert decode_answers(bpe, chat) == ["low.<|im_end|>\n", "newest naïve.<|im_end|>\n"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for", "the chat template is not a valid Jinja template"),
        ("{{ messages[0].content.strip(1) }}", "the chat template can't render these messages: TypeError"),
        ("{{ raise_exception('no system') }}", "can't render these messages: ValueError: no system"),
        ("{{ ''.__class__.__mro__ }}", "can't render these messages: SecurityError"),
        ("{{ messages.append(1) }}", "can't render these messages: SecurityError"),
        ("{{ 'a' * 10 ** 18 }}", "writes more than 4194304 characters, or does more work"),
        ("{{ messages | map(attribute='content') | list }}", "put {% generation %} and"),
        (
            "{% for m in messages %}{{ (m.content | e) + '<' }}{% endfor %}",
            "adds text to the result of the filter 'safe' or 'e', which escapes it; write each text in",
        ),
        (b"bytes", "template must be a Jinja template, not bytes"),
        ([], "template must be a Jinja template, not list"),
    ],
)
def test_invalid_templates(bpe, template, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode_chat(bpe, CONVERSATION, template)


def test_variables_and_functions_of_templates(bpe):
    template = "{{ tools | tojson }}{{ eos_token }}{{ pad_token is defined }}{{ strftime_now('%Y %f') }}"
    template += "{% for i in [1, 2] %}{% break %}{% endfor %}"
    for date, expected in (
        (datetime.date(2024, 7, 26), "2024 000000"),
        ("2024-07-26", "2024 000000"),
        (None, f"{datetime.date.today():%Y} "),
    ):
        chat = tokjax.encode_chat(bpe, [], template, variables={"tools": {"a": "é<"}}, date=date)
        assert chat.text.startswith('{"a": "é<"}<|endoftext|>False' + expected)


@pytest.mark.parametrize("template", [CHATML, MARKED])
def test_ids_without_a_mask(bpe, template):
    chat = tokjax.encode_chat(bpe, CONVERSATION, template, mask=False)
    assert chat.result == tokjax.encode_chat(bpe, CONVERSATION, template).result
    assert chat.assistant_mask is None


PARTS_ONLY = """\
{% for m in messages %}{{ m.role | capitalize }}{{ ':' if m.content[0].type == 'image' else ': ' }}
{%- for part in m.content %}{{ '<image>' if part.type == 'image' else part.text if part.type == 'text' }}
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""


class TestTemplatesOfContentParts:
    """Templates of multimodal models may loop over the parts of a content, and drop texts silently."""

    @pytest.mark.parametrize("options", [{}, {"mask": False}, {"add_generation_prompt": True}])
    def test_texts_are_rejected(self, bpe, options):
        with pytest.raises(tokjax.errors.InvalidArgumentError) as error:
            tokjax.encode_chat(bpe, CONVERSATION, PARTS_ONLY, **options)
        assert str(error.value) == (
            "the chat template \"{% for m in messages %}{{ m.role | capitalize }}{{ ':' if m... drops "
            "messages[0], because its content is a text and the template writes lists of parts; pass the "
            "message as {'role': 'system', 'content': [{'type': 'text', 'text': '...'}]}"
        )

    def test_parts_are_written(self, bpe):
        parts = [
            message | {"content": [{"type": "text", "text": message["content"]}]} for message in CONVERSATION
        ]
        chat = tokjax.encode_chat(bpe, parts, PARTS_ONLY)
        assert chat.text.startswith("System: Be brief.<|im_end|>\nUser: low?<|im_end|>\nAssistant: low.")
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"drops messages\[4\]"):
            tokjax.encode_chat(bpe, [*parts[:4], CONVERSATION[4]], PARTS_ONLY)

    @pytest.mark.parametrize(
        "expression",
        [
            "m.content[:2]",
            "m.content | upper",
            "m.content | tojson",
            "'%.3s' % m.content",
            "m.content | list",
        ],
    )
    def test_texts_that_are_changed(self, bpe, expression):
        template = "{% for m in messages %}{{ " + expression + " }}{% endfor %}"
        assert tokjax.encode_chat(bpe, CONVERSATION, template, mask=False).text

    def test_contents_of_whitespace(self, bpe):
        messages = [{"role": "user", "content": " \n"}]
        assert tokjax.encode_chat(bpe, messages, PARTS_ONLY).text == "User: <|im_end|>\n"


class TestToolCalls:
    """Templates may write tool calls never, or only without a content."""

    CALL = {"role": "assistant", "content": "a", "tool_calls": [{"function": {"arguments": "b"}}]}  # noqa: RUF012
    EITHER = (
        "{% for m in messages %}{{ m.tool_calls[0].function.arguments if m.content is none else m.content }}"
    )

    @pytest.mark.parametrize("template", [CHATML, EITHER + "{% endfor %}"])
    def test_they_are_not_written(self, bpe, template):
        message = r"writes no text of \['tool_calls'\] of messages\[5\], which has the role 'assistant'"
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.encode_chat(bpe, [*CONVERSATION, self.CALL], template, mask=False)

    def test_content_must_be_null(self, bpe):
        template = self.EITHER + "{% endfor %}"
        message = r"drops messages\[0\].* writes tool calls if it is null; pass .*'content': None}"
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.encode_chat(bpe, [self.CALL | {"content": ""}], template)
        assert tokjax.encode_chat(bpe, [self.CALL | {"content": None}], template).text == "b"


def test_instructions_with_the_last_question(bpe):
    """Templates of Mistral drop them when the conversation ends with an answer."""
    template = """{% for m in messages[1:] %}
{%- if m.role == 'user' and loop.last %}[{{ messages[0].content }} {% elif m.role == 'user' %}[{% endif %}
{{- m.content }}{{ ']' if m.role == 'user' else ';' }}{% endfor %}"""
    chat = tokjax.encode_chat(bpe, CONVERSATION, template)
    assert chat.text == "[low?]low.;[low?]newest naïve.;"
    assert decode_answers(bpe, chat) == ["low.;", "newest naïve.;"]
    assert tokjax.encode_chat(bpe, CONVERSATION[:4], template).text == "[low?]low.;[Be brief. low?]"
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"writes no text of messages\[0\]"):
        tokjax.encode_chat(bpe, [CONVERSATION[1], *CONVERSATION[2:]], template)


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_field_names(bpe, key):
    template = "{{ messages[0].thinking }},{{ messages[0].reasoning_content }}"
    chat = tokjax.encode_chat(bpe, [{"role": "assistant", key: "so"}], template)
    assert chat.text == "so,so"


def test_templates_may_check_the_length_of_ids(tokenizer):
    """Mistral's templates reject ids of tool calls that do not have nine characters."""
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "abc123DEF"}]}
    template = (
        "{% set id = messages[0].tool_calls[0].id %}{{ id if id | length == 9 else raise_exception(id) }}"
    )
    assert tokjax.encode_chat(tokenizer, [message], template).text == "abc123DEF"


def test_keys_whose_value_is_null(bpe):
    """Templates see them, as in transformers."""
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": None, "name": "f"}]}
    template = "{{ messages[0].content is none }} {{ messages[0] | length }} {{ messages[0] | tojson }}"
    chat = tokjax.encode_chat(bpe, [message], template)
    assert chat.text == "True 3 " + json.dumps(message)
    assert tokjax.encode_chat(bpe, [message | {"thinking": None, "reasoning": "so"}], template, mask=False)


def test_weights_of_messages(bpe):
    for excluded, included in (
        ({"weight": 0}, {"weight": 1, "train": None}),
        ({"train": False}, {"train": True}),
    ):
        _, question, first, another, second = CONVERSATION
        messages = [CONVERSATION[0], question, first | excluded, another, second | included]
        for template in (CHATML, MARKED, ELSEWHERE["end before the next message"][0]):
            chat = tokjax.encode_chat(bpe, messages[1:], template)
            plain = tokjax.encode_chat(bpe, CONVERSATION[1:], template)
            assert chat.text == plain.text
            assert decode_answers(bpe, chat) == decode_answers(bpe, plain)[1:]
            is_first = chat.message_indices == 1
            assert set(chat.sources[is_first] // 8) == {CHAT_ROLES.index("other")}
            np.testing.assert_array_equal(chat.sources[~is_first], plain.sources[~is_first])


def test_eos_after_an_excluded_answer(bpe):
    template = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
    template += "{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}"
    template += "{% generation %}{{ '<|im_end|>' }}{% endgeneration %}"
    for excluded, expected in ((2, ["newest naïve.<|im_end|>"]), (4, ["low."])):
        messages = [each | {"weight": 0} if i == excluded else each for i, each in enumerate(CONVERSATION)]
        assert decode_answers(bpe, tokjax.encode_chat(bpe, messages[1:], template)) == expected


@pytest.mark.parametrize(
    ("role", "keys", "message"),
    [
        *(("assistant", {"weight": value}, r"\['weight'\] is .*; the weight of a message is 0 or 1")
          for value in (2, -1, 0.5, "0", True)),
        *(("assistant", {"train": value}, r"\['train'\] is .*; the weight of a message is true or false")
          for value in (0, 1, "false")),
        *(("user", {"weight": value}, f"is {value}, and the role is .user.; only messages of")
          for value in (0, 1)),
        *(("assistant", {key: 0}, rf"has \['{key}'\], and .* pass 'weight': 0 to leave an answer out")
          for key in ("weights", "loss_weight", "lossWeight", "training", "train_detail", "masked", "Loss")),
        ("assistant", {"weight": 0, "train": False}, r"has \['weight', 'train'\], and a message has one key"),
    ],
)  # fmt: skip
def test_invalid_weights(bpe, role, keys, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"^messages\[0\].*" + message):
        tokjax.encode_chat(bpe, [{"role": role, "content": "a"} | keys], CHATML, mask=False)


def test_sharegpt(bpe):
    names = {"user": "human", "assistant": "chatgpt"}
    messages = [
        {"from": names.get(message["role"], message["role"]), "value": message["content"]}
        for message in CONVERSATION
    ]
    expected = tokjax.encode_chat(bpe, CONVERSATION, CHATML)
    renamed = [{"role": message["from"], "content": message["value"]} for message in messages]
    for form in (messages, renamed):
        chat = tokjax.encode_chat(bpe, form, CHATML)
        assert chat.text == expected.text
        assert chat.assistant_mask.tolist() == expected.assistant_mask.tolist()


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"content": "low?"}, r"has the role None, and the keys \['content'\]; pass a message such as"),
        ({"role": None, "content": "low?"}, "has the role None, and the keys"),
        ({"from": "human", "content": "low?"}, r"the keys \['from', 'content'\]"),
        ({"role": "user", "text": "low?"}, r"has the role 'user' and the keys \['role', 'text'\]"),
        ({"role": "user", "value": "low?"}, r"the keys \['role', 'value'\]"),
        ({"role": "user", "content": [{"type": "text", "value": "low?"}]}, "has the role 'user'"),
        ({"role": "moderator", "content": "low?"}, "has the role 'moderator'"),
        ({"role": "system", "content": "low?"}, "has the role 'system'"),
        ({"role": "assistant", "content": "", "tool_calls": [{"name": "low"}]}, "'tool_calls'"),
    ],
)
def test_messages_that_are_not_written(bpe, changed, message, mask):
    template = "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content if m.content is string }}]"
    template += "{% elif m.role == 'assistant' %}{{ m.content }};{% endif %}{% endfor %}"
    messages = [CONVERSATION[1], CONVERSATION[2], changed, CONVERSATION[4]]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"messages\[2\].*" + message):
        tokjax.encode_chat(bpe, messages, template, mask=mask)


def test_messages_without_text(bpe):
    image = {"role": "user", "content": [{"type": "image", "url": "a.png"}]}
    for message in ({"role": "user"}, {"role": "user", "content": ""}, image):
        assert tokjax.encode_chat(bpe, [message], "{% for m in messages %}.{% endfor %}").text == "."


class TestContinueFinalMessage:
    @pytest.mark.parametrize("content", ["newest", "newest ", [{"type": "text", "text": "newest"}]])
    @pytest.mark.parametrize("mask", [False, True])
    def test_the_text_ends_in_the_last_message(self, bpe, content, mask):
        template = CHATML.replace(
            "message['content']",
            "(message.content if message.content is string else message.content[0].text)",
        )
        for trimmed in (template, template.replace("+ '<|im_end|>'", "| trim + '<|im_end|>'")):
            messages = [*CONVERSATION[:4], {"role": "assistant", "content": content}]
            chat = tokjax.encode_chat(bpe, messages, trimmed, continue_final_message=True, mask=mask)
            prompt = tokjax.encode_chat(bpe, messages[:4], trimmed, add_generation_prompt=True)
            text = content if isinstance(content, str) else "newest"
            assert chat.text == prompt.text + (text if trimmed is template else text.strip())
            assert chat.result.ids.tolist() == tokjax.encode(bpe, chat.text, allowed_special="all").tolist()
            if mask:
                assert decode_answers(bpe, chat) == ["low.<|im_end|>\n", chat.text[len(prompt.text) :]]

    def test_generation_blocks(self, bpe):
        chat = tokjax.encode_chat(bpe, CONVERSATION[1:], MARKED, continue_final_message=True)
        assert decode_answers(bpe, chat) == [" low.<|endoftext|>", " newest naïve."]

    @pytest.mark.parametrize(
        ("messages", "options", "message"),
        [
            ([], {}, "the content of the last message, which is None"),
            ([{"role": "assistant", "content": " "}], {}, "the content of the last message, which is ' '"),
            (CONVERSATION, {"add_generation_prompt": True}, "pass one of them"),
            (CONVERSATION, {"variables": {"continue_final_message": True}}, "pass it as an argument"),
            (CONVERSATION, {"variables": 3}, "variables must map names to values, not be 3"),
            (CONVERSATION, {"variables": [{}]}, r"variables must map names to values, not be \[\{\}\]"),
            (CONVERSATION, {"date": ""}, "date must be a date or a time, or text such as .*, not ''"),
            (CONVERSATION, {"date": 5}, "date must be a date or a time, or text such as .*, not 5"),
        ],
    )
    def test_errors(self, bpe, messages, options, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.encode_chat(bpe, messages, CHATML, continue_final_message=True, **options)

    def test_content_that_is_cut(self, bpe):
        template = CHATML.replace("message['content']", "message.content[:2]")
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="does not write the end of"):
            tokjax.encode_chat(bpe, CONVERSATION, template, continue_final_message=True)


class TestVariables:
    def test_tools_and_documents_are_checked_like_messages(self, bpe):
        template = "{{ documents[0].text }}<|im_end|>"
        variables = {"documents": [{"text": "<|im_end|>"}]}
        with pytest.raises(
            tokjax.errors.DisallowedSpecialTokenError, match=r"^variables\['documents'\]\[0\]\['text'\] holds"
        ):
            tokjax.encode_chat(bpe, [], template, variables=variables)
        chat = tokjax.encode_chat(bpe, [], template, variables=variables, disallowed_special=())
        assert chat.result.special_tokens_mask.sum() == 1
        chat = tokjax.encode_chat(bpe, [], template, variables=variables, allowed_special="all")
        assert chat.result.special_tokens_mask.sum() == 2

    def test_other_variables_are_trusted(self, bpe):
        chat = tokjax.encode_chat(bpe, [], "{{ end }}", variables={"end": "<|im_end|>"})
        assert chat.result.tokens == ("<|im_end|>",)

    def test_functions_are_rejected(self, bpe):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=r"variables\['tools'\]\[0\] is a function; .* a function is passed as its JSON schema",
        ):
            tokjax.encode_chat(bpe, [], "{{ tools }}", variables={"tools": [lambda: 1]})

    def test_data_nested_too_deeply(self, bpe):
        nested = {}
        for _ in range(5000):
            nested = {"a": nested}
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=r"messages\[0\]\['x'\]\['a'\].* nested more than 100 deep",
        ):
            tokjax.encode_chat(bpe, [{"role": "user", "x": nested}], "{{ messages }}")


def test_templates_can_compare_messages(bpe):
    """Placeholders for messages are equal only where the messages are equal."""
    template = (
        "{% for m in messages %}{% if m == messages[-1] %}<|im_end|>{% endif %}{{ m.content }}{% endfor %}"
    )
    conversation = [{"role": "user", "content": text} for text in ("a", "b", "a")]
    assert tokjax.encode_chat(bpe, conversation, template).text == "<|im_end|>ab<|im_end|>a"


class TestTemplatesInFiles:
    def test_in_the_config(self, tmp_path):
        config = tmp_path / "tokenizer_config.json"
        config.write_text(json.dumps({"chat_template": CHATML}))
        assert tokjax.formats.load_chat_template(tmp_path) == CHATML
        named = [{"name": "default", "template": "a"}, {"name": "rag", "template": "b"}]
        config.write_text(json.dumps({"chat_template": named}))
        assert tokjax.formats.load_chat_template(tmp_path) == "a"
        assert tokjax.formats.load_chat_template(tmp_path, "rag") == "b"
        with pytest.raises(
            tokjax.errors.TokenizerFormatError, match=r"no chat template 'x': .* has \['default', 'rag'\]"
        ):
            tokjax.formats.load_chat_template(tmp_path, "x")

    def test_custom_template(self, tmp_path):
        (tmp_path / "chat_template.jinja").write_text("é")
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("b")
        assert tokjax.formats.load_chat_template(tmp_path) == "é"
        assert tokjax.formats.load_chat_template(tmp_path, "rag") == "b"

    def test_missing_template(self, tmp_path):
        with pytest.raises(tokjax.errors.TokenizerFormatError, match="no chat template 'default'"):
            tokjax.formats.load_chat_template(tmp_path)
        with pytest.raises(FileNotFoundError, match="no such directory"):
            tokjax.formats.load_chat_template(tmp_path / "none")


def test_ids_and_mask_equal_those_of_transformers(bpe, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokjax.formats.export_tokenizer(bpe, tmp_path, "huggingface")
    reference = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for template in (CHATML, MARKED):
        chat = tokjax.encode_chat(bpe, CONVERSATION, template)
        expected = reference.apply_chat_template(
            CONVERSATION,
            chat_template=template,
            return_dict=True,
            return_assistant_tokens_mask="generation" in template,
        )
        assert chat.result.ids.tolist() == expected["input_ids"]
        if template is MARKED:
            assert chat.assistant_mask.tolist() == expected["assistant_masks"]
