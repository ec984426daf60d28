"""Texts that are hard to map back to tokens, by what makes them hard."""

EDGE_CASES_BY_CATEGORY = {
    "plain": [
        *["", "a", "zzz", "Zq", "x" * 40, "a low lower widest", "don't", "it's 12,345.67!", "C++ or C#"],
        *["https://a.example/?q=1&r=é#x", "to: someone@mail.example", "a_b-c/d\\e", "fooBarBaz2"],
        *["v10.0.1-rc"],
        *["{'k': [1, 2.5]}", "if (a<b) {b--;}", "C:\\a b\\c.txt", "~/a/.b", "0x1F600", "2+2=4", "?!" * 10],
        *['say "no"', "(a [b {c}])", "1234567890", "a " * 15],
    ],
    "whitespace": [
        *[" ", "   ", "\n", "\t\t", "\r\n", " \n\t ", " zzz", "zzz ", "  zzz  ", "a zzz b", "a  b   c"],
        *["zzz\nqqq", "\tzzz", "zzz\t", "a\tb\tc", "a\n\nb", "a\rb", "a \n b", "a\u00a0b", "a\u3000b"],
        *["\u3000"],
        *["\u200b", "\x85", "\x00", "a\x00b", "\ufeffa", "a\u2028b", " a\n b\t c \r\n"],
    ],
    "changed by normalization": [
        *["½", "½ cup", "a½b", "①②③", "ﬁne", "ﬃ", "㌔", "™", "…", "Ⅷ", "x²", "ﷺ", "ｶﾞ", "ｱｲｳ", "Å", "ﬀ½ﬀ"],
        *["e\u0301", "\u0301", "a\u0301\u0302\u0303", "e\u0301é", "naïve café", "İstanbul", "ß", "Σας", "ǅ"],
        *["\u1112\u1161\u11ab", "\u0e33", "AaÀ", "Ünï Łó Ñ", "q\u0308\u0323 r", "ＡＢ１２", "¨", "½½ ½"],
        *["é" * 20],
    ],
    "scripts": [
        *["日本語", "飞机 abc", "한국어 ab", "ไทย", "हिन्दी", "தமிழ்", "বাংলা", "русский язык", "ελληνικά"],
        *["日" * 15],
        *["ab日cd", "мир and 世界!", "日本語のテキスト", "中文，标点。"],
    ],
    "right to left": [
        *["العربية", "שלום", "שלום abc", "abc العربية 12", "\u202eabc\u202c", "אב\u05bcג"],
    ],
    "symbols": [
        *[
            "🙂",
            "a 🙂 b",
            "🙂🙂",
            "👍🏽",
            "👩\u200d👩\u200d👧",
            "🇩🇪🇫🇷",
            "❤\ufe0f",
            "3\ufe0f\u20e3",
            "∑∫≠",
            "€5 £6",
        ],
        *["→←", "┌─┐", "♞♫☃", "\U000e0041", "🙂½é日"],
    ],
    "tokens in the text": [
        *["▁", "▁▁", "a▁b", "▁ ▁", "▁a", "Ġ", "Ġa Ā", "##ing", "</w>", "<0x41>", "<0xE6>", "<un", "[UNK"],
        *["##"],
    ],
}
LONG_TEXT = ("a lower zzz é½日 " * 600)[:8192]
EDGE_CASES = [text for texts in EDGE_CASES_BY_CATEGORY.values() for text in texts]
"""All of them."""
UNUSUAL_TEXTS = ["\ud83d\ude00 \ud83d", "a\udc00b", b"a\xff\xfe", b"\xe2\x82 a", "é½".encode()]
"""Lone surrogates, and bytes that are not UTF-8."""
