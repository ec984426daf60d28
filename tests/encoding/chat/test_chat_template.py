"""Tests that chat templates render as in transformers, for the features that published templates use."""

import itertools

import pytest

import tokjax
from tests.conftest import CORPUS
from tokjax.trainer import train_bpe

SPECIAL = [
    *("<|user|>", "<|assistant|>", "<|system|>", "<|tool|>", "<|end|>", "<s>", "</s>"),
    *("[INST]", "[/INST]", "[TOOLS]", "[/TOOLS]"),
]
TEMPLATES = {
    # namespace, slices of messages, trim, tojson(indent=), defaults of variables: Llama 3
    "header": """\
{{- bos_token }}
{%- if not date is defined %}{% set date = '1 May' %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set first = '' %}
{%- endif %}
<|system|>{{ date + ': ' + first }}
{%- for tool in tools or [] %}{{ tool | tojson(indent=4) }}{% endfor %}
{%- for m in messages %}
    {%- if 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
        {{- '<|assistant|>' ~ m.tool_calls[0].function.name ~ m.tool_calls[0].function.arguments | tojson }}
    {%- elif m.content is mapping or m.content is iterable and m.content is not string %}
        {{- '<|' + m.role + '|>' }}{{ m.content | tojson }}
    {%- else %}
        {{- '<|' + m.role + '|>' + m.content | trim }}
    {%- endif %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}""",
    # comparisons of messages, selectattr, slices of strings, roles that alternate: Mistral
    "instructions": """\
{%- set asked = messages | selectattr('role', 'equalto', 'user') | list %}
{%- set ns = namespace(turn=0) %}
{%- for m in messages if m.role in ('user', 'assistant') and m.tool_calls is not defined %}
    {%- if (m.role == 'user') != (ns.turn % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
    {%- set ns.turn = ns.turn + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if tools and m == asked[-1] %}{{ '[TOOLS]' ~ tools | tojson ~ '[/TOOLS]' }}{% endif %}
        {{- '[INST]' + m.content | string + '[/INST]' }}
    {%- elif m.tool_calls is defined %}
        {%- for call in m.tool_calls %}
            {{- (call.function | tojson)[:-1] ~ ', "id": "' ~ call.id | default('none') ~ '"}' }}
            {{- eos_token if loop.last else ', ' }}
        {%- endfor %}
    {%- else %}
        {{- m.content ~ eos_token }}
    {%- endif %}
{%- endfor %}""",
    # macros, kinds of content, tojson(ensure_ascii=False), items of arguments, split: GLM-4, DeepSeek
    "macro": """\
{%- macro shown(content) -%}
    {%- if content is string -%}
        {{ content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content if part.type == 'text' %}{{ part.text }}{% endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last=-1, system='') %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
    {%- if m.role == 'system' %}{% set ns.system = ns.system + m.content %}{% endif %}
{%- endfor %}
{{- '<|system|>' + ns.system }}
{% for tool in tools or [] %}
{{ tool | tojson(ensure_ascii=False) }}{{ tool | tojson(true, none, (',', ':'), true) }}
{% endfor %}
{%- for m in messages if m.role != 'system' %}
    {%- set content = shown(m.content) %}
    {%- if '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|' + m.role + '|>' }}
    {%- if m.reasoning_content is string and loop.index0 > ns.last %}
        {{- '<think>' + m.reasoning_content.strip() + '</think>' }}
    {%- endif %}
    {{- content.strip() }}
    {%- for call in m.tool_calls or [] %}
        {%- for name, value in call.function.arguments.items() %}
            {{- name }}={{ value if value is string else value | tojson(ensure_ascii=False) }};
        {%- endfor %}
    {%- endfor %}
{%- endfor %}
{%- if add_generation_prompt and enable_thinking is not false %}{{ '<|assistant|>' }}{% endif %}""",
    # loops from the end, thinking, ~, map, join, break and continue, strftime_now: Qwen 3, gpt-oss
    "reversed": """\
{%- set ns = namespace(last=messages | length - 1, open=true) %}
{%- for m in messages[::-1] %}
    {%- if m.role != 'user' %}{% continue %}{% endif %}
    {%- set ns.last = (messages | length - 1) - loop.index0 %}
    {%- break %}
{%- endfor %}
{{- '<|system|>' ~ strftime_now('%%') ~ (effort or 'medium') }}
{%- for tool in tools or [] %}
    {%- for name, kind in tool.function.parameters.properties.items() %}
        {{- name ~ ('' if name in (tool.function.parameters.required or []) else '?') }}
        {{- kind.enum | map('tojson') | join(' | ') if kind.enum else kind.type }}
    {%- endfor %}
{%- endfor %}
{%- for m in messages %}
    {{- '<|' ~ m.role ~ '|>' }}
    {%- if m.thinking and loop.index0 > ns.last %}{{ m.thinking ~ '\\n' }}{% endif %}
    {%- if 'content' in m %}{{ m.content | string }}{% endif %}
    {%- if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}""",
    # documents, generation blocks, raising errors: Command R, Gemma, SmolLM 3
    "documents": """\
{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}
{% for d in documents or [] %}
{{ loop.index }}{% for k, v in d | dictsort %}{{ k | title }}: {{ v }}{% endfor %}
{% endfor %}
{% for m in messages %}
{% if m.role == 'assistant' %}
<|assistant|>{% generation %}{{ (m.content or m.tool_calls[0].id) | trim }}{{ eos_token }}{% endgeneration %}

{% else %}
<|{{ m.role }}|>{{ m['content'] }}
{% endif %}
{% endfor %}""",
    # other features of Jinja
    "filters": """\
{{ messages | tojson }} {{ messages | map(attribute='role') | unique | join }}
{{ [3, 1] | sort }} {{ 'a b' | title }} {{ 3.7 | int }} {{ ['x', 'y'] | reverse | list }}
{{ dict(a=1) | items | list }} {{ '%s-%03d' | format('a', 7) }} {{ '%5s|%s' % ('a', 1) }}
{{ '{}:{:d}{{{x}'.format('é', 3, x=[1]) }} {{ 'a\\nb' | indent(2) }} {{ {messages[0].role: 1, 2: 'x'} }}
{{ none | default('y', true) }} {{ 7 // 2 }} {{ 2 ** 8 }} {{ 'ab' * 2 }} {{ 3 is odd }} {{ -2 | abs }}
{{ 'a' ~ 1 ~ none }} {{ 'É<' | lower | e }} {{ ['b', 'a'] | min }} {{ 'x'.join('abc') }} {{ 1 < 2 <= 2 }}
{{ 'b' not in 'abc' }} {{ 2 in [1, 2] }} {{ 'role' in messages[0] }} {{ 'a,b'.split(',', 1) }}
{% set x %}abc{% endset %}{{ x[::-1] }} {% filter upper %}q{% endfilter %}
{% for a in [1, 2, 3] if a > 1 %}
{{ loop.index }}/{{ loop.length }}{{ loop.cycle('x', 'y') }}{% else %}none{% endfor %}
{% for a in [[1, [2]]] recursive %}{{ loop.depth }}{{ loop(a) if a is iterable }}{% endfor %}
{% macro twice(a) %}{{ a }}{{ caller() }}{{ varargs | length }}{% endmacro %}
{% call twice(1, 2) %}c{% endcall %}""",
}
CALL = {"id": "abc", "function": {"name": "get", "arguments": {"city": "Köln", "days": [1, 2], "x": None}}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get",
            "description": "Gets <it> & é",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Köln", "Rom"]}, "days": {"type": "array"}},
                "required": ["city"],
            },
        },
    }
]


def make_conversation(*contents, **last):
    """Makes a conversation with alternating roles. `last` has more keys of the last message."""
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    messages[-1] |= last
    return messages


CONVERSATIONS = [
    make_conversation("hi "),
    make_conversation("low?", " lower\n", "low", "<think>so</think>\n\nnew"),
    [{"role": "system", "content": "Be é."}, *make_conversation("a", "b", "a", "d")],
    make_conversation("a", "b", reasoning_content="because"),
    make_conversation("a", "b", "c", "d", thinking="because"),
    make_conversation("a", "b", reasoning="because"),
    [
        *make_conversation("a", "", tool_calls=[CALL]),
        {"role": "tool", "content": "20 <b>"},
        *make_conversation("b", "c", name="d"),
    ],
    make_conversation([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "x"),
]


@pytest.fixture(scope="module")
def tokenizer():
    trained = train_bpe(CORPUS * 3, vocab_size=300, special_tokens=SPECIAL, progress=False)
    return tokjax.with_template(trained.tokenizer, "$A")


@pytest.fixture(scope="module")
def library_tokenizer(tokenizer, tmp_path_factory):
    transformers = pytest.importorskip("transformers", minversion="5")
    directory = tmp_path_factory.mktemp("tokenizer")
    tokjax.formats.export_tokenizer(tokenizer, directory, "huggingface")
    reference = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    reference.bos_token, reference.eos_token = "<s>", "</s>"
    return reference


@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_equal_those_of_transformers(tokenizer, library_tokenizer, name):
    rendered = 0
    other_variables = {"enable_thinking": False, "documents": [{"title": "t", "text": "é"}]}
    for messages, prompt, tools, variables in itertools.product(
        CONVERSATIONS, (0, 1), (None, TOOLS), ({}, other_variables)
    ):
        options = {"add_generation_prompt": bool(prompt)}
        passed = {"bos_token": "<s>", "eos_token": "</s>", "tools": tools, **variables}
        try:
            expected = library_tokenizer.apply_chat_template(
                messages, chat_template=TEMPLATES[name], tools=tools, **options, **variables
            )["input_ids"]
        except Exception:  # templates raise errors of any type
            with pytest.raises(tokjax.errors.InvalidArgumentError, match="can't render these messages"):
                tokjax.encode_chat(
                    tokenizer, messages, TEMPLATES[name], mask=False, variables=passed, **options
                )
            continue
        chat = tokjax.encode_chat(
            tokenizer, messages, TEMPLATES[name], mask=False, variables=passed, **options
        )
        assert chat.result.ids.tolist() == expected
        rendered += 1
    assert rendered >= 16


def test_special_tokens_in_messages_are_text_as_in_transformers(tokenizer, library_tokenizer):
    # Only at the start and the end of a message, where transformers always splits the text.
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    for messages in (
        make_conversation("<|end|>"),
        make_conversation("<|end|><|system|>", "a"),
        make_conversation("a", "b", "</s>", "<s></s>"),
    ):
        chat = tokjax.encode_chat(tokenizer, messages, template, disallowed_special=())
        expected = library_tokenizer.apply_chat_template(
            messages, chat_template=template, sanitize_control_tokens=True
        )
        assert chat.result.ids.tolist() == expected["input_ids"]


def test_tojson_arguments(tokenizer):
    """The arguments are positional or keywords: `tojson(x, ensure_ascii, indent, separators, sort_keys)`."""
    variables = {"x": {"b": "é", "a": [1]}}
    for arguments, expected in {
        "": '{"b": "é", "a": [1]}',
        "(false)": '{"b": "é", "a": [1]}',
        "(ensure_ascii=True)": '{"b": "\\u00e9", "a": [1]}',
        "(true, 1)": '{\n "b": "\\u00e9",\n "a": [\n  1\n ]\n}',
        "(separators=(',', ':'), sort_keys=true)": '{"a":[1],"b":"é"}',
    }.items():
        template = "{{ x | tojson" + arguments + " }}"
        assert tokjax.encode_chat(tokenizer, [], template, variables=variables).text == expected
