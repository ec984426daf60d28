"""Tests of the role, the field and the message of each token, for templates of the kinds that models have."""

import numpy as np
import pytest

import tokjax
from tests.encoding.chat.test_chat_template import CALL, TEMPLATES, TOOLS
from tests.support.numpy_jax_agreement import assert_agrees_in_jax
from tokjax.objectives import chat_loss_mask
from tokjax.objectives.losses import CHAT_FIELDS, CHAT_ROLES

BYTES = tokjax.byte_level([])
CONVERSATION = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": " three "},
    {"role": "assistant", "content": "four"},
]
QUOTED = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
QUOTED += "{% if add_generation_prompt %}<assistant>{% endif %}"


def read(messages, template, **options):
    """Lists the runs of a rendered text as `role.field: text`, with `*` if they are in the mask."""
    chat = tokjax.encode_chat(BYTES, messages, template, **options)
    raw = chat.text.encode()
    keys = list(zip(chat.sources.tolist(), chat.assistant_mask.tolist(), strict=True))
    assert len(raw) == len(keys)
    runs, start = [], 0
    for i in range(1, len(raw) + 1):
        if i == len(raw) or keys[i] != keys[start]:
            code, mask = keys[start]
            role, field = CHAT_ROLES[code // 8], CHAT_FIELDS[code % 8]
            runs.append(f"{role}.{field}{'*' * mask}: {raw[start:i].decode()}")
            start = i
    return runs


ANSWER = ["assistant.header: <assistant>", "assistant.content*: four", "assistant.scaffold*: </>"]


def test_roles_and_fields():
    assert read(CONVERSATION[:2], QUOTED) == [
        "user.scaffold: <user>",
        "user.content: one",
        "user.scaffold: </>",
        "assistant.header: <assistant>",
        "assistant.content*: two",
        "assistant.scaffold*: </>",
    ]
    assert read(CONVERSATION[:1], QUOTED, add_generation_prompt=True)[-1] == (
        "assistant.generation_prompt: <assistant>"
    )


SAME_TEXT = {
    "concatenated first": """\
{% set ns = namespace(text='') %}{% for m in messages %}
{% set ns.text = ns.text + '<' + m.role + '>' + m.content + '</>' %}{% endfor %}{{ ns.text }}
{%- if add_generation_prompt %}<assistant>{% endif %}""",
    "macro": """\
{% macro turn(m) %}<{{ m.role }}>{{ m.content }}</>{% endmacro %}
{% for m in messages %}{% set x %}{{ turn(m) }}{% endset %}{{ x | trim('_') }}{% endfor %}
{% if add_generation_prompt %}<assistant>{% endif %}""",
    "indices": """\
{% for i in range(messages | length) %}
{{ '<{}>{}</>'.format(messages[i].role, messages[i].content) }}
{%- endfor %}{{ '<assistant>' if add_generation_prompt }}""",
    "percent": """\
{% for m in messages %}{{ '<%s>%s</>' % (m.role, m.content) }}{% endfor %}
{{ '<assistant>' if add_generation_prompt }}""",
    "filter join": """\
{% for m in messages %}{{ ['<', m.role, '>', m.content, '</>'] | join }}{% endfor %}
{{ '<assistant>' if add_generation_prompt }}""",
    "method join": """\
{% for m in messages %}{{ ''.join(['<', m.role, '>', m.content, '</>']) }}{% endfor %}
{{ '<assistant>' if add_generation_prompt }}""",
    "slice and replace": """\
{% for m in messages %}{{ ('..<R>C</>' | replace('R', m.role))[2:].replace('C', m.content) }}{% endfor %}
{{ '<assistant>' if add_generation_prompt }}""",
    "prompt in the loop": """\
{% for m in messages %}<{{ m.role }}>{{ m.content }}</>
{{- '<assistant>' if loop.last and add_generation_prompt }}{% endfor %}""",
    "prompt or end": QUOTED.replace("{% endif %}", "{% else %}{{ eos_token or '' }}{% endif %}"),
}


@pytest.mark.parametrize("name", SAME_TEXT)
def test_templates_that_write_the_same_text(name):
    template = SAME_TEXT[name]
    expected = read(CONVERSATION, QUOTED)
    variables = {"eos_token": None}
    assert read(CONVERSATION, template, variables=variables) == expected
    with_prompt = read(CONVERSATION[:3], QUOTED, add_generation_prompt=True)
    assert read(CONVERSATION[:3], template, variables=variables, add_generation_prompt=True) == with_prompt


def test_end_of_text_instead_of_a_prompt():
    template = QUOTED.replace("{% endif %}", "{% else %}</s>{% endif %}")
    assert read(CONVERSATION, template)[-4:] == [*ANSWER, "none.scaffold: </s>"]


@pytest.mark.parametrize(
    "template",
    [
        "<user>{{ messages[0].content }}<assistant>{{ messages[1].content }}</>",
        "{{ '<user>' + messages[0].content + '<assistant>' + messages[1].content + '</>' }}",
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}</>",
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ '<' }}{{ '/>' }}",
    ],
)
@pytest.mark.parametrize("prompt", [False, True])
def test_end_of_an_answer_after_the_last_message(template, prompt):
    end = "{% if add_generation_prompt %}<assistant>{% endif %}"
    runs = read(CONVERSATION[:2], template + end, add_generation_prompt=prompt)
    expected = ["assistant.content*: two", "assistant.scaffold*: </>"]
    assert runs[-3 if prompt else -2 :][:2] == expected
    assert runs[-1] == ("assistant.generation_prompt: <assistant>" if prompt else expected[-1])


def test_text_between_two_texts_of_a_message():
    """Nemotron Nano 2 writes the last answer after the loop, from variables that a first loop has set."""
    template = """{% for m in messages[:-1] %}<{{ m.role }}>{{ m.content }}</>{% endfor %}
{%- set last = messages[-1] %}<assistant>{{ last.content }}[{% for c in last.tool_calls %}
{{- '{"name": "' ~ c.function.name ~ '", "arguments": ' ~ (c.function.arguments | tojson) ~ '}' }}
{%- endfor %}]</>"""
    messages = [CONVERSATION[0], {"role": "assistant", "content": "two", "tool_calls": [CALL]}]
    assert read(messages, template)[3:] == [
        "none.scaffold: <assistant>",
        "assistant.content*: two",
        'assistant.scaffold*: [{"name": "',
        "assistant.tool_call*: get",
        'assistant.scaffold*: ", "arguments": ',
        'assistant.tool_call*: {"city": "Köln", "days": [1, 2], "x": null}',
        "assistant.scaffold*: }]</>",
    ]


def test_text_after_the_last_message_of_a_user():
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}</>"
    assert read(CONVERSATION[:3], template)[-2:] == ["user.content:  three ", "none.scaffold: </>"]


def test_whitespace_before_the_header():
    template = QUOTED.replace("<{{ m.role }}>", "{{ '\n' }}<{{ m.role }}>")
    assert "assistant.header: \n<assistant>" in read(CONVERSATION, template)


BEGIN = "{% for m in messages %}"
END = "{% endfor %}"
# Templates that write the end of a turn or the next header elsewhere, and the text that a model writes.
ELSEWHERE = {
    "end before the next message": (
        BEGIN + "{{ '</>' if not loop.first }}<{{ m.role }}>{{ m.content }}" + END + "</>"
        "{{ '<assistant>' if add_generation_prompt }}",
        ["two</>", "four</>"],
    ),
    "end after the last message only with a prompt": (
        BEGIN
        + "<{{ m.role }}>{{ m.content }}{{ '</>' if not loop.last or add_generation_prompt }}"
        + END
        + "{{ '<assistant>' if add_generation_prompt and messages[-1].role != 'assistant' }}",
        ["two</>", "four"],
    ),
    "end before the next message of a user only": (
        BEGIN
        + "{{ '</>' if m.role == 'user' and not loop.first }}<{{ m.role }}>{{ m.content }}"
        + END
        + "{{ '<assistant>' if add_generation_prompt }}",
        ["two</>", "four"],
    ),
    "always a prompt": (QUOTED.split("{% if")[0] + "<assistant>", ["two</>", "four</>"]),
    "always a prompt, with more text in answers": (
        BEGIN
        + "<{{ m.role }}>{{ '<text>' if m.role == 'assistant' }}{{ m.content }}</>"
        + END
        + "<assistant>",
        ["<text>two</>", "<text>four</>"],
    ),
    "next header in the step of an answer": (
        BEGIN + "{{ '<user>' if loop.first }}{{ m.content }}{% if m.role == 'user' %}<assistant>{% else %}</>"
        "{{ '<user>' if not loop.last }}{% endif %}" + END,
        ["two</>", "four</>"],
    ),
    "instructions before the prompt": (
        QUOTED.replace("%}<assistant>", "%}<system>Act!</><assistant>"),
        ["two</>", "four</>"],
    ),
    "no header": (BEGIN + "{{ m.content }}{{ '</>' if m.role == 'assistant' }}" + END, ["two</>", "four</>"]),
    "longer prompt than in the history": (
        QUOTED.replace("%}<assistant>", "%}<assistant>\n<think>"),
        ["two</>", "four</>"],
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_turns_end_where_the_model_ends_them(name):
    template, written = ELSEWHERE[name]
    assert [run.split(": ", 1)[1] for run in join_turns(read(CONVERSATION, template))] == written
    # The rendering of the messages before an answer ends where its turn begins.
    tool = {"role": "tool", "content": "data"}
    for messages in (CONVERSATION, [*CONVERSATION[:2], tool, CONVERSATION[3]], [*CONVERSATION * 7]):
        chat = tokjax.encode_chat(BYTES, messages, template)
        for i in range(1, len(messages), 2):
            before = tokjax.encode_chat(BYTES, messages[:i], template, mask=False, add_generation_prompt=True)
            begin = len(before.text)
            if chat.text.startswith(before.text):
                assert chat.assistant_mask[begin - 1 : begin + 1].tolist() == [0, 1]


@pytest.mark.parametrize("prompt", ["assistant:\n", "assistant: <think>", "Now answer.\nassistant:\n"])
def test_prompt_after_an_answer_is_not_trained(prompt):
    """Also if it differs from the header of an answer, whose turn ends with whitespace."""
    template = BEGIN + "{{ m.role }}: {{ m.content }}\n\n" + END
    template += f"{{% if add_generation_prompt %}}{prompt}{{% endif %}}"
    runs = read(CONVERSATION, template, add_generation_prompt=True)
    assert runs == [*read(CONVERSATION, template), f"assistant.generation_prompt: {prompt}"]
    trained = [
        tokjax.encode_chat(BYTES, CONVERSATION, template, add_generation_prompt=with_prompt).assistant_mask
        for with_prompt in (False, True)
    ]
    np.testing.assert_array_equal(*(np.flatnonzero(mask) for mask in trained))


DEFAULT = "{{ '<system>Act!</>' if loop.first and m.role != 'system' }}"


@pytest.mark.parametrize(
    "template",
    [
        QUOTED.replace(BEGIN, BEGIN + DEFAULT),
        # The prompt is written in the loop, so not after an answer.
        BEGIN + DEFAULT + "<{{ m.role }}>{{ m.content }}</>"
        "{{ '<assistant>' if loop.last and add_generation_prompt and m.role != 'assistant' }}" + END,
        # Another end after the last message.
        BEGIN + DEFAULT + "<{{ m.role }}>{{ m.content }}"
        "{{ '</>' if add_generation_prompt or not loop.last else '<end>' }}"
        + END
        + "{{ '<assistant>' if add_generation_prompt }}",
    ],
)
def test_answers_without_a_prompt_before_them(template):
    """The first message, whose header follows default instructions, and answers in a row."""
    one, two, three, four = CONVERSATION
    only = [[two]] if "<end>" in template else []
    for messages in ([two, three, four], [one, two, four], [two, four, three, two], *only):
        chat = tokjax.encode_chat(BYTES, messages, template)
        trained = [turn.split(": ", 1)[1] for turn in join_turns(read(messages, template))]
        answers = [message["content"] for message in messages if message["role"] == "assistant"]
        assert "<assistant>" not in "".join(trained)
        assert "Act" not in "".join(trained)
        assert all(map(str.startswith, trained, answers)), chat.text


def test_first_answer_of_a_template_without_prompts():
    template = BEGIN + DEFAULT + "<{{ m.role }}>{{ m.content }}</>" + END
    turns = join_turns(read(CONVERSATION[1:], template))
    assert [turn.split(": ", 1)[1] for turn in turns] == ["<assistant>two</>", "<assistant>four</>"]


def join_turns(runs):
    """Joins the consecutive runs that are in the mask."""
    joined = []
    for i, run in enumerate(runs):
        if "*" in run:
            field, text = run.split(": ", 1)
            joined.append(joined.pop() + text if i and "*" in runs[i - 1] else f"{field}: {text}")
    return joined


@pytest.mark.parametrize("prompt", [False, True])
def test_prompts_at_the_end(prompt):
    """A prompt that the template always writes is not part of the answer before it."""
    template = ELSEWHERE["always a prompt"][0]
    runs = read(CONVERSATION, template, add_generation_prompt=prompt)
    assert runs[-4:] == [*ANSWER, "assistant.generation_prompt: <assistant>"]
    template = ELSEWHERE["end after the last message only with a prompt"][0]
    runs = read(CONVERSATION, template, add_generation_prompt=prompt)
    assert runs[-2 - prompt :] == [*ANSWER[:2], *ANSWER[2:][:prompt]]


def test_end_of_the_last_turn_after_a_tool_call():
    template = """{% for m in messages %}{{ '</>' if not loop.first }}<{{ m.role }}>{{ m.content }}
{%- if m.tool_calls %}({{ m.tool_calls | tojson }}){% endif %}{% endfor %}</>
{{- '<assistant>' if add_generation_prompt }}"""
    messages = [CONVERSATION[0], {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    for last in ([], [{"role": "tool", "content": "20"}]):
        assert join_turns(read([*messages, *last], template))[0].endswith("}])</>")


WITH_REASONING = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "<think>why</think>\n\ntwo"},
    {"role": "user", "content": "three"},
    {"role": "assistant", "content": "four", "reasoning_content": "because"},
]


class TestReasoning:
    def test_dropped_from_earlier_turns(self):
        runs = read(WITH_REASONING, TEMPLATES["macro"], add_generation_prompt=False)
        assert (
            runs[-8:]
            == [
                "assistant.header: <|assistant|>",
                "assistant.content*: two",
                "user.scaffold: <|user|>",
                "user.content: three",
                "assistant.header: <|assistant|>",
                "assistant.scaffold*: <think>",
                "assistant.reasoning*: because",
                "assistant.scaffold*: </think>",
                "assistant.content*: four",
            ][-8:]
        )

    def test_empty_reasoning_that_the_prompt_provides(self):
        template = QUOTED.replace("<assistant>", "<assistant>[]").replace(
            ">{{ m.content }}",
            ">{{ '[' ~ (m.reasoning_content or '') ~ ']' if m.role == 'assistant' }}{{ m.content }}",
        )
        runs = read(WITH_REASONING, template)
        assert runs[3] == "assistant.header: <assistant>[]"
        assert runs[9:13] == [
            "assistant.header: <assistant>[",
            "assistant.reasoning*: because",
            "assistant.scaffold*: ]",
            "assistant.content*: four",
        ]


def test_parts_of_contents():
    parts = [{"type": "thinking", "thinking": "why"}, {"type": "text", "text": "two"}]
    template = QUOTED.replace(
        "{{ m.content }}", "{% for p in m.content %}{{ p.type }}{{ p.thinking }}{{ p.text }}{% endfor %}"
    )
    assert read([{"role": "assistant", "content": parts}], template) == [
        "assistant.header: <assistant>",
        "assistant.scaffold*: thinking",
        "assistant.reasoning*: why",
        "assistant.scaffold*: text",
        "assistant.content*: two",
        "assistant.scaffold*: </>",
    ]


def test_tool_calls_and_results():
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "content": {"degrees": 20}},
        {"role": "assistant", "content": "two"},
    ]
    runs = read(messages, TEMPLATES["header"], variables={"tools": TOOLS, "bos_token": "", "date": "now"})
    assert (
        runs[-9:]
        == [
            "user.content: one",
            "user.scaffold: <|end|>",
            "assistant.header: <|assistant|>",
            'assistant.tool_call*: get{"city": "Köln", "days": [1, 2], "x": null}',
            "assistant.scaffold*: <|end|>",
            "tool.scaffold: <|tool|>",
            'tool.tool_result: {"degrees": 20}',
            "tool.scaffold: <|end|>",
            "assistant.header: <|assistant|>",
            "assistant.content*: two",
            "assistant.scaffold*: <|end|>",
        ][-9:]
    )
    assert runs[0].startswith("none.scaffold: ")


def test_name_of_the_call_before_a_result():
    template = """{% set ns = namespace(name='') %}{% for m in messages %}{% if m.tool_calls %}
{% set ns.name = m.tool_calls[0].function.name %}{{ 'call ' + ns.name }}
{%- else %}{{ ns.name + ': ' + m.content }}{% endif %}{% endfor %}"""
    messages = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "20"}]
    assert read(messages, template) == [
        "assistant.scaffold*: call ",
        "assistant.tool_call*: get",
        "tool.scaffold: get: ",
        "tool.tool_result: 20",
    ]


def test_calls_and_results_under_other_names():
    """OLMo 3 has calls as a text in `function_calls`, and results in messages of the role `environment`."""
    template = QUOTED.replace("{{ m.content }}", "{{ m.content or '' }}{{ m.function_calls }}")
    messages = [
        {"role": "assistant", "content": None, "function_calls": "get(x=1)"},
        {"role": "environment", "content": "20"},
    ]
    assert read(messages, template) == [
        "assistant.header: <assistant>",
        "assistant.tool_call*: get(x=1)",
        "assistant.scaffold*: </>",
        "tool.scaffold: <environment>",
        "tool.tool_result: 20",
        "tool.scaffold: </>",
    ]


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("texts | join('\n') | title", "the filter 'title'"),
        ("texts | list | string", "the filter 'string'"),
        ("[texts] | join", "the text of a list or mapping"),
        ("texts | list", "the text of a list or mapping"),
    ],
)
def test_lost_sources_name_the_function(expression, function):
    template = "{% set texts = messages | map(attribute='content') | list %}{{ " + expression + " }}"
    with pytest.raises(tokjax.errors.InvalidArgumentError) as error:
        tokjax.encode_chat(BYTES, CONVERSATION[:2], template)
    message = str(error.value)
    assert message.startswith("the chat template makes ")
    assert f" with {function}, which combines texts of different origin" in message
    assert "Pass mask=False to get the ids without a mask" in message
    assert tokjax.encode_chat(BYTES, CONVERSATION[:2], template, mask=False).sources is None


@pytest.mark.parametrize(
    "expression",
    [
        "m.content | safe",
        "m.content | safe | trim",
        "m.content | tojson | safe | replace('\"', '')",
        "m.content | e",
        "'%.9s%s' % (m.content, '')",
        "'%(a)s' % {'a': m.content}",
        "'%s' | format(m.content)",
        "m.content.format()",
        "m.content | replace('o', 'oo') | replace('oo', 'o')",
        "m.content | replace('&', '-') | replace('w', 'w', count=1)",
        "[m.content] | join",
        "[[m.content]] | join | replace(\"'\", '') | trim('[]')",
        "messages | selectattr('content', 'eq', m.content) | join(attribute='content')",
    ],
)
def test_expressions_that_keep_the_field(expression):
    messages = [{"role": "user", "content": "<one>"}, {"role": "assistant", "content": "&two."}]
    template = QUOTED.replace("{{ m.content }}", "{{ " + expression + " }}")
    runs = [run.split(":")[0] for run in read(messages, template)]
    assert [run for run in runs if "content" in run] == ["user.content", "assistant.content*"]
    fields = {
        "user.content",
        "user.scaffold",
        "assistant.header",
        "assistant.content*",
        "assistant.scaffold*",
    }
    assert set(runs) == fields
    # Outside a loop, all text without a source is outside the messages.
    expression = expression.replace("m.content", "messages[0].content")
    runs = [run.split(":")[0] for run in read(messages[1:], "{{ " + expression + " }}")]
    assert "assistant.content*" in runs


def test_next_message_in_a_loop_over_indices():
    template = """{% for i in range(messages | length) %}<{{ messages[i].role }}>{{ messages[i].content }}
{%- if i + 1 < messages | length and messages[i + 1].role %}</>{% else %}</>{% endif %}
{% endfor %}{{ '<assistant>' if add_generation_prompt }}"""
    assert read(CONVERSATION, template) == read(CONVERSATION, QUOTED)


def test_answers_in_the_step_of_another_message():
    template = "{% for m in messages if m.role == 'user' %}{% set i = 2 * loop.index0 + 1 %}"
    template += "[{{ m.content }}]{{ messages[i].content }}{% endfor %}"
    runs = read(CONVERSATION, template)
    assert "assistant.content*: two" in runs
    assert runs[-1] == "assistant.content*: four"


def test_templates_can_not_read_sources():
    template = "{% for m in messages %}{{ m.content.get_runs is defined }}{{ m.content._stops is defined }}"
    template += "{{ m._index is defined }}{{ ([m.content] | map(attribute='_stops') | first) is defined }}"
    template += "{% endfor %}"
    messages = [{"role": "user", "content": ""}]
    assert tokjax.encode_chat(BYTES, messages, template).text == "False" * 4


@pytest.mark.parametrize(
    "expression",
    [
        "m.content | replace('x', 'y', count=1)",
        "m.content | list | join",
        "m.content | reverse | reverse",
        "m.content[::-1][::-1]",
        "[m.content] | map('trim', 'x') | first",
        "[m.content] | map('string') | list | last",
        "'{}'.format(m.content)",
        "'{x}{{'.format(x=m.content)[:-1]",
        "m.get('content', '')",
        "m.items() | list | map('last') | list | last",
        "(m.content ~ '|' ~ m.content).split('|')[1]",
        "m.content.partition('zz')[0]",
        "dict(x=m.content).x",
        "namespace(x=m.content).x",
        "m.content | default('x')",
        "m.content if m.content is string else ''",
        "m.content | indent(2)",
        "[[m.content, 1]] | map(attribute=0) | join",
        "(m.content | tojson)[1:-1]",
        "({'x': m.content} | tojson)[7:-2]",
    ],
)
def test_expressions_that_keep_the_sources(expression):
    template = QUOTED.replace("m.content", expression)
    assert read(CONVERSATION, template) == read(CONVERSATION, QUOTED)


def test_indented_lines():
    messages = [{"role": "user", "content": "a\n\nb"}, {"role": "assistant", "content": "c\rd"}]
    template = "{% for m in messages %}<{{ m.content | indent(1, true) }}>{% endfor %}"
    assert read(messages, template) == [
        "user.scaffold: < ",
        "user.content: a\n\n b",
        "user.scaffold: >",
        "assistant.scaffold*: < ",
        "assistant.content*: c\n d",
        "assistant.scaffold*: >",
    ]


def test_lost_sources_do_not_matter_if_the_text_is_not_written():
    template = "{% if (messages | map(attribute='content') | list | string) == '' %}x{% endif %}" + QUOTED
    assert read(CONVERSATION, template) == read(CONVERSATION, QUOTED)


def test_generation_blocks_equal_the_sources():
    template = QUOTED.replace("{{ m.content }}</>", "{{ m.content }}</>{% endif %}").replace(
        "<{{ m.role }}>",
        "<{{ m.role }}>{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}</>{% endgeneration %}{% else %}",
    )
    assert read(CONVERSATION, template) == read(CONVERSATION, QUOTED)


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_character_of_an_answer(name):
    """No text of a user is trained on, and all answers are, whatever the template does with them."""
    messages = [{"role": "user", "content": "ONE"}, {"role": "assistant", "content": "TWO"}]
    if name == "filters":
        messages = [{"role": "user", "content": ""}]
    chat = tokjax.encode_chat(
        BYTES, messages, TEMPLATES[name], variables={"bos_token": "", "eos_token": "</s>"}
    )
    raw = chat.text.encode()
    for word, wanted in ((b"ONE", 0), (b"TWO", 1)):
        at = raw.find(word)
        assert at < 0 or set(chat.assistant_mask[at : at + 3].tolist()) == {wanted}
    assert (b"TWO" in raw) == (name != "filters")


def test_tokens_of_several_sources_belong_to_the_answer():
    ranks = {bytes([i]): i for i in range(256)} | {b">t": 256, b"o<": 257, b">o": 258}
    tokenizer = tokjax.byte_level_bpe(ranks, pattern=r"(?s).+")
    chat = tokjax.encode_chat(tokenizer, CONVERSATION[:2], QUOTED)
    ids, mask, codes = chat.result.ids.tolist(), chat.assistant_mask.tolist(), chat.sources.tolist()
    assert [mask[ids.index(token)] for token in (256, 257, 258)] == [1, 1, 0]
    assert [CHAT_FIELDS[codes[ids.index(token)] % 8] for token in (256, 257, 258)] == ["content"] * 3
    assert chat.message_indices[ids.index(258)] == 0


REWRITING = {
    "nothing": (QUOTED, 1),
    "reasoning": (QUOTED.replace("{{ m.content }}", "{{ m.thinking if loop.last }}{{ m.content }}"), 3),
    "reasoning before the last question": (TEMPLATES["macro"], 3),
    "end of the turn": (QUOTED.replace("{{ m.content }}", "{{ m.content }}{{ '!' if loop.last }}"), 3),
    "end of the text": (QUOTED + "{% if not add_generation_prompt %}</s>{% endif %}", 3),
}


@pytest.mark.parametrize("name", REWRITING)
def test_each_answer_is_trained_once_as_it_was_produced(name):
    template, count = REWRITING[name]
    messages = []
    for i in range(3):
        messages.append({"role": "user", "content": f"q{i}"})
        messages.append({"role": "assistant", "content": f"a{i}", "thinking": f"t{i}"})
    variables = {"enable_thinking": True}
    chats = tokjax.chat_examples(BYTES, [*messages, messages[0]], template, variables=variables)
    assert len(chats) == count
    trained = [(chat, i) for chat in chats for i in np.unique(chat.message_indices[chat.assistant_mask == 1])]
    assert [i for _, i in trained] == [1, 3, 5]
    for chat, i in trained:
        produced = tokjax.encode_chat(BYTES, messages[: i + 1], template, variables=variables)
        texts = [
            tokjax.decode(BYTES, each.result.ids[(each.assistant_mask == 1) & (each.message_indices == i)])
            for each in (chat, produced)
        ]
        assert texts[0] == texts[1]
    masks = [chat_loss_mask(chat.sources) == 1 for chat in chats]
    trained_messages = [
        np.unique(chat.message_indices[mask]) for chat, mask in zip(chats, masks, strict=True)
    ]
    assert np.concatenate(trained_messages).tolist() == [1, 3, 5]
    assert tokjax.chat_examples(BYTES, messages[:1], template) == []
    for option in ({"add_generation_prompt": True}, {"mask": False}):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="chat_examples ends each text after an"):
            tokjax.chat_examples(BYTES, messages, template, **option)


def test_messages_of_tokens():
    chat = tokjax.encode_chat(BYTES, CONVERSATION, QUOTED + "!")
    assert chat.message_indices.dtype == np.int32
    assert chat.sources.dtype == np.int8
    assert sorted(set(chat.message_indices.tolist())) == [-1, 0, 1, 2, 3]
    assert chat.message_indices[-1] == -1
    assert np.all(np.diff(chat.message_indices[:-1]) >= 0)


def test_chat_without_messages():
    chat = tokjax.encode_chat(BYTES, [], QUOTED, add_generation_prompt=True)
    assert read([], QUOTED, add_generation_prompt=True) == ["assistant.generation_prompt: <assistant>"]
    assert not chat.assistant_mask.any()
    assert tokjax.encode_chat(BYTES, [], QUOTED).sources.shape == (0,)


class TestLossMask:
    def test_roles_and_fields(self):
        codes = np.array([8 * role + field for role in range(7) for field in range(8)], np.int8).reshape(7, 8)
        choices = [
            {"roles": roles, "fields": fields}
            for roles in ((), ("user",), ("assistant", "tool"), CHAT_ROLES)
            for fields in ((), ("header",), ("content", "scaffold"), CHAT_FIELDS[:-1])
        ]

        def make_some_masks(codes):
            return [chat_loss_mask(codes, **options) for options in choices[6:14:4]]

        for options in choices:
            mask = chat_loss_mask(codes, **options)
            expected = [
                [role in options["roles"] and field in options["fields"] for field in CHAT_FIELDS]
                for role in CHAT_ROLES
            ]
            np.testing.assert_array_equal(mask, expected)
        assert_agrees_in_jax(make_some_masks, make_some_masks(codes), (codes,), eager=True)

    def test_default_is_the_mask_of_the_answers(self):
        chat = tokjax.encode_chat(BYTES, CONVERSATION, QUOTED)
        np.testing.assert_array_equal(chat_loss_mask(chat.sources), chat.assistant_mask)
        users = chat_loss_mask(chat.sources, roles=("user",), fields=("content",))
        assert tokjax.decode(BYTES, chat.result.ids[users == 1]) == "one three "

    def test_invalid_names(self):
        for options, message in (
            ({"roles": ("model",)}, "a name in roles must be 'none', 'system', 'developer', .*, not 'model'"),
            ({"fields": ("thinking",)}, "a name in fields must be 'scaffold', .*, not 'thinking'"),
            ({"roles": "user"}, r"roles must be a list of names, not 'user'; pass \['user'\]"),
        ):
            with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
                chat_loss_mask(np.zeros(1, np.int8), **options)
