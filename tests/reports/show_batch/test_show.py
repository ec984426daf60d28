"""Tests of `show_batch`: plain text, terminal output, HTML, and its arguments."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.console import Console

import tokjax
from tests.support.byte_tokenizers import make_byte_tokenizer
from tests.support.html_pages import HTMLPage
from tests.support.text_strategies import any_strings

EOS, PAD = 256, 257
BYTES = make_byte_tokenizer("</s>", "<pad>")


def make_rows(*texts):
    return tokjax.ragged_from_rows([[*text.encode(), EOS] for text in texts])


@pytest.fixture
def packed():
    return tokjax.pack_blocks(make_rows("ab c", "de", "f\n"), block_size=7, pad_id=PAD)


def make_labels(packed):
    return tokjax.causal_lm_labels(packed.ids, packed.attention_mask, segment_ids=packed.segment_ids)


def get_lines(*args, **options):
    """Returns the lines of the text, with runs of spaces collapsed."""
    return [" ".join(line.split()) for line in str(tokjax.show_batch(*args, **options)).splitlines()]


def render_in_terminal(shown, width=80, **options):
    console = Console(width=width, force_terminal=True, color_system="standard", **options)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def strip_colour(text):
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]


def test_packed_blocks_with_labels(packed):
    assert str(tokjax.show_batch(packed, BYTES, labels=make_labels(packed))).splitlines() == [
        "PackedBlocks: 2 rows of 7 positions",
        "row  tokens                     padding",
        "  0  1│a b ␣ c ⟨</s>⟩ 2│d ⟨e⟩    0 of 7",
        "  1  1│⟨</s>⟩ 2│f ↵ ⟨</s>⟩ ▯×3   3 of 7",
        "padding: 3 of 14 positions (21.4%)",
        "labels not ignored: 7 of 11 tokens",
        "n│ segment n   ⟨x⟩ label ignored   ▯ padding",
    ]


def parse_row(line):
    """Parses the symbols of a row: `(segment, token, has_label, in_loss)`, or `None` for padding."""
    tokens, padding, length = re.fullmatch(r" *\d+  (.*?) +(\d+) of (\d+)", line).groups()
    positions, segment, has_label, in_loss = [], 0, True, True
    for token in tokens.split(" "):
        if token.startswith("▯"):
            positions += [None] * int(token[2:] or 1)
            continue
        begins, masked, ignored, text, ends = re.fullmatch(r"(\d+│)?(⟦?)(⟨?)(.*?)(⟩?⟧?)", token).groups()
        segment = int(begins[:-1]) if begins else segment
        has_label, in_loss = has_label and not ignored, in_loss and not masked
        positions.append((segment, text, has_label, in_loss))
        has_label, in_loss = has_label or "⟩" in ends, in_loss or "⟧" in ends
    assert (positions.count(None), len(positions)) == (int(padding), int(length))
    return positions


@given(st.lists(st.text("abc", max_size=9), max_size=6), st.integers(1, 12), st.data())
def test_text_shows_all_columns(texts, block_size, data):
    rows = tokjax.ragged_from_rows([list(text.encode()) for text in texts])
    packed = tokjax.pack_blocks(rows, block_size=block_size, pad_id=PAD)
    draws = data.draw(st.lists(st.booleans(), min_size=packed.ids.size, max_size=packed.ids.size))
    loss_mask = np.array(draws).reshape(packed.ids.shape)
    labels = make_labels(packed)
    shown = tokjax.show_batch(packed, BYTES, labels=labels, loss_mask=loss_mask, max_rows=99)
    lines = strip_colour(render_in_terminal(shown, width=200))
    for row, line in enumerate(lines[2 : 2 + len(packed.ids)]):
        columns = (packed.segment_ids[row], packed.ids[row], labels[row] != -100, loss_mask[row])
        assert parse_row(line) == [
            None if segment == 0 else (segment, chr(id_), has_label, in_loss)
            for segment, id_, has_label, in_loss in zip(*columns, strict=True)
        ]


def test_padded_batches():
    padded = tokjax.collate_padded_batch(make_rows("ab", "c", ""), pad_id=PAD, length=4)
    assert get_lines(padded, BYTES) == [
        "PaddedBatch: 3 rows of 4 positions",
        "row tokens padding",
        "0 a b </s> ▯ 1 of 4",
        "1 c </s> ▯×2 2 of 4",
        "2 </s> ▯×3 3 of 4",
        "padding: 6 of 12 positions (50.0%)",
        "▯ padding",
    ]
    left = tokjax.collate_padded_batch(make_rows("ab", "c"), pad_id=PAD, pad_side="left")
    assert get_lines(left, BYTES)[3] == "1 ▯ c </s> 1 of 3"


def test_loss_masks():
    padded = tokjax.collate_padded_batch(make_rows("?ab", "?c"), pad_id=PAD)
    answers = (np.arange(4) > 0) * padded.attention_mask
    assert get_lines(padded, BYTES, loss_mask=answers)[2:] == [
        "0 ⟦?⟧ a b </s> 0 of 4",
        "1 ⟦?⟧ c </s> ▯ 1 of 4",
        "padding: 1 of 8 positions (12.5%)",
        "loss mask not 0: 5 of 7 tokens",
        "⟦x⟧ loss mask 0 ▯ padding",
    ]
    labels = tokjax.causal_lm_labels(padded.ids, padded.attention_mask, loss_mask=answers)
    both = get_lines(padded, BYTES, labels=labels, loss_mask=answers.astype(np.float32))
    assert both[2:4] == ["0 ⟦?⟧ a b ⟨</s>⟩ 0 of 4", "1 ⟦?⟧ c ⟨</s>⟩ ▯ 1 of 4"]
    nothing = get_lines(padded, BYTES, labels=labels * 0 - 1, loss_mask=answers * 0, ignore_index=-1)
    assert nothing[2] == "0 ⟦⟨? a b </s>⟩⟧ 0 of 4"


def test_labels_on_padding_are_reported():
    padded = tokjax.collate_padded_batch(make_rows("ab", "c"), pad_id=PAD, columns=())
    wrong = tokjax.CausalLMBatch(*padded[:2], np.roll(padded.ids, -1, 1))
    assert "labels not ignored: 5 of 5 tokens, and 1 padding position" in get_lines(wrong, BYTES)
    right = wrong._replace(labels=tokjax.causal_lm_labels(*padded[:2]))
    assert "labels not ignored: 3 of 5 tokens" in get_lines(right, BYTES)
    assert "labels not ignored: 5 of 5 tokens, and 1 padding position" in get_lines(
        right, BYTES, labels=wrong.labels
    )


def test_other_batch_types():
    chunks = tokjax.datasets.TokenChunks(np.array([[97, 98], [99, 100]]))
    assert get_lines(chunks, BYTES)[2:] == [
        "0 a b 0 of 2",
        "1 c d 0 of 2",
        "padding: 0 of 4 positions (0.0%)",
    ]
    batch = tokjax.encode_batch_result(BYTES, ["ab", ""], add_special_tokens=False)
    expected = ["0 a b 0 of 2", "1 0 of 0", "padding: 0 of 2 positions (0.0%)"]
    for equivalent in (batch, batch.ragged, list(batch)):
        assert get_lines(equivalent, BYTES)[2:] == expected
    assert get_lines(batch[0], BYTES)[2] == expected[0]
    assert get_lines(batch, BYTES, loss_mask=[0, 1])[2] == "0 ⟦a⟧ b 0 of 2"

    class Masked(NamedTuple):
        ids: np.ndarray
        segment_ids: np.ndarray
        loss_mask: np.ndarray

    others = Masked(*(np.array([row]) for row in ([97, 98, 0], [1, 2, 0], [True, False, False])))
    assert get_lines(others, BYTES)[:3] == [
        "Masked: 1 row of 3 positions",
        "row tokens padding",
        "0 1│a 2│⟦b⟧ ▯ 1 of 3",
    ]


def test_empty_batches():
    empty = tokjax.collate_padded_batch(tokjax.ragged_from_rows([]), pad_id=0)
    assert get_lines(empty, BYTES) == [
        "PaddedBatch: 0 rows",
        "row tokens padding",
        "padding: 0 of 0 positions (0.0%)",
    ]


def test_many_rows_and_long_rows_are_truncated():
    many = tokjax.datasets.TokenChunks(np.full((1200, 3), 97))
    lines = get_lines(many, BYTES, max_rows=2)
    assert lines[2:] == [
        "0 a a a 0 of 3",
        "1 a a a 0 of 3",
        "and 1,198 more rows",
        "padding: 0 of 3,600 positions (0.0%)",
    ]
    assert len(get_lines(many, BYTES)) == 2 + 8 + 2
    assert get_lines(many, BYTES, max_rows=0)[2] == "and 1,200 more rows"
    long = " ".join(get_lines(tokjax.datasets.TokenChunks(np.full((1, 2000), 97)), BYTES))
    assert long.split().count("a") == 512
    assert re.search(r"a a and\s+1,488 more positions", long)


def test_ids_without_a_token_are_shown():
    assert get_lines(tokjax.datasets.TokenChunks(np.array([[97, -1, 9999]])), BYTES)[2].split() == [
        *("0", "a", "<no-token:-1>", "<no-token:9999>"),
        *("0", "of", "3"),
    ]


def test_long_text_is_wrapped_without_loss():
    text = "".join(chr(i) for i in range(33, 127) if chr(i) != "\\") * 3
    batch = tokjax.datasets.TokenChunks(np.array([list(text.encode())]))
    for width in (30, 80, 200):
        lines = strip_colour(render_in_terminal(tokjax.show_batch(batch, BYTES), width))
        assert max(map(len, lines)) <= width
        [table] = re.findall("row +tokens +padding\n(.*)\npadding", "\n".join(lines), re.DOTALL)
        rows = re.sub("^  0  |  0 of 279$", "", table, flags=re.MULTILINE)
        assert "".join(rows.split()) == text
    assert max(map(len, get_lines(batch, BYTES))) <= 80


def test_colour_only_repeats_the_symbols(packed):
    shown = tokjax.show_batch(packed, BYTES, labels=make_labels(packed))
    coloured = render_in_terminal(shown)
    assert strip_colour(coloured) == str(shown).splitlines()
    assert "\x1b[36m1│a" in coloured
    assert "\x1b[32m2│d" in coloured
    assert "\x1b[2;32m⟨e⟩" in coloured
    assert "\x1b[2m▯×3" in coloured


def test_color_argument(packed, monkeypatch):
    plain, always, never = (tokjax.show_batch(packed, BYTES, color=color) for color in (None, True, False))
    assert "\x1b" not in str(plain) + str(never) + render_in_terminal(never)
    assert "\x1b[36m" in str(always)
    assert strip_colour(str(always)) == str(plain).splitlines() == str(never).splitlines()
    assert "color" in plain._repr_html_()
    assert "color" not in never._repr_html_()
    assert repr(plain) == str(plain)
    for name, value in {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "20", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
        assert "\x1b[36m" in str(always)
        assert str(tokjax.show_batch(packed, BYTES)) == str(plain)


def test_html_shows_the_same_as_text(packed):
    shown = tokjax.show_batch(packed, BYTES, labels=make_labels(packed))
    page = HTMLPage(shown._repr_html_())
    assert [line.rstrip() for line in "".join(page.texts).splitlines()] == str(shown).splitlines()
    assert len({span["style"] for span in page.spans}) > 3


@given(st.lists(any_strings, min_size=1, max_size=3))
def test_control_characters_are_escaped(texts):
    texts = [f"<script>{text}</script>\x1b[2J[red]\u202e" for text in texts]
    ranks = {text.encode("utf-8", "replace"): 300 + i for i, text in enumerate(dict.fromkeys(texts))}
    tokenizer = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)} | ranks)
    batch = tokjax.datasets.TokenChunks(np.array([list(ranks.values())]))
    shown = tokjax.show_batch(batch, tokenizer)
    assert set(HTMLPage(shown._repr_html_()).tags) == {"pre", "span"}
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", str(shown))
    assert r"\x1b[2J[red]\u202e" in "".join(HTMLPage(shown._repr_html_()).texts)
    assert "[red]" in "".join(render_in_terminal(shown, width=1000))


def test_jax_arrays_give_equal_results(packed):
    on_device = jax.tree.map(jnp.asarray, packed)
    labels = make_labels(packed)
    expected = tokjax.show_batch(packed, BYTES, labels=labels)
    assert tokjax.show_batch(on_device, BYTES, labels=jnp.asarray(labels)) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tokjax.show_batch(
                tokjax.datasets.TokenChunks(np.zeros((2, 3), int)), BYTES, labels=np.zeros(3)
            ),
            r"labels has shape \(3,\), and ids \(2, 3\)",
        ),
        (
            lambda: tokjax.show_batch(make_rows("a"), BYTES, loss_mask=[1]),
            r"loss_mask has shape \(1,\), and ids \(2,\)",
        ),
        (lambda: tokjax.show_batch([[1, 2]], BYTES), "results must be a TokenizationBatch"),
        (lambda: tokjax.show_batch(make_rows("a"), BYTES, max_rows=-1), "max_rows must be at least 0"),
        (lambda: tokjax.show_batch(make_rows("a"), "gpt2"), "get_vocabulary has no implementation for 'str'"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(tokjax.TokjaxError, match=message):
        call()


@pytest.fixture(scope="module")
def displayed(tmp_path_factory):
    """Returns values that notebooks display, and a text that each of them has to show."""
    directory = tmp_path_factory.mktemp("displayed")
    fields = {
        "ids": tokjax.TokenizedTextField(BYTES),
        "packed": tokjax.PackedTokenField(BYTES, chunk_tokens=4),
        "texts": tokjax.RawTextField(),
    }
    for name, field in fields.items():
        tokjax.write_dataset(["xy", "z"], field, directory / name)
    datasets = {name: tokjax.open_dataset(directory / name) for name in fields}
    loader = tokjax.datasets.SequenceLoader(datasets["ids"], batch_size=2, length=4, pad_id=PAD)
    chunks = tokjax.PackedTokenLoader(datasets["packed"], batch_size=1)
    texts = tokjax.open_dataset(directory / "texts", BYTES)
    return {
        "tokenizer": (BYTES, "special_tokens={'</s>': 256"),
        "dataset of ids": (datasets["ids"], "x"),
        "packed dataset": (datasets["packed"], "x"),
        "texts": (texts, "x"),
        "texts without a tokenizer": (datasets["texts"], None),
        "loader": (loader, "SequenceLoader("),
        "loader of texts": (tokjax.datasets.SequenceLoader(texts, batch_size=2, length=4, pad_id=PAD), "x"),
        "mapped loader": (loader.map(tokjax.batch_to_dict), "x"),
        "loader mapped to numbers": (loader.map(len), None),
        "padded batch": (loader.batch_at(0), str(ord("x"))),
        "packed blocks": (chunks.batch_at(0), str(ord("x"))),
        "packed blocks of JAX": (jax.device_put(chunks.batch_at(0)), str(ord("x"))),
        "shapes": (loader.element_spec, None),
        "masked ids": (tokjax.objectives.MaskedLMBatch(np.array([[120]]), np.array([[1]])), "120"),
        "arrays that are not tokens": (tokjax.align.SpanLabels(np.array([1]), np.array([1])), None),
    }


def test_notebooks_display_batches_datasets_loaders_and_tokenizers(displayed):
    for name, (value, expected) in displayed.items():
        shown = getattr(value, "_repr_html_", lambda: None)()
        if expected is None:
            assert shown is None, name
        else:
            assert expected in "".join(HTMLPage(shown).texts), name
