"""Hypothesis strategies for `tokenizer.json` definitions, and for texts with their tokens.

A definition has one of the published layouts (`_LAYOUTS`). Some of its parts may be replaced by any other
part that the format allows. So some definitions become built-in tokenizers, and others run on the library.
"""

import base64
import string
from functools import cache

from hypothesis import strategies as st

from tests.support.sentencepiece_models import train_by_library
from tokjax.models.sentencepiece_files import iter_fields
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode
from tokjax.pretokenize.patterns import PATTERNS

flags = st.booleans()
BYTES = [map_bytes_to_unicode(bytes([byte])) for byte in range(256)]
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
CONTROL = ["[UNK]", "[CLS]", "[SEP]", "<s>"]
LETTERS = [*"abcehilot", "é", "日", "x"]
SPLITS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def one_of(*values):
    return st.sampled_from(values)


def step(kind, **options):
    return st.fixed_dictionaries({"type": st.just(kind), **options})


def optional_step(strategy):
    """Returns a strategy for `None` or a step."""
    return st.none() | strategy


def sequence(name, steps, maximum=3):
    """Returns a strategy for one step, or for a `Sequence` of steps."""
    step_lists = st.lists(steps, max_size=maximum)
    return steps | st.fixed_dictionaries({"type": st.just("Sequence"), name: step_lists})


class CharacterMap(str):
    """Base64 text of 300 kB with a short `repr`, for the report of a failing example."""

    __slots__ = ()

    def __repr__(self):
        return "character_map()"


@cache
def character_map():
    """Returns the table of SentencePiece's normalizer `nmt_nfkc`, in base64, as in a `tokenizer.json`."""
    [rules] = [value for number, value in iter_fields(train_by_library(vocab_size=300)) if number == 3]
    return CharacterMap(base64.b64encode(dict(iter_fields(rules))[2]).decode("ascii"))


patterns = st.fixed_dictionaries({"String": one_of(" ", "a", "-", "▁", "é", "  ")}) | st.fixed_dictionaries(
    {"Regex": one_of(r"\s+", r"[aé]", r"\d", *(PATTERNS[name] for name in ("llama3", "o200k")))}
)
normalizers = sequence(
    "normalizers",
    st.one_of(
        step(
            "BertNormalizer",
            clean_text=flags,
            handle_chinese_chars=flags,
            strip_accents=st.none() | flags,
            lowercase=flags,
        ),
        step("Strip", strip_left=flags, strip_right=flags),
        one_of("StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "ByteLevel").flatmap(step),
        step("Replace", pattern=patterns, content=one_of("", " ", "▁", "ab", "é")),
        step("Prepend", prepend=one_of("▁", " ", "x", "ab")),
        step("Precompiled", precompiled_charsmap=st.builds(character_map)),
    ),
)
byte_level = step("ByteLevel", add_prefix_space=flags, trim_offsets=flags, use_regex=flags)
metaspace = step(
    "Metaspace",
    replacement=one_of("▁", "▁", "▁", "_"),
    prepend_scheme=one_of("always", "first", "never"),
    split=flags,
)
split = step("Split", pattern=patterns, behavior=st.sampled_from(SPLITS), invert=flags)
pre_tokenizers = sequence(
    "pretokenizers",
    st.one_of(
        byte_level,
        metaspace,
        split,
        one_of("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts").flatmap(step),
        step("CharDelimiterSplit", delimiter=one_of(" ", "-", "a")),
        step("Punctuation", behavior=st.sampled_from(SPLITS)),
        step("Digits", individual_digits=flags),
        step("FixedLength", length=st.integers(1, 4)),
    ),
)
decoders = sequence(
    "decoders",
    st.one_of(
        byte_level,
        metaspace,
        step("WordPiece", prefix=one_of("##", "@@"), cleanup=flags),
        step("BPEDecoder", suffix=one_of("</w>", "a")),
        step("CTC", pad_token=one_of("<s>", "a"), word_delimiter_token=one_of("|", "▁"), cleanup=flags),
        one_of("ByteFallback", "Fuse").flatmap(step),
        step("Replace", pattern=patterns, content=one_of("", " ", "é")),
        step("Strip", content=one_of(" ", "a"), start=st.integers(0, 2), stop=st.integers(0, 2)),
    ),
)


@st.composite
def token_lists(draw, alphabet, minimum=0):
    """Draws distinct tokens, each the concatenation of up to 4 parts."""
    tokens = st.lists(st.sampled_from(alphabet), min_size=1, max_size=4).map("".join)
    return draw(st.lists(tokens, min_size=minimum, max_size=12, unique=True))


def number_tokens(forms):
    return {form: id_ for id_, form in enumerate(dict.fromkeys(forms))}


@st.composite
def merges(draw, alphabet, prefix):
    """Draws merges of existing tokens; returns all tokens and the merges.

    The second token of each merge begins with the prefix, which is not part of the result.
    """
    tokens, pairs = list(alphabet), []
    for _ in range(draw(st.integers(0, 12))):
        left, right = draw(st.sampled_from(tokens[-24:])), draw(st.sampled_from(tokens[-24:]))
        token = left + right.removeprefix(prefix)
        if right.startswith(prefix) and len(token) <= 12 and (left, right) not in pairs:
            pairs.append((left, right))
            tokens += [token] if token not in tokens else []
    return tokens, [list(pair) for pair in pairs]


@st.composite
def bpe(draw, alphabet, other_tokens=(), **options):
    prefix = options.get("continuing_subword_prefix", draw(one_of(None, None, None, "", "##")))
    tokens, pairs = draw(merges(alphabet, prefix or ""))
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": draw(one_of(None, "[UNK]", "a")),
        "continuing_subword_prefix": prefix,
        "end_of_word_suffix": draw(one_of(None, None, None, "", "</w>")),
        "fuse_unk": draw(flags),
        "byte_fallback": draw(flags),
        "ignore_merges": draw(flags),
        "vocab": number_tokens([*CONTROL, *other_tokens, *tokens]),
        "merges": pairs,
    } | options


PLAIN = {"unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
byte_level_bpe = bpe([*BYTES, *"Ġab"], **PLAIN, byte_fallback=False)
byte_fallback_bpe = bpe(
    ["▁", *LETTERS],
    BYTE_PIECES,
    **PLAIN | {"unk_token": "[UNK]"},
    byte_fallback=True,
    fuse_unk=True,
    ignore_merges=False,
)
word_bpe = bpe(
    [*LETTERS, *(f"{letter}</w>" for letter in LETTERS)],
    unk_token="[UNK]",
    continuing_subword_prefix=None,
    end_of_word_suffix="</w>",
    fuse_unk=False,
    byte_fallback=False,
    ignore_merges=False,
)
byte_affix_bpe = bpe(
    [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), *(f"##{letter}" for letter in LETTERS)],
    BYTE_PIECES,
    unk_token=None,
    byte_fallback=True,
)
any_bpe = bpe([*LETTERS, "▁", "Ġ", "_", " ", "</w>", "##a"]) | bpe(BYTES) | bpe([*BYTE_PIECES, *LETTERS])


@st.composite
def wordpiece(draw):
    tokens = draw(token_lists(LETTERS))
    prefix = draw(one_of("##", "##", "##", "##", "@", ""))
    continuing = [prefix + token for token in draw(token_lists(LETTERS))]
    return {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": prefix,
        "max_input_chars_per_word": draw(one_of(100, 3)),
        "vocab": number_tokens([*CONTROL, *LETTERS[:6], *tokens, *continuing, "!", "'"]),
    }


@st.composite
def word_level(draw):
    tokens = draw(token_lists([*LETTERS, "!", "日"]))
    unknown = draw(one_of("[UNK]", "[UNK]", "[UNK]", "[UNK]", "a", "missing"))
    return {
        "type": "WordLevel",
        "unk_token": unknown,
        "vocab": number_tokens([*CONTROL, *LETTERS[:6], *tokens]),
    }


@st.composite
def unigram(draw):
    forms = [*CONTROL, *draw(token_lists([*LETTERS, "▁"])), "▁", *LETTERS[:6]]
    forms += BYTE_PIECES if draw(flags) else []
    score = st.integers(-9, -1).map(float)
    return {
        "type": "Unigram",
        "unk_id": draw(one_of(0, 0, 3, None)),
        "byte_fallback": draw(flags),
        "vocab": [[form, draw(score)] for form in dict.fromkeys(forms)],
    }


def get_forms(model):
    vocab = model["vocab"]
    return number_tokens(form for form, _ in vocab) if model["type"] == "Unigram" else vocab


@st.composite
def added_tokens(draw, model):
    """Draws added tokens, in the model's vocabulary and new ones, with the ids that the library assigns."""
    forms = get_forms(model)
    contents = st.sampled_from(
        [
            *CONTROL,
            "a",
            "<new>",
            "New",
            "ab",
            " ",
            "\n",
            "  a",
            "b ",
            "é",
            "日本",
            "Ġ",
            "▁",
            "<new",
            "É",
            "n-e",
        ]
    )
    names = draw(st.lists(contents, max_size=4, unique=True))
    defaults = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokens, next_id = [], max(forms.values()) + 1
    if draw(one_of(True, True, False)):  # as in most files
        names = [*CONTROL, *(name for name in names if name not in CONTROL)]
        token_flags = st.sampled_from([("lstrip",), ("rstrip",), (), (), ()]).map(dict.fromkeys)
        token_flags = token_flags.map(lambda names: defaults | dict.fromkeys(names, True))
    else:
        token_flags = st.fixed_dictionaries(dict.fromkeys(defaults, flags))
    for name in names:
        id_ = forms.get(name, next_id)
        next_id += id_ == next_id
        special = name in CONTROL or draw(flags)
        tokens.append({"id": id_, "content": name, **draw(token_flags), "special": special})
    return tokens


@st.composite
def post_processors(draw, ids):
    """Draws post-processors that insert control tokens.

    Args:
        draw: function of Hypothesis.
        ids: control token to id.
    """
    sep, cls = [["[SEP]", ids["[SEP]"]], ["[CLS]", ids["[CLS]"]]]
    types = st.integers(0, 2)
    token = one_of("[CLS]", "[SEP]", "<s>").flatmap(
        lambda name: st.fixed_dictionaries({"SpecialToken": st.just({"id": name, "type_id": draw(types)})})
    )
    inserted = st.lists(token, max_size=2)

    def template(*texts):
        pieces = [*draw(inserted)]
        for name in texts:
            pieces += [{"Sequence": {"id": name, "type_id": draw(types)}}, *draw(inserted)]
        return pieces

    pairs = one_of("AB", "AB", "AB", "BA", "A", "B", "AAB")
    kinds = {
        "ByteLevel": draw(byte_level),
        "BertProcessing": {"type": "BertProcessing", "sep": sep, "cls": cls},
        "RobertaProcessing": draw(
            step("RobertaProcessing", trim_offsets=flags, add_prefix_space=flags).map(
                lambda part: part | {"sep": sep, "cls": cls}
            )
        ),
        "TemplateProcessing": {
            "type": "TemplateProcessing",
            "single": template("A"),
            "pair": template(*draw(pairs)),
            "special_tokens": {
                name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in CONTROL if name in ids
            },
        },
    }
    processors = [kinds[draw(st.sampled_from(sorted(kinds)))]]
    if draw(flags) and processors[0]["type"] != "ByteLevel":
        processors.insert(draw(st.integers(0, 1)), kinds["ByteLevel"])
    return processors[0] if len(processors) == 1 else {"type": "Sequence", "processors": processors}


METASPACE_DECODERS = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SPACE_TO_METASPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
LLAMA = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACE_TO_METASPACE]}
BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


def make_published_split(name):
    steps = [
        {"type": "Split", "pattern": {"Regex": PATTERNS[name]}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ]
    return {"type": "Sequence", "pretokenizers": steps}


@st.composite
def falcon_splits(draw):
    """Draws pre-tokenizers with steps before and after `ByteLevel`, as in Falcon's file."""
    before = step("Punctuation", behavior=one_of("Contiguous", "Isolated")) | step(
        "Split",
        pattern=st.just({"Regex": r"(?=(\d{3})+(?!\d))"}),
        behavior=st.just("Isolated"),
        invert=st.just(False),
    )
    three = {"Regex": "[0-9][0-9][0-9]"}
    after = step("Digits", individual_digits=flags) | step(
        "Split", pattern=st.just(three), behavior=st.just("Isolated"), invert=st.just(False)
    )
    middle = step("ByteLevel", add_prefix_space=st.just(False), trim_offsets=flags, use_regex=flags)
    steps = [*draw(st.lists(before, max_size=2)), draw(middle), *draw(st.lists(after, max_size=2))]
    return {"type": "Sequence", "pretokenizers": steps}


def chain_steps(*steps):
    return st.just({"type": "Sequence", "decoders": list(steps)})


_LAYOUTS = {
    "byte level": (
        byte_level_bpe,
        st.none() | st.just({"type": "NFC"}),
        byte_level
        | st.sampled_from(["llama3", "o200k", "cl100k", "qwen2"]).map(make_published_split)
        | falcon_splits(),
        byte_level,
    ),
    "metaspace": (
        byte_fallback_bpe,
        st.none(),
        metaspace,
        chain_steps(*METASPACE_DECODERS) | chain_steps(*METASPACE_DECODERS, STRIP),
    ),
    "llama": (
        byte_fallback_bpe,
        st.sampled_from([LLAMA, SPACE_TO_METASPACE]),
        st.none(),
        chain_steps(*METASPACE_DECODERS) | chain_steps(*METASPACE_DECODERS, STRIP),
    ),
    "wordpiece": (
        wordpiece(),
        st.none() | normalizers.filter(lambda part: part["type"] == "BertNormalizer") | st.just(BERT),
        step("BertPreTokenizer"),
        step("WordPiece", prefix=st.just("##"), cleanup=flags),
    ),
    "word BPE": (
        word_bpe,
        st.none() | normalizers.filter(lambda part: part["type"] == "BertNormalizer") | st.just(BERT),
        one_of("WhitespaceSplit", "BertPreTokenizer").flatmap(step),
        step("BPEDecoder", suffix=st.just("</w>")),
    ),
    "byte affix": (
        byte_affix_bpe,
        st.none() | st.just({"type": "NFKC"}),
        step("WhitespaceSplit") | metaspace,
        st.none(),
    ),
    "word level": (
        word_level(),
        st.none() | st.just(dict.fromkeys(BERT, False) | {"type": "BertNormalizer", "lowercase": True}),
        one_of("WhitespaceSplit", "BertPreTokenizer").flatmap(step),
        st.none(),
    ),
    "unigram": (unigram(), st.none() | st.just({"type": "NFKC"}), metaspace, metaspace),
}
truncations = st.fixed_dictionaries(
    {
        "direction": one_of("Left", "Right"),
        "max_length": st.integers(1, 9),
        "strategy": one_of("LongestFirst", "OnlyFirst"),
        "stride": st.just(0),
    }
)
paddings = st.fixed_dictionaries(
    {
        "strategy": one_of("BatchLongest", {"Fixed": 12}),
        "direction": one_of("Left", "Right"),
        "pad_to_multiple_of": one_of(None, 8),
        "pad_id": st.just(0),
        "pad_type_id": st.just(0),
        "pad_token": st.just("[UNK]"),
    }
)


@st.composite
def definitions(draw):
    """Draws the parsed contents of a `tokenizer.json`."""
    layout = _LAYOUTS[draw(st.sampled_from(sorted(_LAYOUTS)))]
    any_model = st.one_of(any_bpe, byte_level_bpe, byte_fallback_bpe, wordpiece(), word_level(), unigram())
    any_part = (any_model, normalizers, pre_tokenizers, decoders)
    replaced = draw(one_of(*[[]] * 6, [0], [1], [2], [3], [1, 3], [0, 1, 2, 3]))
    model, *steps = (
        draw((any_part if position in replaced else layout)[position] if position == 0 else part)
        for position, part in enumerate(
            [None, *(optional_step(any_part[i]) if i in replaced else layout[i] for i in (1, 2, 3))]
        )
    )
    forms = get_forms(model)
    return {
        "version": "1.0",
        "truncation": draw(st.none() | truncations) if draw(flags) else None,
        "padding": draw(st.none() | paddings) if draw(flags) else None,
        "added_tokens": draw(added_tokens(model)),
        "normalizer": steps[0],
        "pre_tokenizer": steps[1],
        "post_processor": draw(st.none() | post_processors(forms)),
        "decoder": steps[2],
        "model": model,
    }


SPACES = [" ", " ", "  ", "\n", "\t", "\xa0", "\u3000", "\u2028"]
HARD = [
    *"Zß½ﬁÉ日本🙂",
    "e\u0301",
    "\u0301",
    "\x00",
    "\u200b",
    "\x85",
    "\xad",
    "İ",
    "ｱ",
    "'s",
    "12",
    "n't",
    "<0x41>",
]


@st.composite
def texts(draw, definition):
    """Draws a text of tokens of the definition, whitespace and characters that are hard to normalize."""
    forms = [form for form in get_forms(definition["model"]) if form not in BYTE_PIECES]
    added = [token["content"] for token in definition["added_tokens"]] or [""]
    parts = st.one_of(
        st.sampled_from(SPACES),
        st.sampled_from(forms).map(lambda form: form.replace("Ġ", " ").replace("▁", " ").removeprefix("##")),
        st.sampled_from(added),
        st.sampled_from([*HARD, *string.punctuation, *"▁Ġ_", "New", "a"]),
    )
    return "".join(draw(st.lists(parts, max_size=8)))
