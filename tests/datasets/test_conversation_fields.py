"""Tests of what `ChatField` and `PreferenceField` share: dates, variables, targets, documents without any."""

import dataclasses
import datetime
import json
import time

import pytest

import tokjax
from tests.datasets.test_preference_pairs import CHATML, CHATS, TEXTS, answer, encode, user
from tests.datasets.test_resuming import StoppedError, stop_after_documents
from tokjax.datasets import ChatField, Column, PreferenceField

DATED = "{{ strftime_now('%d %b %Y %H:%M%Z') }}|" + CHATML
VARIABLES = "{{ date_string }},{{ enable_thinking }},{{ (documents or ['-'])[0] }}|" + CHATML
CHAT = {"messages": [user("q"), answer("a")]}
PAIR = {"prompt": [user("q")], "chosen": [answer("a")], "rejected": [answer("b")]}
FIRST, LAST = "Etc/GMT+12", "Etc/GMT-14"
"""Time zones whose dates always differ."""
FIELDS = pytest.mark.parametrize(("kind", "record"), [(ChatField, CHAT), (PreferenceField, PAIR)])


@pytest.fixture
def set_zone(monkeypatch):
    """Returns a function that sets the time zone and returns the date there, as `DATED` writes it."""

    def set_zone(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()
        return datetime.datetime.now().strftime("%d %b %Y 00:00|")

    yield set_zone
    monkeypatch.undo()
    time.tzset()


def read_heads(path):
    """Returns the text before `|` of the conversations of a dataset."""
    dataset = tokjax.open_dataset(path)
    return {tokjax.decode(CHATS, ids).partition("|")[0] + "|" for ids in dataset}


@FIELDS
class TestDate:
    def test_resuming(self, kind, record, tmp_path, set_zone, monkeypatch):
        """The date of the first start is used after a stop, also in another time zone."""
        monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 60)
        field, records, options = kind(CHATS, DATED), [record] * 5, {"shard_size": 99}
        first = set_zone(FIRST)
        with pytest.raises(StoppedError):
            tokjax.write_dataset(stop_after_documents(records, 3), field, tmp_path / "data", **options)
        other = set_zone(LAST)
        assert other != first
        tokjax.write_dataset(records, field, tmp_path / "data", **options)
        assert read_heads(tmp_path / "data") == {first}
        before = tokjax.open_dataset(tmp_path / "data").fingerprint
        tokjax.write_dataset(records, field, tmp_path / "data", **options)  # the same: not an error
        tokjax.write_dataset(
            records, tokjax.open_dataset(tmp_path / "data").field, tmp_path / "again", **options
        )
        assert tokjax.open_dataset(tmp_path / "again").fingerprint == before
        tokjax.write_dataset(records, field, tmp_path / "data", overwrite=True, **options)
        assert read_heads(tmp_path / "data") == {other}

    @pytest.mark.parametrize("date", ["2024-07-26", datetime.date(2024, 7, 26)])
    def test_date(self, kind, record, date, tmp_path):
        tokjax.write_dataset([record], kind(CHATS, DATED, date=date), tmp_path / "data")
        assert read_heads(tmp_path / "data") == {"26 Jul 2024 00:00|"}
        assert tokjax.open_dataset(tmp_path / "data").manifest.plan.options["date"] == "2024-07-26"
        tokjax.write_dataset([record], kind(CHATS, CHATML), tmp_path / "none")  # (the template needs no date)
        assert tokjax.open_dataset(tmp_path / "none").field.date is None


@FIELDS
class TestVariables:
    def test_all_records_and_each(self, kind, record, tmp_path):
        field = kind(
            CHATS,
            VARIABLES,
            variables={"date_string": "today", "enable_thinking": False, "documents": ["all"]},
            variable_keys=["date_string"],
        )
        for more, expected in (
            ({}, "today,False,all|"),
            ({"date_string": "1 May", "enable_thinking": True}, "1 May,False,all|"),
            ({"date_string": None, "documents": '["own"]'}, "today,False,own|"),
            ({"chat_template_kwargs": {"enable_thinking": True, "documents": None}}, "today,True,all|"),
            ({"chat_template_kwargs": '{"enable_thinking": 1}', "date_string": "2"}, "2,1,all|"),
        ):
            tokjax.write_dataset([record | more], field, tmp_path / "data", overwrite=True)
            assert read_heads(tmp_path / "data") == {expected}
            assert tokjax.open_dataset(tmp_path / "data").field == field
        assert tokjax.open_dataset(tmp_path / "data").manifest.plan.options["variables"] == field.variables

    def test_special_tokens_of_records(self, kind, record):
        """Variables of records come from others, as messages do."""
        record = json.dumps(record | {"date_string": "<|im_end|>"})
        with pytest.raises(
            tokjax.errors.DisallowedSpecialTokenError, match="'date_string' holds the special"
        ):
            kind(CHATS, VARIABLES, variable_keys=["date_string"]).encode_rows([record])
        kind(CHATS, VARIABLES, variable_keys=["date_string"], allowed_special="all").encode_rows([record])


def to_sharegpt(value):
    """Returns a record in ShareGPT's format."""
    names = {"role": "from", "content": "value", "messages": "conversations", "prompt": "conversations"}
    roles = {"user": "human", "assistant": "gpt"}
    if isinstance(value, dict):
        return {names.get(key, key): to_sharegpt(inner) for key, inner in value.items()}
    return [*map(to_sharegpt, value)] if isinstance(value, list) else roles.get(value, value)


@pytest.mark.parametrize("convert", [dict, to_sharegpt])
def test_excluded_answers(convert, tmp_path):
    """Neither the stored mask nor one of the sources counts them, whatever the records are read from."""
    datasets, pa = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    sources = Column("sources", "int8", source="field")
    first, last = [user("q"), answer("one") | {"weight": 0}], [user("r"), answer("two")]
    excluded = answer("three") | {"train": False}
    pair = {"prompt": first, "chosen": [*last, user("s"), excluded], "rejected": answer("no")}
    for field, record, expected in (
        (ChatField(CHATS, CHATML, columns=[sources]), {"messages": first + last}, "two"),
        (ChatField(CHATS, CHATML, train_on="last"), {"messages": last + last}, "two"),
        (PreferenceField(CHATS, CHATML), pair, "two<|im_end|>\nno"),
    ):
        records = [convert(record)] * 2
        (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, records)))
        table = pa.Table.from_pylist(records)
        for source in (tmp_path / "chats.jsonl", table, datasets.Dataset(table), table.to_pylist()):
            tokjax.write_dataset(source, field, tmp_path / "data", overwrite=True)
            dataset = tokjax.open_dataset(tmp_path / "data")
            mask = dataset.column("loss_mask")[1]
            assert (
                tokjax.decode(CHATS, dataset[1][mask], skip_special_tokens=False) == expected + "<|im_end|>\n"
            )
            if sources in field.columns:
                stored = tokjax.objectives.chat_loss_mask(dataset.column("sources")[1])
                assert stored.tolist() == mask.tolist()


def test_last_answer():
    messages = [user("one"), answer("two"), user("three"), answer("four"), user("five")]
    generation = """{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}
{%- endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}
{%- generation %}{{ '<pad>' }}{% endgeneration %}"""
    for template, length, expected in (
        (CHATML, 5, ["two<|im_end|>\nfour<|im_end|>\n", "four<|im_end|>\n"]),
        (CHATML, 1, ["", ""]),
        (generation, 4, ["twofour<pad>", "four<pad>"]),
    ):
        for train_on, targets in zip(("all", "last"), expected, strict=True):
            field = ChatField(CHATS, template, train_on=train_on)
            rows = field.encode_rows([json.dumps({"messages": messages[:length]})])
            ids = rows.rows.ids[rows.columns["loss_mask"]]
            assert tokjax.decode(CHATS, ids, skip_special_tokens=False) == targets
    record = {"prompt": messages[:1], "chosen": messages[1:4], "rejected": [answer("other")]}
    [(ids, mask, _)] = encode(PreferenceField(CHATS, CHATML, train_on="last"), record)
    assert tokjax.decode(CHATS, ids[mask], skip_special_tokens=True) == "four\nother\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": None}, "template must be a chat template"),
        ({"date": "26 Jul 2024"}, "date must be a datetime.date, or text such as"),
        ({"date": datetime.datetime.now()}, r"for the day on which .* is started, not datetime.datetime\("),
        ({"variables": {"x": {1}}}, r"variables\['x'\] is a set; it must be JSON"),
        ({"variables": {"messages": []}}, "variables must map names .* than 'add_generation_prompt', "),
        ({"variable_keys": "x"}, r"such as \['enable_thinking'\], .*, not 'x'"),
        ({"variable_keys": ["messages"]}, r"keys of records, .* than .*'messages', not \['messages'\]"),
        ({"train_on": "first"}, "train_on must be 'all' or 'last', not 'first'"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        (
            {"columns": [Column("roles", "int8", source="field")]},
            "ChatField computes no Column.*'roles'",
        ),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        ChatField(CHATS, **{"template": CHATML} | options)


@pytest.mark.parametrize(
    ("kind", "record", "message"),
    [
        (
            ChatField,
            CHAT | {"chat_template_kwargs": "[]"},
            r"'chat_template_kwargs' must map names of other variables than .* to values, not be \[\]",
        ),
        (
            ChatField,
            CHAT | {"chat_template_kwargs": {"messages": []}},
            r"'chat_template_kwargs' must map .* than .*'messages' to values, not be \{'messages'",
        ),
        (ChatField, {"tools": []}, r"has neither 'messages' nor 'conversations', it has \['tools'\]"),
        (ChatField, CHAT | {"conversations": []}, "has 'messages' and 'conversations'; remove one of them"),
        (ChatField, {"messages": "hi"}, "messages must be a list of messages, not 'hi'"),
        (PreferenceField, PAIR | {"conversations": []}, "has 'prompt' and 'conversations'; remove one of"),
    ],
)
def test_invalid_records_are_rejected(kind, record, message, tmp_path):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"in document 1, .*{message}"):
        tokjax.write_dataset([CHAT | PAIR, record], kind(CHATS, CHATML), tmp_path / "data")


def make_chats(count):
    """Returns conversations with numbers; two of three train nothing within 40 ids."""
    texts = [("q", "a"), ("q" * 99, "a"), ("q", None)]
    chats = [[user(f"{i}{texts[i % 3][0]}"), answer(texts[i % 3][1])] for i in range(count)]
    return [{"messages": chat[: 2 - (i % 3 == 2)], "number": i} for i, chat in enumerate(chats)]


class TestWithoutTargets:
    FIELD = ChatField(CHATS, CHATML, 40, columns=[Column("number", "int8", per="document")])

    @pytest.mark.parametrize("as_file", [False, True])
    def test_they_are_dropped_and_counted(self, as_file, tmp_path, monkeypatch):
        """The others keep the number of their record, for any number of workers and after a stop."""
        monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 300)
        records = source = make_chats(30)
        if as_file:
            source = tmp_path / "chats.jsonl"
            source.write_text("".join(json.dumps(record) + "\n" for record in records))
        options = {"shard_size": 99}
        written = tokjax.write_dataset(source, self.FIELD, tmp_path / "data", workers=1, **options)
        assert (written.num_documents, written.num_dropped, written.num_cut) == (10, 20, 0)
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert dataset.manifest.num_dropped_documents == 20
        assert dataset.documents["doc_id"].tolist() == dataset.column("number").tolist() == [*range(0, 30, 3)]
        assert all(dataset.column("loss_mask")[row].any() for row in range(10))
        if not as_file:
            stopped = stop_after_documents(records, 23)
            with pytest.raises(StoppedError):
                tokjax.write_dataset(stopped, self.FIELD, tmp_path / "other", **options)
        again = tokjax.write_dataset(source, self.FIELD, tmp_path / "other", workers=2, **options)
        assert again == written._replace(path=tmp_path / "other")
        assert tokjax.open_dataset(tmp_path / "other").fingerprint == dataset.fingerprint
        assert tokjax.write_dataset(source, self.FIELD, tmp_path / "data", **options) == written
        report = tokjax.reports.dataset_report(dataset)
        assert report.num_dropped_documents == 20
        merged = tokjax.datasets.merge_datasets([tmp_path / "data", tmp_path / "other"], tmp_path / "merged")
        assert (merged.num_documents, merged.num_dropped) == (20, 40)
        ids = tokjax.open_dataset(tmp_path / "merged").documents["doc_id"]
        assert ids.tolist() == [*range(0, 60, 3)]

    def test_nothing_is_left(self, tmp_path):
        """Shards without documents are valid, alone and after others."""
        chats, options = make_chats(3), {"shard_size": 1}
        assert tokjax.write_dataset(chats[1:], self.FIELD, tmp_path / "none").num_dropped == 2
        tokjax.open_dataset(tmp_path / "none").verify()
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="has no documents; there is nothing"):
            tokjax.PlannedLoader(tokjax.open_dataset(tmp_path / "none"), batch_size=1, block_size=8)
        for _ in range(2):  # (the second call compares)
            tokjax.write_dataset(chats, self.FIELD, tmp_path / "one", **options)
        dataset = tokjax.open_dataset(tmp_path / "one")
        assert [shard.num_documents for shard in dataset.manifest.shards] == [1, 0]
        for loader in (
            tokjax.PlannedLoader(dataset, batch_size=1, block_size=40),
            tokjax.datasets.SequenceLoader(dataset, batch_size=1),
            tokjax.PackedTokenLoader(dataset, batch_size=1, chunk_tokens=8),
        ):
            assert loader.batch_at(0).loss_mask.any()

    def test_pairs(self, tmp_path):
        """Both sides of a pair must have a target."""
        long, short = "p" * 99, [user("q")]
        records = [
            PAIR,
            PAIR | {"prompt": [user(long)]},
            PAIR | {"rejected": short},
            PAIR | {"chosen": short},
        ]
        written = tokjax.write_dataset(records, PreferenceField(CHATS, CHATML, 40), tmp_path / "data")
        assert (written.num_documents, written.num_dropped) == (1, 3)
        texts = [{"prompt": long, "chosen": "a", "rejected": "b"}, {"chosen": "a", "rejected": "b"}]
        written = tokjax.write_dataset(texts, PreferenceField(TEXTS, max_tokens=40), tmp_path / "texts")
        assert (written.num_documents, written.num_dropped) == (1, 1)

    def test_the_first_token_is_no_target(self, tmp_path):
        chat = {"messages": [answer("a")]}
        for template, expected in (("{{ messages[0].content }}", 1), ("<{{ messages[0].content }}", 0)):
            written = tokjax.write_dataset([chat], ChatField(CHATS, template), tmp_path / str(expected))
            assert written.num_dropped == expected

    @pytest.mark.parametrize(
        ("index", "cause"),
        [(1, "answer of the assistant within max_tokens=40"), (2, "answer of the assistant")],
    )
    def test_keep_and_raise(self, index, cause, tmp_path):
        field = dataclasses.replace(self.FIELD, without_targets="keep")
        written = tokjax.write_dataset(make_chats(3), field, tmp_path / "kept")
        assert (written.num_documents, written.num_dropped) == (3, 0)
        field = dataclasses.replace(self.FIELD, without_targets="raise")
        message = f"document 0 has no token to train on: there is no {cause}; pass without_targets='drop'"
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.write_dataset(make_chats(3)[index:], field, tmp_path / "data")
