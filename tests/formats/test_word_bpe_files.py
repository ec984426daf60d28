"""Tests of the files of classic BPE, against transformers and an oracle of KeemenaSubwords.jl."""

import json

import pytest
from hypothesis import given
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tokjax
from tests.conftest import CORPUS
from tests.models.test_word_bpe import encode_slowly, write_continuations
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, map_bytes_to_unicode

FormatError, ArgumentError = tokjax.errors.TokenizerFormatError, tokjax.errors.InvalidArgumentError
SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]
SYMBOL_MERGES = ["l o", "lo w", "low </w>", "e r", "er </w>"]
SUFFIX_MERGES = ["l o", "lo w</w>", "e r</w>", "lo w"]


def write_txt(directory, tokens, merges, header="# made by hand\n"):
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    (directory / "merges.txt").write_text(header + "".join(f"{merge}\n" for merge in merges), "utf-8")
    return directory


def write_json(directory, tokens, merges, config=None):
    ids = {token: id_ for id_, token in enumerate(tokens)}
    (directory / "vocab.json").write_text(json.dumps(ids), "utf-8")
    (directory / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges), "utf-8"
    )
    for name, contents in (config or {}).items():
        (directory / name).write_text(json.dumps(contents))
    return directory


def list_tokens(merges, *others):
    """Returns special tokens, and the symbols and products of merges."""
    parts = [part for merge in merges for part in (*merge.split()[:2], "".join(merge.split()[:2]))]
    return list(dict.fromkeys([*SPECIAL, *parts, *others]))


class TestVocabTxt:
    @pytest.mark.parametrize(
        ("merges", "others", "end_of_word", "tokens"),
        [
            (SYMBOL_MERGES, (), "symbol", ["low</w>", "low", "er</w>", "<unk>"]),
            (SUFFIX_MERGES, (), "suffix", ["low</w>", "low", "er</w>", "<unk>"]),
            (["l o", "lo w", "e r"], (), None, ["low", "low", "er", "<unk>"]),
            ([], ["a", "</w>"], "symbol", ["<unk>", "<unk>", "<unk>"]),
            ([], ["a", "a</w>"], "suffix", ["<unk>", "<unk>", "<unk>"]),
        ],
    )
    def test_end_of_word(self, tmp_path, merges, others, end_of_word, tokens):
        write_txt(tmp_path, list_tokens(merges, *others), merges, "# a comment\n#version: 0.2\n")
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokenizer.end_of_word == end_of_word
        assert tokjax.tokenize(tokenizer, "low  lower\nLow", add_special_tokens=False) == tokens
        assert tokjax.tokenize(tokenizer, "") == ["<s>", "</s>"]
        assert [tokjax.unk_id(tokenizer), tokjax.pad_id(tokenizer)] == [0, 1]
        assert tokjax.formats.detect_tokenizer_files(tmp_path).format == "word_bpe"
        files = [tmp_path / "merges.txt", tmp_path / "vocab.txt"]
        for path in (*files, files, files[::-1]):
            assert tokjax.load_tokenizer(path) == tokenizer
        assert tokjax.load_tokenizer(tmp_path, "word_bpe", end_of_word=end_of_word) == tokenizer

    @pytest.mark.parametrize("byte_level", [False, True])
    @pytest.mark.parametrize("mark", ["</w>", ""])
    def test_trained_files_equal_the_oracle(self, tmp_path, byte_level, mark):
        """The merges are trained by the library on words with a character for the end of the word."""
        library = Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.BpeTrainer(
            vocab_size=600 if byte_level else 300,
            initial_alphabet=list(ALPHABET) if byte_level else [],
            show_progress=False,
        )
        end = "\u2e3b" if mark else ""
        lines = [word + end for line in CORPUS for word in line.split()]
        library.train_from_iterator(
            [map_bytes_to_unicode(line.removesuffix(end).encode()) + end for line in lines]
            if byte_level
            else lines,
            trainer,
        )
        model = json.loads(library.to_str())["model"]
        tokens = [token.replace("\u2e3b", "</w>") for token in sorted(model["vocab"], key=model["vocab"].get)]
        merges = [" ".join(pair).replace("\u2e3b", "</w>") for pair in model["merges"]]
        tokenizer = tokjax.load_tokenizer(write_txt(tmp_path, ["<unk>", *tokens], merges))
        assert (tokenizer.byte_level, tokenizer.end_of_word) == (byte_level, "symbol" if mark else None)

        @given(hard_texts)
        def check(text):
            for each in (text, f"{CORPUS[0]} {text}"):
                expected = [token or "<unk>" for token in encode_slowly(tokenizer, each)]
                assert tokjax.tokenize(tokenizer, each, disallowed_special=()) == expected

        check()
        if mark:
            ids = tokjax.encode(tokenizer, CORPUS[0])
            assert tokjax.decode(tokenizer, ids) == " ".join(CORPUS[0].split())

    def test_options(self, tmp_path):
        write_txt(tmp_path, list_tokens(SUFFIX_MERGES, "[MASK]", "<x>"), SUFFIX_MERGES)
        tokenizer = tokjax.load_tokenizer(
            tmp_path, unknown="token", lowercase=True, special_tokens=["<x>"], eos_token="[MASK]"
        )
        tokens = ["<s>", "low", "e", "<unk>", "[MASK]"]
        assert tokjax.tokenize(tokenizer, "LOWE!") == tokens
        assert set(tokjax.special_tokens(tokenizer)) == {*SPECIAL, "[MASK]", "<x>"}
        with pytest.raises(
            FormatError, match=r"vocab\.txt: the special token '<y>' is not in the vocabulary"
        ):
            tokjax.load_tokenizer(tmp_path, special_tokens=["<y>"])
        (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<x>"}')
        assert tokjax.tokenize(tokjax.load_tokenizer(tmp_path), "low") == ["<x>", "low</w>", "</s>"]

    def test_lines_are_stripped(self, tmp_path):
        (tmp_path / "vocab.txt").write_bytes("\ufeff<unk>\r\n\r\n l\u3000\r\n\x1c\r\no\n lo".encode())
        (tmp_path / "merges.txt").write_bytes(b"#version: 0.2\r\n\r\nl\to\r\n")
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokjax.encode(tokenizer, "lo l\x1clo").tolist() == [4, 1, 2, 4]

    def test_merges_that_begin_with_a_number_sign(self, tmp_path):
        write_txt(tmp_path, ["<unk>", "#", "##", "a"], ["# #"], "# a\n")
        assert tokjax.tokenize(tokjax.load_tokenizer(tmp_path), "## #a") == ["##", "#", "a"]

    @pytest.mark.parametrize(
        ("tokens", "merges", "message"),
        [
            (["a", "b", "ab"], ["a b"], "needs the tokenizer's unk token, and it declares none"),
            (["<unk>", "a", "a"], [], r"vocab\.txt, line 3: duplicate of 'a'; each line must be a new"),
            (
                ["<unk>", "ab"],
                ["a b c"],
                r"merges\.txt, line 2: expected two tokens, and a count in all lines",
            ),
            (["<unk>", "ab"], ["a b 3", "b c"], r"merges\.txt, line 3: expected two tokens, .* got 'b c'"),
            (["<unk>", "ab"], ["a b", "a b"], r"merges\.txt, line 3: duplicate of 'a b' in line 2"),
            (["<unk>", "x"], ["a b"], r"merges\.txt do not match: no merge makes a token of the vocabulary"),
            (
                ["<unk>", "ab", "##c"],
                ["a b"],
                r"has the token '##c', .* WordPiece vocabulary, pass its path and",
            ),
            (
                ["<unk>", "ab"],
                ["a b", "ab c</w>"],
                "merges have '</w>', but no token ends in it, or in '@@' as in subword-nmt's",
            ),
            (
                ["<unk>", "a@@", "ab"],
                ["a b</w>", "a @", "a@ @</w>"],
                "the token 'a@@' continues a word, and a merge makes it at the end of a word",
            ),
            (["a 3", "b 2", "a 1"], ["a b</w> 3"], r"vocab\.txt: duplicate of 'a'; each line must be a new"),
            (["a@@ 3", "<unk> 2"], ["a b</w> 3"], r"vocab\.txt: duplicate of '<unk>'; each line must be"),
            (
                ["<unk>", "a</w>", "</w>", "ab</w>"],
                ["a b</w>", "b </w>", "c d</w>", "d a</w>"],
                "'</w>' occurs alone, and as part of 'a</w>', which no merge makes; pass end_of_word=",
            ),
            (
                ["<unk>", "Ã", "©"],
                [],
                "could also write bytes, as in GPT-2's files, but some .* pass byte_level",
            ),
        ],
    )
    def test_invalid_files(self, tmp_path, tokens, merges, message):
        write_txt(tmp_path, tokens, merges)
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)

    def test_byte_level_by_option(self, tmp_path):
        write_txt(tmp_path, ["<unk>", "Ã", "©"], [])
        assert tokjax.tokenize(tokjax.load_tokenizer(tmp_path, byte_level=True), "é") == ["Ã", "©"]
        assert tokjax.tokenize(tokjax.load_tokenizer(tmp_path, byte_level=False), "é") == ["<unk>"]


class TestContinuations:
    """Vocabularies with `@@`, as those of PhoBERT and BERTweet."""

    def write(self, directory, *, counts=True):
        tokens, merges = train_suffix_merges()
        tokens = tokens[len(SPECIAL) : -10]  # some tokens are unknown
        written = write_continuations([token for token in tokens if "@" not in token])
        lines = [f"{token} {1000 - i}" for i, token in enumerate(written)] if counts else ["<unk>", *written]
        (directory / "vocab.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        codes = "".join(f"{left} {right} {1000 - i}\n" for i, (left, right) in enumerate(merges))
        (directory / "bpe.codes").write_text(codes, "utf-8")
        return directory

    @pytest.mark.parametrize("name", ["PhobertTokenizer", "BertweetTokenizer"])
    def test_ids_equal_those_of_transformers(self, tmp_path, name):
        transformers = pytest.importorskip("transformers", minversion="5")
        self.write(tmp_path)
        tokenizer = tokjax.load_tokenizer(tmp_path)
        reference = getattr(transformers, name)(str(tmp_path / "vocab.txt"), str(tmp_path / "bpe.codes"))

        @given(hard_texts)
        def check(text):
            text = " ".join(text.split())  # the class has newlines as part of words
            if is_encodable(text) and not any(special in text for special in [*SPECIAL, "<mask>"]):
                for each in (text, f"{TRAINING_TEXTS[0]} {text}"):
                    ids = tokjax.encode(tokenizer, each).tolist()
                    assert ids == reference(each)["input_ids"]
                    ordinary = [id_ for id_ in ids if id_ not in reference.all_special_ids]
                    if ordinary and not reference.convert_ids_to_tokens(ordinary[-1]).endswith("@@"):
                        expected = reference.decode(ordinary, clean_up_tokenization_spaces=False)
                        assert tokjax.decode(tokenizer, ordinary) == expected
                pair = tokjax.encode_result(tokenizer, text, "the lowest")
                assert pair.ids.tolist() == reference(text, "the lowest")["input_ids"]

        check()
        assert tokjax.vocab_size(tokenizer) == len(reference)
        for token, id_ in reference.get_vocab().items():
            assert tokjax.token_to_id(tokenizer, token) == id_
        assert tokjax.mask_id(tokenizer) == reference.mask_token_id
        assert tokjax.pad_id(tokenizer) == reference.pad_token_id
        assert tokjax.cls_id(tokenizer) == reference.cls_token_id

    def test_files_and_options(self, tmp_path):
        self.write(tmp_path)
        tokenizer = tokjax.load_tokenizer(tmp_path)
        assert tokenizer.end_of_word == "@@"
        vocab, codes = tmp_path / "vocab.txt", tmp_path / "bpe.codes"
        for path in (vocab, codes, [vocab, codes], [codes, vocab]):
            assert tokjax.load_tokenizer(path) == tokenizer
            assert tokjax.formats.detect_tokenizer_files(path).format == "word_bpe"
        assert tokjax.load_tokenizer(tokjax.save_tokenizer(tokenizer, tmp_path / "x.json")) == tokenizer
        words = tokjax.load_tokenizer(tmp_path, unknown="word", eos_token="<mask>")
        assert tokjax.tokenize(words, "low Qlow") == ["<s>", "low", "<unk>", "</s>"]
        assert tokjax.eos_id(words) == tokjax.mask_id(words)

    def test_vocabulary_without_counts(self, tmp_path):
        tokenizer = tokjax.load_tokenizer(self.write(tmp_path, counts=False))
        assert tokjax.special_tokens(tokenizer) == {"<unk>": 0}
        result = tokjax.encode_result(tokenizer, "lowest low Q")
        assert result.tokens == ("lowest", "low", "<unk>")
        assert result.offsets.tolist() == [[1, 7], [8, 11], [12, 13]]
        assert tokjax.decode(tokenizer, result.ids[:2]) == "lowest low"
        with pytest.raises(ArgumentError, match="end_of_word='@@' is not supported with byte_level=True"):
            tokjax.word_bpe(["<unk>"], [], end_of_word="@@", byte_level=True)


TRAINING_TEXTS = [*CORPUS, "Lowest! The widest, isn't it? 中文 é"]


def train_suffix_merges():
    """Trains merges on words, as the files of OpenAI's GPT have them. Returns tokens and merges."""
    library = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, end_of_word_suffix="</w>", show_progress=False
    )
    library.train_from_iterator([text.lower() for text in TRAINING_TEXTS], trainer)
    model = json.loads(library.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), list(map(tuple, model["merges"]))


class TestVocabJson:
    @pytest.mark.parametrize(
        ("name", "config"),
        [
            ("OpenAIGPTTokenizer", {"tokenizer_config.json": {"tokenizer_class": "OpenAIGPTTokenizerFast"}}),
            ("OpenAIGPTTokenizer", {"config.json": {"model_type": "openai-gpt"}}),
            (
                "HerbertTokenizer",
                {"config.json": {"tokenizer_class": "HerbertTokenizer", "model_type": "bert"}},
            ),
        ],
    )
    def test_ids_equal_those_of_transformers(self, tmp_path, name, config):
        transformers = pytest.importorskip("transformers", minversion="5")
        tokens, merges = train_suffix_merges()
        if name == "HerbertTokenizer":  # transformers has fixed ids for its template
            tokens = ["<s>", "<pad>", "</s>", "<unk>", *tokens[4:]]
        write_json(tmp_path, tokens, map(" ".join, merges), config)
        tokenizer = tokjax.load_tokenizer(tmp_path)
        reference = getattr(transformers, name)(
            vocab={token: id_ for id_, token in enumerate(tokens)}, merges=merges
        )

        @given(hard_texts)
        def check(text):
            if is_encodable(text) and not any(special in text for special in [*SPECIAL, "<mask>"]):
                ids = tokjax.encode(tokenizer, text).tolist()
                assert ids == reference(text)["input_ids"]
                pair = tokjax.encode_result(tokenizer, text, "the lowest")
                assert pair.ids.tolist() == reference(text, "the lowest")["input_ids"]
                skipped = tokjax.decode(tokenizer, ids, skip_special_tokens=False)
                assert skipped == reference.decode(ids, clean_up_tokenization_spaces=False)

        check()
        assert tokenizer == tokjax.load_tokenizer([tmp_path / "merges.txt", tmp_path / "vocab.json"])

    @pytest.mark.parametrize("name", ["FlaubertTokenizer", "XLMTokenizer"])
    @pytest.mark.parametrize("by_counts", [False, True])
    def test_texts_split_with_moses(self, tmp_path, name, by_counts):
        transformers = pytest.importorskip("transformers", minversion="5")
        pytest.importorskip("sacremoses")
        tokens, merges = train_suffix_merges()
        tokens = [*tokens[:-20], *(f"<special{i}>" for i in range(10))]  # XLM's vocabularies lack some tokens
        lines = [
            f"{left} {right} {1000 - i}" if by_counts else f"{left} {right}"
            for i, (left, right) in enumerate(merges)
        ]
        write_json(
            tmp_path, tokens, lines, {} if by_counts else {"tokenizer_config.json": {"tokenizer_class": name}}
        )
        with pytest.raises(
            FormatError, match="XLM or FlauBERT, which split texts with Moses; do that before"
        ):
            tokjax.load_tokenizer(tmp_path)
        tokenizer = tokjax.load_tokenizer(tmp_path, splitter="whitespace")
        reference = getattr(transformers, name)(tmp_path / "vocab.json", tmp_path / "merges.txt")
        for text in [*TRAINING_TEXTS, "", "l'été, 1.5 %", "xyz ÜÄ 🙂"]:
            is_xlm = name == "XLMTokenizer"
            language, prepared = ("en", text) if is_xlm else ("fr", reference.preprocess_text(text))
            words = reference.moses_tokenize(reference.moses_pipeline(prepared, language), language)
            if is_xlm:
                words = transformers.models.xlm.tokenization_xlm.lowercase_and_remove_accent(words)
            result = tokjax.encode_result(tokenizer, " ".join(words))
            assert result.ids.tolist() == reference(text)["input_ids"]
            assert (
                tokjax.decode(tokenizer, result.ids[1:-1])
                == reference.decode(result.ids[1:-1].tolist()).strip()
            )
        bypassed = reference._tokenize("low lö !", bypass_tokenizer=True)
        expected = reference.convert_tokens_to_ids(bypassed)
        assert tokjax.encode(tokenizer, "low lö !", add_special_tokens=False).tolist() == expected

    def test_missing_information(self, tmp_path):
        tokens = list_tokens(SUFFIX_MERGES)
        write_json(tmp_path, tokens, SUFFIX_MERGES)
        with pytest.raises(
            FormatError, match="no file says how texts are split into words; pass splitter='bert'"
        ):
            tokjax.load_tokenizer(tmp_path)
        with pytest.raises(
            FormatError, match="unknown whether texts are converted to lower case; pass lowercase"
        ):
            tokjax.load_tokenizer(tmp_path, splitter="bert")
        tokenizer = tokjax.load_tokenizer(tmp_path, splitter="bert", lowercase=True)
        assert tokjax.tokenize(tokenizer, "LOW lo!") == ["low</w>", "l", "<unk>", "<unk>"]
        (tmp_path / "config.json").write_text('{"model_type": "openai-gpt"}')
        assert tokjax.load_tokenizer(tmp_path) == tokenizer
        (tmp_path / "added_tokens.json").write_text('{"<new>": 9999}')
        with pytest.raises(FormatError, match="has an added token '<new>', which is not in vocab.json"):
            tokjax.load_tokenizer(tmp_path)
        (tmp_path / "added_tokens.json").unlink()
        write_json(tmp_path, [*tokens, "\ud800"], SUFFIX_MERGES)
        with pytest.raises(FormatError, match="vocab.json: the values are invalid: .*surrogates not allowed"):
            tokjax.load_tokenizer(tmp_path, splitter="whitespace")

    def test_declared_tokens(self, tmp_path):
        transformers = pytest.importorskip("transformers", minversion="5")
        tokens = [*list_tokens(SUFFIX_MERGES), "<x>"]
        write_json(tmp_path, tokens, SUFFIX_MERGES)
        token = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
        token |= {"content": "<x>", "special": True}

        def declare(**changes):
            config = {
                "tokenizer_class": "OpenAIGPTTokenizer",
                "added_tokens_decoder": {str(len(tokens) - 1): {**token, **changes}},
            }
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

        declare()
        reference, tokenizer = (
            transformers.AutoTokenizer.from_pretrained(tmp_path),
            tokjax.load_tokenizer(tmp_path),
        )
        for text in ("low <x> lo", "low<x><x>low"):
            ids = tokjax.encode(tokenizer, text, allowed_special={"<x>"}).tolist()
            assert ids == reference(text)["input_ids"]
        for changes, message in (
            ({"special": False}, "the added token '<x>' is not special, which is not supported; pass a"),
            ({"single_word": True}, "the added token '<x>' is to be matched as a single word, which is"),
        ):
            declare(**changes)
            with pytest.raises(FormatError, match=message):
                tokjax.load_tokenizer(tmp_path)

    @pytest.mark.parametrize(
        ("tokens", "merges", "message"),
        [
            (
                ["<unk>", "a", "b", "b</w>", "ab"],
                ["a b", "a b</w>"],
                "merge of 'a' and 'b</w>': one of its tokens",
            ),
            (
                ["<unk>", "a", "b", "b</w>", "ab", "aab", "aa"],
                ["a ab", "a a", "a b", "b b</w>", "aa b"],
                "one of its tokens is not in the vocabulary",
            ),
            (
                ["<unk>", "a", "b", "b</w>", "ab", "aab", "bb</w>"],
                ["a ab", "a b", "b b</w>"],
                "a token that is used before the last merge that makes it; .* Pass a tokenizer.json",
            ),
        ],
    )
    def test_merges_that_depend_on_the_library(self, tmp_path, tokens, merges, message):
        config = {"config.json": {"model_type": "openai-gpt"}}
        write_json(tmp_path, tokens, merges, config)
        with pytest.raises(FormatError, match=message):
            tokjax.load_tokenizer(tmp_path)


def test_byte_level_merges_with_the_mark_as_text_are_not_classic_bpe(tmp_path):
    merges = ["< /", "w >", "</ w>", "</w> Ċ"]
    tokens = [*ALPHABET, "</", "w>", "</w>", "</w>Ċ"]
    tokenizer = tokjax.load_tokenizer(write_json(tmp_path, tokens, merges))
    assert isinstance(tokenizer, tokjax.models.ByteLevelBPE)


def test_clip_files_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5")
    merges = ["t h", "th e</w>", "c a", "ca t</w>", "Ã ©</w>", "! !</w>"]
    tokens = [*ALPHABET, *(f"{character}</w>" for character in ALPHABET)]
    tokens += [merge.replace(" ", "") for merge in merges] + ["<|startoftext|>", "<|endoftext|>"]
    write_json(tmp_path, tokens, merges)
    assert tokjax.formats.detect_tokenizer_files(tmp_path).format == "clip"
    tokenizer = tokjax.load_tokenizer(tmp_path)
    reference = transformers.CLIPTokenizer(
        vocab={token: id_ for id_, token in enumerate(tokens)},
        merges=[tuple(merge.split()) for merge in merges],
    )
    for text in ("The  CAT!!", "é É\n1234", ""):
        assert tokjax.encode(tokenizer, text).tolist() == reference(text)["input_ids"]
    for path in (tmp_path, tmp_path / "vocab.json", [tmp_path / "vocab.json", tmp_path / "merges.txt"]):
        assert tokjax.load_tokenizer(path, "clip") == tokenizer
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "!", "tokenizer_class": "CLIPTokenizer"}')
    with pytest.raises(
        FormatError, match=r"expected the special tokens '<\|startoftext\|>' and .* no others"
    ):
        tokjax.load_tokenizer(tmp_path)
