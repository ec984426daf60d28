"""Tests of preference pairs: their formats, what counts in the loss, and packed rows from disk."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.byte_tokenizers import make_byte_tokenizer
from tokjax.datasets import Column, PreferenceField
from tokjax.packing import split_preference_pairs

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
TEXTS = tokjax.byte_level(["</s>", "<pad>"], eos_token="</s>", pad_token="<pad>")
MERGED = make_byte_tokenizer("<s>", "</s>", "<pad>", tokens=[b"ab", b"bc", b"abc"], pattern="gpt2")
CHATS = make_byte_tokenizer("<|im_start|>", "<|im_end|>", "<pad>")


def encode(field, *records):
    """Returns the ids, the targets and the sides of each record."""
    rows = field.encode_rows([json.dumps(record) for record in records])
    splits = np.asarray(rows.rows.row_splits)[1:-1]
    columns = [np.asarray(rows.rows.ids), rows.columns["loss_mask"], rows.columns["rejected"]]
    return [*zip(*(np.split(column, splits) for column in columns), strict=True)]


def read(field, record):
    """Returns the text of each side, and the text of its targets."""
    [(ids, mask, rejected)] = encode(field, record)
    return [
        tuple(tokjax.decode(field.tokenizer, ids[part], skip_special_tokens=False) for part in parts)
        for parts in ((~rejected, ~rejected & mask), (rejected, rejected & mask))
    ]


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


class TestTexts:
    def test_explicit_prompt(self):
        record = {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5."}
        assert read(PreferenceField(TEXTS), record) == [
            ("2 + 2 = 4</s>", " 4</s>"),
            ("2 + 2 = 5.</s>", " 5.</s>"),
        ]

    def test_implicit_prompt(self):
        record = {"chosen": "The sky is blue.", "rejected": "The sky is green."}
        assert read(PreferenceField(TEXTS), record) == [
            ("The sky is blue.</s>", "blue.</s>"),
            ("The sky is green.</s>", "green.</s>"),
        ]

    def test_answers_with_the_same_beginning_count_from_the_prompt(self):
        record = {"prompt": "Q", "chosen": "same1", "rejected": "same2"}
        assert [target for _, target in read(PreferenceField(TEXTS), record)] == ["same1</s>", "same2</s>"]

    def test_equal_and_empty_sides(self):
        assert read(PreferenceField(TEXTS), {"chosen": "x", "rejected": "x"}) == [("x</s>", "</s>")] * 2
        record = {"prompt": "x", "chosen": "", "rejected": "y"}
        assert read(PreferenceField(TEXTS), record) == [("x</s>", "</s>"), ("xy</s>", "y</s>")]

    def test_a_token_across_the_border_is_a_target_of_both_sides(self):
        field = PreferenceField(MERGED)
        record = {"prompt": "zab", "chosen": "c", "rejected": "d"}
        assert read(field, record) == [("<s>zabc</s>", "abc</s>"), ("<s>zabd</s>", "abd</s>")]

    @given(*[st.text("abcd", max_size=4)] * 3)
    def test_targets_are_the_tokens_after_those_in_common(self, prompt, chosen, rejected):
        field = PreferenceField(MERGED)
        [(ids, mask, is_rejected)] = encode(field, {"prompt": prompt, "chosen": chosen, "rejected": rejected})
        texts = [prompt, prompt + chosen, prompt + rejected]
        rows = [tokjax.encode(MERGED, text, add_special_tokens=False).tolist() for text in texts]
        shared = 0
        while all(shared < len(row) and row[shared] == rows[0][shared] for row in rows):
            shared += 1
        expected = [[259, *row, 260] for row in rows[1:]]
        assert [ids[~is_rejected].tolist(), ids[is_rejected].tolist()] == expected
        assert [mask[~is_rejected].tolist(), mask[is_rejected].tolist()] == [
            [i > shared for i in range(len(row))] for row in expected
        ]

    def test_special_tokens(self):
        record = {"prompt": "<s>", "chosen": "a", "rejected": "b"}
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="special token '<s>'"):
            encode(PreferenceField(MERGED), record)
        [(ids, *_)] = encode(PreferenceField(MERGED, allowed_special={"<s>"}), record)
        assert ids.tolist() == [259, 259, 97, 260, 259, 259, 98, 260]

    def test_eos_is_required(self):
        with pytest.raises(
            tokjax.errors.MissingSpecialTokenError, match="PreferenceField without a chat template"
        ):
            PreferenceField(CHATS)


HISTORY = [user("one"), answer("two"), user("three")]
CHOSEN, REJECTED = [answer("good")], [answer("bad"), user("why"), answer("sorry")]
MESSAGES = {
    "explicit prompt": {"prompt": HISTORY, "chosen": CHOSEN, "rejected": REJECTED},
    "implicit prompt": {"chosen": HISTORY + CHOSEN, "rejected": HISTORY + REJECTED},
    "repeated prompt": {"prompt": HISTORY, "chosen": HISTORY + CHOSEN, "rejected": HISTORY + REJECTED},
    "text of the prompt": {"prompt": "three", "chosen": HISTORY + CHOSEN, "rejected": HISTORY + REJECTED},
}


class TestMessages:
    @pytest.mark.parametrize("format_", MESSAGES)
    def test_formats(self, format_):
        """The targets are the answers after the prompt, without headers and messages of the user."""
        (chosen, good), (rejected, bad) = read(PreferenceField(CHATS, CHATML), MESSAGES[format_])
        assert chosen == tokjax.encode_chat(CHATS, HISTORY + CHOSEN, CHATML).text
        assert rejected == tokjax.encode_chat(CHATS, HISTORY + REJECTED, CHATML).text
        assert good == "good<|im_end|>\n"
        assert bad == "bad<|im_end|>\nsorry<|im_end|>\n"

    def test_equal_sides(self):
        record = {"chosen": HISTORY + CHOSEN, "rejected": HISTORY + CHOSEN}
        (_, good), (_, bad) = read(PreferenceField(CHATS, CHATML), record)
        assert good == bad == "good<|im_end|>\n"

    def test_tools_and_generation_blocks(self):
        template = """\
{% if tools %}{{ tools[0].name }}{% endif %}{% for m in messages %}
{%- if m.role == 'assistant' %}A{% generation %}{{ m.content }}{% endgeneration %}
{%- else %}U{{ m.content }}{% endif %}{% endfor %}"""
        for tools in ([{"name": "calculate"}], '[{"name": "calculate"}]'):
            record = MESSAGES["explicit prompt"] | {"tools": tools}
            assert read(PreferenceField(CHATS, template), record) == [
                ("calculateUoneAtwoUthreeAgood", "good"),
                ("calculateUoneAtwoUthreeAbadUwhyAsorry", "badsorry"),
            ]

    def test_eos_after_the_messages(self):
        """A template can write EOS once, after its loop over the messages."""
        template = """\
{% for m in messages %}
{%- if m.role == 'assistant' %}A{% generation %}{{ m.content }}{% endgeneration %}
{%- else %}U{{ m.content }}{% endif %}{% endfor %}
{%- if not add_generation_prompt %}{% generation %}{{ '<pad>' }}{% endgeneration %}{% endif %}"""
        (_, good), (_, bad) = read(PreferenceField(CHATS, template), MESSAGES["explicit prompt"])
        assert (good, bad) == ("good<pad>", "badsorry<pad>")

    def test_answers_whose_message_is_unknown(self):
        template = (
            "{% generation %}{{ messages | map(attribute='content') | join | title }}{% endgeneration %}"
        )
        record = MESSAGES["explicit prompt"]
        message = "combines texts of several messages, so that the answers that count can't be told from"
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            encode(PreferenceField(CHATS, template), record)
        (_, good), _ = read(PreferenceField(CHATS, template), record | {"prompt": [user("one")]})
        assert good == "Onegood"


def make_texts(count, seed=0):
    """Returns preference pairs of texts with unequal lengths and a margin."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 12, (count, 3)).tolist()
    return [
        {
            "prompt": f"{i}:" + "p" * prompt,
            "chosen": "c" * chosen,
            "rejected": "r" * rejected,
            "margin": float(chosen - rejected),
        }
        for i, (prompt, chosen, rejected) in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Returns 40 pairs and their dataset."""
    records, path = make_texts(40), tmp_path_factory.mktemp("pairs")
    (path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    field = PreferenceField(TEXTS, columns=[Column("margin", "float32", per="document")])
    tokjax.write_dataset(path / "pairs.jsonl", field, path / "pairs", shard_size=300)
    return records, tokjax.open_dataset(path / "pairs")


class TestDatasets:
    def test_records_of_data_frames(self, tmp_path):
        """Frames read from Parquet have arrays of messages, and scalars of NumPy."""
        chosen, rejected = ([{"role": "assistant", "content": text, "n": np.int64(1)}] for text in "ab")
        record = {"prompt": [{"role": "user", "content": "q"}], "chosen": chosen, "rejected": rejected}
        arrays = {name: np.array(messages, object) for name, messages in record.items()}
        field = PreferenceField(CHATS, CHATML)
        tokjax.write_dataset([record], field, tmp_path / "lists")
        tokjax.write_dataset([arrays], field, tmp_path / "arrays")
        lists, arrays = (tokjax.open_dataset(tmp_path / name) for name in ("lists", "arrays"))
        assert lists[0].tolist() == arrays[0].tolist()
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="not JSON data: .* bytes is not JSON"):
            tokjax.write_dataset([record | {"tools": b"[]"}], field, tmp_path / "bytes")

    def test_packed_rows(self, pairs):
        records, dataset = pairs
        assert dataset.field == PreferenceField(TEXTS, columns=dataset.columns)
        seen = []
        for batch in tokjax.PlannedLoader(dataset, batch_size=2, block_size=96):
            sides = split_preference_pairs(batch.segment_ids, batch.columns["rejected"])
            for row in range(2):
                segments = sides.segment_ids[row]
                for side in range(1, segments.max() + 1):
                    slots = segments == side
                    [document] = {*batch.document_ids[row][slots].tolist()}
                    record = records[document]
                    name = ["rejected", "chosen"][side % 2]
                    text = tokjax.decode(TEXTS, batch.ids[row][slots], skip_special_tokens=False)
                    assert text == record["prompt"] + record[name] + "</s>"
                    assert sides.positions[row][slots].tolist() == list(range(len(text) - 3))
                    assert batch.loss_mask[row][slots].sum() == len(record[name]) + 1
                    assert {*batch.columns["margin"][row][slots].tolist()} == {record["margin"]}
                    seen.append((document, name))
        assert sorted(seen) == sorted((i, name) for i in range(40) for name in ("chosen", "rejected"))

    def test_truncation_per_side(self, pairs, tmp_path):
        records, dataset = pairs
        written = tokjax.write_dataset(records, PreferenceField(TEXTS, max_tokens=16), tmp_path / "data")
        short = tokjax.open_dataset(tmp_path / "data")
        num_cut = num_dropped = 0
        for i in range(40):
            rejected = dataset.column("rejected")[i]
            for side in (False, True):
                kept = short[i][short.column("rejected")[i] == side]
                assert kept.tolist() == dataset[i][rejected == side][:16].tolist()
            dropped = sum(max(count - 16, 0) for count in np.bincount(rejected).tolist())
            num_cut, num_dropped = num_cut + bool(dropped), num_dropped + dropped
        assert 0 < num_cut == written.num_cut < 40
        assert num_dropped == short.manifest.num_dropped


GOOD = {"prompt": "a", "chosen": "b", "rejected": "c"}


@pytest.mark.parametrize(
    ("template", "record", "message"),
    [
        (None, {"chosen": "b"}, r"in document 1, the record has no 'rejected'; .* this one has \['chosen'\]"),
        (None, {"text": "b"}, "document 1 has none of the keys"),
        (
            None,
            GOOD | {"chosen": [answer("b")]},
            "'chosen' is .* encodes texts; for messages, pass",
        ),
        (None, GOOD | {"tools": [{"name": "f"}]}, "'tools' is .* and the field encodes texts"),
        (CHATML, GOOD, "in document 1, 'chosen' is the text 'b', and the field has a chat template, which"),
        (
            CHATML,
            MESSAGES["explicit prompt"] | {"tools": "f(x)"},
            r"'tools' is the text 'f\(x\)', not JSON",
        ),
        (CHATML, {"chosen": ["b"], "rejected": ["c"]}, r"chosen\[0\] must map 'role' and 'content', not"),
        (CHATML, {"chosen": [], "rejected": []}, "'chosen' has no messages; pass a list such as"),
        (CHATML, MESSAGES["explicit prompt"] | {"prompt": []}, "'prompt' has no messages"),
        (
            CHATML,
            MESSAGES["text of the prompt"] | {"prompt": "other"},
            "'prompt' is the text 'other', which",
        ),
    ],
)
def test_invalid_records_are_rejected(tmp_path, template, record, message):
    tokenizer = TEXTS if template is None else CHATS
    first = GOOD if template is None else MESSAGES["explicit prompt"]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.write_dataset([first, record], PreferenceField(tokenizer, template), tmp_path / "data")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PreferenceField(CHATS, 5), "template must be a chat template, such as"),
        (lambda: PreferenceField(TEXTS, date="2024-07-26"), "date are for chat templates; pass template=, "),
        (
            lambda: PreferenceField(TEXTS, columns=[Column("weights", "float32")]),
            "column 'weights' has a value per token, and the sides of a preference pair are encoded",
        ),
        (lambda: PreferenceField(TEXTS, columns=[Column("rejected", "int8")]), "duplicate column 'rejected'"),
    ],
)
def test_invalid_options_are_rejected(make, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        make()
