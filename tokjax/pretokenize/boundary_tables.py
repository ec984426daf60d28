"""Boundary tables: the start positions of pre-tokens, computed with array operations.

Each character has one of twelve classes (`unicode_classes`). Whether a pre-token starts at a character
depends, with few exceptions, on its class and on the class of the character before it. So each named split
pattern has a boundary table: one byte of flags for each pair of classes. All pairs of a text are looked up at
once. For `cl100k`:

    text         d  o  n  '  t  _  _  p  a  y  _  $  1  2  3  4      _ is a space
    classes      l  l  l  '  l  _  _  l  l  l  _  o  n  n  n  n      letter, apostrophe, space, other, number
    table        ^  .  .  ^  ^  ^  ^  .  .  .  ^  .  ^  .  .  .      from pairs of classes alone
    corrected    ^  .  .  ^  .  ^  ^  .  .  .  ^  .  ^  .  .  ^      don|'t|_|_pay|_$|123|4

The work is done in three steps, from frequent to rare:

1. The table decides where two classes are enough. Its other flags mark the positions of step 2.
2. Array operations correct the marked positions: contractions, whitespace after newlines, a single character
   before letters, mixed case, and groups of three digits.
3. A few pairs are `_RARE`. The regular expression splits the text around them again, between two safe splits.

See docs/performance.md, section "Boundary tables".
"""

from __future__ import annotations

import itertools
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges
from tokjax.core.utf8 import decode_characters_at
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.pretokenize.unicode_classes import (
    APOSTROPHE,
    ASCII_SPACE,
    END,
    LETTER,
    LONG_S,
    LONG_S_BYTES,
    LOWER,
    MARK,
    NEWLINE,
    NEXT_LINE,
    NEXT_LINE_BYTES,
    NUMBER,
    OTHER,
    SLASH,
    SPACE,
    UPPER,
    load_code_point_classes,
    map_to_representatives,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]


_NUM_CLASSES = 12
_LETTERS, _OTHERS = (UPPER, LOWER, LETTER), (OTHER, APOSTROPHE, SLASH)

# Roles: the groups of classes that a pattern distinguishes, one bit each.
_LETTER_ROLE, _NUMBER_ROLE, _OTHER_ROLE, _SPACE_ROLE, _NEWLINE_ROLE, _END_ROLE = 1, 2, 4, 8, 16, 32

# Flags of a pair of neighbours in a boundary table. All refer to the second character of the pair.
_STARTS = 1  # it starts a pre-token
_PREVIOUS_STARTS = 2  # the first character starts one: the last whitespace character before other text
_AFTER_NEWLINE = 4  # it is whitespace after a newline
_ROLE_CHANGES = 8  # its role differs from the role of the first character
_LETTER_AFTER_OTHER = 16  # it is a letter after a character that is not a letter, number or whitespace
_NUMBER_EDGE = 32  # a run of numbers starts at it, or has ended before it
_RARE = 64  # two classes are not enough to decide; the regular expression splits the text again
_APOSTROPHE_AFTER_LETTER = 128  # it is an apostrophe after a letter


class _Roles(NamedTuple):
    """The roles of each class in a pattern.

    Two neighbours belong to the same pre-token if `previous[first class] & current[second class]` is not 0.

    Attributes:
        previous: the roles that can follow a character of each class within the same pre-token.
        current: the role of a character of each class.
    """

    previous: dict[int, int]
    current: dict[int, int]


def _make_class_array(values: Mapping[int, int]) -> NDArray[np.uint8]:
    """Returns the value of each class as an array that is indexed by class, 0 for missing classes."""
    return np.array([values.get(class_, 0) for class_ in range(_NUM_CLASSES)], np.uint8)


def _make_class_table(values: Mapping[int, int]) -> bytes:
    """Returns the value of each class as a table for `bytes.translate`, 0 for missing classes."""
    return bytes(values.get(class_, 0) for class_ in range(256))


def _make_roles(letters: tuple[int, ...], others: tuple[int, ...], *, keep_newlines: bool) -> _Roles:
    r"""Returns the roles of the published patterns.

    With `keep_newlines` (`cl100k` and later patterns), the previous character can be followed by:

        letter         letter
        number         number
        other          other, newline                    [^\s\p{L}\p{N}]+[\r\n]*
        whitespace     whitespace, newline, letter       \s*[\r\n]+ and [^\r\n\p{L}\p{N}]?\p{L}+
        U+0020         the same, and other               " ?[^\s\p{L}\p{N}]+"

    Without it (`gpt2`), newlines are whitespace like any other, and only U+0020 joins the text after it, also
    numbers.

    Args:
        letters: the classes with the role of letters.
        others: the classes with the role of other characters.
        keep_newlines: whether whitespace before a newline, and newlines after other characters, join them.
    """
    spaces = _SPACE_ROLE | (_NEWLINE_ROLE | _LETTER_ROLE if keep_newlines else 0)
    newline = _NEWLINE_ROLE if keep_newlines else _SPACE_ROLE
    other = _OTHER_ROLE | (_NEWLINE_ROLE if keep_newlines else 0)
    ascii_space = spaces | _OTHER_ROLE | (0 if keep_newlines else _LETTER_ROLE | _NUMBER_ROLE)
    previous = dict.fromkeys(letters, _LETTER_ROLE) | dict.fromkeys(others, other)
    previous |= {NUMBER: _NUMBER_ROLE, SPACE: spaces, ASCII_SPACE: ascii_space}
    previous |= {NEWLINE: newline | _SPACE_ROLE, END: 0}
    current = dict.fromkeys(letters, _LETTER_ROLE) | dict.fromkeys(others, _OTHER_ROLE)
    current |= {NUMBER: _NUMBER_ROLE, SPACE: _SPACE_ROLE, ASCII_SPACE: _SPACE_ROLE}
    current |= {NEWLINE: newline, END: _END_ROLE}
    return _Roles(previous, current)


def _make_boundary_table(
    roles: _Roles,
    starts: Collection[tuple[int, int]] = (),
    rare: Collection[tuple[int, int]] = (),
) -> bytes:
    """Returns the boundary table of a pattern: 256 bytes of flags, indexed by `previous << 4 | current`.

    Args:
        roles: the roles of the classes. A pre-token starts between neighbours without a common role.
        starts: further pairs of classes of which the second starts a pre-token.
        rare: pairs of classes around which the regular expression has to split.
    """
    table = bytearray(256)
    for previous, current in itertools.product(range(_NUM_CLASSES), repeat=2):
        previous_role, role = roles.current[previous], roles.current[current]
        conditions = {
            _STARTS: not roles.previous[previous] & role or (previous, current) in starts,
            # `\s+(?!\S)` leaves the last whitespace character to the text after it.
            _PREVIOUS_STARTS: previous_role == _SPACE_ROLE
            and not role & (_SPACE_ROLE | _NEWLINE_ROLE | _END_ROLE),
            _AFTER_NEWLINE: previous_role == _NEWLINE_ROLE and role == _SPACE_ROLE,
            _ROLE_CHANGES: previous_role != role,
            _LETTER_AFTER_OTHER: previous_role == _OTHER_ROLE and role == _LETTER_ROLE,
            _NUMBER_EDGE: (previous_role == _NUMBER_ROLE) != (role == _NUMBER_ROLE),
            _RARE: (previous, current) in rare,
            _APOSTROPHE_AFTER_LETTER: previous_role == _LETTER_ROLE and current == APOSTROPHE,
        }
        table[previous << 4 | current] = sum(flag for flag, holds in conditions.items() if holds)
    return bytes(table)


# A text can be split safely between two characters if these values of their classes have a bit in common:
# after a letter or number and before whitespace (1), before an end (2), and after an end (4).
_BEFORE_SPLIT = _make_class_table(
    dict.fromkeys(range(_NUM_CLASSES), 2)
    | dict.fromkeys((UPPER, LOWER, LETTER, NUMBER), 1 | 2)
    | {END: 1 | 2 | 4}
)
_AFTER_SPLIT = _make_class_table(
    dict.fromkeys(range(_NUM_CLASSES), 4) | dict.fromkeys((SPACE, ASCII_SPACE, NEWLINE), 1) | {END: 2}
)

_GPT2_ROLES = _make_roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=False)
_CL100K_ROLES = _make_roles(_LETTERS, (*_OTHERS, MARK), keep_newlines=True)
_O200K_ROLES = _make_roles((*_LETTERS, MARK), _OTHERS, keep_newlines=True)
GPT2_TABLE = _make_boundary_table(_GPT2_ROLES)
CL100K_TABLE = _make_boundary_table(_CL100K_ROLES)
QWEN2_TABLE = _make_boundary_table(_CL100K_ROLES, starts=[(NUMBER, NUMBER)])
# A mark after another character may belong to it, as in `[^\s\p{L}\p{N}]+`, or to the letters after it. A
# slash after newlines may belong to the characters before these, as in `[\r\n/]*`.
_RARE_IN_O200K = [*((other, MARK) for other in _OTHERS), (NEWLINE, SLASH)]
O200K_TABLE = _make_boundary_table(_O200K_ROLES, starts=[(LOWER, UPPER)], rare=_RARE_IN_O200K)
TEKKEN_TABLE = _make_boundary_table(
    _O200K_ROLES, starts=[(LOWER, UPPER), (NUMBER, NUMBER)], rare=_RARE_IN_O200K
)

# All whitespace joins the text after it. It has the newline role, because `_PREVIOUS_STARTS` would split
# before the last of several characters with the space role. All other characters have the letter role.
_WHITESPACE_CLASSES = dict.fromkeys((SPACE, ASCII_SPACE, NEWLINE), _NEWLINE_ROLE)
_ALL_LETTERS = dict.fromkeys(range(_NUM_CLASSES), _LETTER_ROLE)
_WHITESPACE_ROLES = _Roles(
    {**_ALL_LETTERS, **dict.fromkeys(_WHITESPACE_CLASSES, _NEWLINE_ROLE | _LETTER_ROLE), END: 0},
    {**_ALL_LETTERS, **_WHITESPACE_CLASSES, END: _END_ROLE},
)
WHITESPACE_TABLE = _make_boundary_table(_WHITESPACE_ROLES)


_VERTICAL_TAB, _FORM_FEED = 0x0B, 0x0C
_MAX_CHARACTER_BYTES = 4
_FIRST_LEAD = 0xC0
_DIGITS_PER_GROUP = 3


def find_pretoken_starts(pattern: str, classes: Classes, codes: NDArray[Any]) -> Flags:
    """Finds where each pre-token of one or several texts starts.

    Args:
        pattern: a name in `PATTERNS`.
        classes: the class of each character, with `END` after each text; `uint8`, shape `(n,)`. It may be
            changed.
        codes: the code point of each character, 0 at each `END`; unsigned integers, shape `(n,)`.

    Returns:
        `bool`, shape `(n,)`: true where a pre-token starts, and at each `END`.
    """
    return _FINDERS[pattern](classes, codes)


def find_pretoken_starts_in_bytes(pattern: str, text: bytes, ends: NDArray[np.int64]) -> Flags | None:
    """Finds where each pre-token starts in UTF-8 that is mostly ASCII, without decoding it.

    Every byte of a character gets the class of the character. So almost all tests of neighbours give the same
    result for bytes as for characters:

        text         c     a     f     é           _     o     k
        bytes        63    61    66    c3    a9    20    6f    6b
        classes      l     l     l     l     l     _     l     l
        starts       ^     .     .     .     .     ^     .     .

    Args:
        pattern: a name in `PATTERNS`.
        text: valid UTF-8, with one ASCII character after each text.
        ends: the positions of these characters, `int64`, shape `(num_texts,)`.

    Returns:
        `bool`, one entry per byte, as from `find_pretoken_starts`. `None` if the result would be wrong for
        bytes: the pattern counts characters, or needs the regular expression. Use `find_pretoken_starts`
            then.
    """
    codes = np.frombuffer(text, np.uint8)
    leads = np.flatnonzero(codes >= _FIRST_LEAD)
    if len(leads) and pattern not in _COUNTED_CLASSES:
        return None
    classes = np.frombuffer(bytearray(text).translate(_get_byte_classes()), np.uint8)
    widths, characters = decode_characters_at(text, leads)
    lead_classes = load_code_point_classes().take(characters)
    for i in range(_MAX_CHARACTER_BYTES):
        longer = np.flatnonzero(widths > i)
        classes[leads.take(longer) + i] = lead_classes.take(longer)
    classes[ends] = END
    if len(leads) and np.isin(lead_classes, _COUNTED_CLASSES[pattern]).any():
        return None
    starts = _FINDERS[pattern](classes, codes)
    # `_PREVIOUS_STARTS` has marked the last byte of a whitespace character: move the flag to its first byte.
    spaces = np.flatnonzero(lead_classes == SPACE)
    space_leads = leads.take(spaces)
    starts[space_leads] |= starts[space_leads + widths.take(spaces) - 1]
    for i in range(1, _MAX_CHARACTER_BYTES):
        starts[leads.take(np.flatnonzero(widths > i)) + i] = False
    return starts


def _find_gpt2_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    starts, _ = _look_up_neighbours(GPT2_TABLE, classes)
    _split_contractions(starts, classes, codes, any_case=False)
    return starts


def _find_cl100k_starts(classes: Classes, codes: NDArray[Any], *, table: bytes) -> Flags:
    starts, flags = _look_up_neighbours(table, classes)
    _split_after_newlines(starts, flags, classes, _CL100K_ROLES)
    _join_single_prefixes(starts, flags, classes, codes, _CL100K_ROLES)
    _split_contractions(starts, classes, codes, any_case=True)
    _split_numbers(starts, flags, classes)
    return starts


def _find_o200k_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    starts, flags = _look_up_neighbours(O200K_TABLE, classes)
    _split_after_newlines(starts, flags, classes, _O200K_ROLES)
    _join_single_prefixes(starts, flags, classes, codes, _O200K_ROLES)
    # Here a contraction is the end of a pre-token: "don't" is one, and the character after the "t" starts
    # another.
    apostrophes = _find_flagged(flags, _APOSTROPHE_AFTER_LETTER)
    contractions = _find_contractions(codes, apostrophes, any_case=True)
    for length, positions in contractions:
        starts[positions] = starts[positions + 1] = False
        starts[positions + 1 + length] = True
    _split_mixed_case(starts, classes, contractions)
    _split_numbers(starts, flags, classes)
    # A pre-token has at most one contraction, so the second of two in a row ("a's't") is not one.
    ends = np.concatenate([positions + 1 + length for length, positions in contractions])
    rare = np.concatenate([np.intersect1d(ends, apostrophes), _find_flagged(flags, _RARE)])
    if len(rare):
        _split_by_expression("o200k", starts, classes, codes, rare)
    return starts


def _find_tekken_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    """Does the same as `_find_o200k_starts`, without contractions and with one pre-token per digit."""
    starts, flags = _look_up_neighbours(TEKKEN_TABLE, classes)
    _split_after_newlines(starts, flags, classes, _O200K_ROLES)
    _join_single_prefixes(starts, flags, classes, codes, _O200K_ROLES)
    _split_mixed_case(starts, classes, [])
    rare = _find_flagged(flags, _RARE)
    if len(rare):
        _split_by_expression("tekken", starts, classes, codes, rare)
    return starts


def _find_whitespace_starts(classes: Classes, codes: NDArray[Any]) -> Flags:
    # The pattern does not treat these control characters as whitespace: see `PATTERNS`.
    classes[(codes == _VERTICAL_TAB) | (codes == _FORM_FEED)] = OTHER
    if codes.dtype == np.uint8:
        first_byte, second_byte = NEXT_LINE_BYTES
        positions = np.flatnonzero((codes[:-1] == first_byte) & (codes[1:] == second_byte))
        classes[positions] = classes[positions + 1] = OTHER
    else:
        classes[codes == NEXT_LINE] = OTHER
    starts, _ = _look_up_neighbours(WHITESPACE_TABLE, classes)
    return starts


def _look_up_neighbours(table: bytes, classes: Classes) -> tuple[Flags, Classes]:
    """Looks up all pairs of neighbours in a boundary table.

    Returns:
        The starts according to the table alone, `bool`, shape `(n,)`, and the flags of each pair, `uint8`,
        shape `(n - 1,)`; the flags at index `i` refer to the character at `i + 1`.
    """
    # `bytes.translate` is faster than indexing the table with an array, and NumPy multiplies 8-bit numbers
    # about ten times faster than it shifts them.
    pairs = classes[:-1] * np.uint8(16)
    pairs |= classes[1:]
    flags = np.frombuffer(pairs.tobytes().translate(table), np.uint8)
    starts = np.empty(len(classes), bool)
    starts[0] = True
    np.not_equal(flags & _STARTS, 0, out=starts[1:])
    starts[:-1] |= flags & _PREVIOUS_STARTS != 0
    return starts, flags


def _find_flagged(flags: Classes, flag: int) -> NDArray[np.int64]:
    """Returns the positions of the characters that have a flag."""
    return np.flatnonzero(flags & flag != 0) + 1


def _split_after_newlines(starts: Flags, flags: Classes, classes: Classes, roles: _Roles) -> None:
    r"""Starts a pre-token at whitespace after newlines, where the newlines end a pre-token.

    They do after the last newline of a run of whitespace, since `\s*[\r\n]+` extends to it, and where the
    newlines belong to other characters before them:

        text         !  n  _  n  _  x        n is a newline, _ a space
        table        ^  .  .  .  ^  .
        corrected    ^  .  ^  .  ^  .        "!\n", " \n", " x"
    """
    after = _find_flagged(flags, _AFTER_NEWLINE)
    if not len(after):
        return
    role = _make_class_array(roles.current)
    # `changes[index]` is the position itself. The change before it starts the newlines, the change after it
    # ends the whitespace at it.
    changes = _find_flagged(flags, _ROLE_CHANGES)
    index = np.searchsorted(changes, after)
    is_last_newline = role[classes[changes[index + 1]]] != _NEWLINE_ROLE
    newlines_start = np.where(index > 0, changes[index - 1], 0)
    belongs_to_other = (newlines_start > 0) & (role[classes[newlines_start - 1]] == _OTHER_ROLE)
    starts[after[is_last_newline | belongs_to_other]] = True


def _join_single_prefixes(
    starts: Flags, flags: Classes, classes: Classes, codes: NDArray[Any], roles: _Roles
) -> None:
    r"""Joins a single other character to the letters after it, as in `[^\r\n\p{L}\p{N}]?\p{L}+`.

    "(a" is one pre-token. But " (" and "((" are pre-tokens of ` ?[^\s\p{L}\p{N}]+`, so that the "a" after
    them starts another one.
    """
    letters = _find_flagged(flags, _LETTER_AFTER_OTHER)
    prefix = letters - 1
    if codes.dtype == np.uint8:
        for _ in range(_MAX_CHARACTER_BYTES - 1):
            prefix = prefix - ((codes[prefix] & 0xC0) == 0x80)  # back to the first byte of the character
    before = classes[np.maximum(prefix - 1, 0)]
    is_single = (prefix == 0) | (
        (_make_class_array(roles.current)[before] != _OTHER_ROLE) & (before != ASCII_SPACE)
    )
    starts[letters[is_single]] = False


def _split_contractions(starts: Flags, classes: Classes, codes: NDArray[Any], *, any_case: bool) -> None:
    """Makes each contraction a pre-token: an apostrophe that starts a pre-token, and its letters."""
    apostrophes = np.flatnonzero((classes == APOSTROPHE) & starts)
    for length, positions in _find_contractions(codes, apostrophes, any_case=any_case):
        starts[positions + 1] = False
        starts[positions + 1 + length] = True


def _find_contractions(
    codes: NDArray[Any], apostrophes: NDArray[np.int64], *, any_case: bool
) -> list[tuple[int, NDArray[np.int64]]]:
    """Returns `(length, positions)` of the apostrophes that start a contraction, for lengths 1 and 2.

    The length is the number of entries of `codes` after the apostrophe. With `any_case`, the long s (U+017F)
    is an "s"; in UTF-8 it has two bytes.
    """
    last = len(codes) - 1
    first, second = codes[np.minimum(apostrophes + 1, last)], codes[np.minimum(apostrophes + 2, last)]
    if not any_case:
        long_s = np.zeros(0, np.int64)
    elif codes.dtype == np.uint8:
        long_s = apostrophes[(first == LONG_S_BYTES[0]) & (second == LONG_S_BYTES[1])]
    else:
        long_s = apostrophes[first == LONG_S]
    if any_case:
        first, second = first | 0x20, second | 0x20  # to lower case, for ASCII letters
    one = (first == ord("s")) | (first == ord("t")) | (first == ord("m")) | (first == ord("d"))
    two = (first == ord("l")) & (second == ord("l"))
    two |= ((first == ord("r")) | (first == ord("v"))) & (second == ord("e"))
    if codes.dtype == np.uint8:
        return [(1, apostrophes[one]), (2, np.concatenate([apostrophes[two], long_s]))]
    return [(1, np.concatenate([apostrophes[one], long_s])), (2, apostrophes[two])]


def _split_mixed_case(
    starts: Flags, classes: Classes, contractions: list[tuple[int, NDArray[np.int64]]]
) -> None:
    """Splits before upper case after letters without case, where the pattern does.

    In `o200k` and `tekken`, a pre-token of letters is upper case and then lower case. Letters without case,
    and marks, count as both. The table splits between lower and upper case; letters without case hide that:

        a日B     "a日", "B"      lower case came before: the "B" can't follow it
        日B      "日", "B"       no lower case follows: `U*L+` has to end with the "日"
        日Bb     "日Bb"          upper case, then lower case

    `contractions` are the results of `_find_contractions`.
    """
    caseless = (classes == LETTER) | (classes == MARK)
    upper = np.flatnonzero(caseless[:-1] & (classes[1:] == UPPER)) + 1
    if not len(upper):
        return
    adjusted_classes = classes.copy()
    for length, positions in contractions:
        for i in range(1, length + 1):  # the letters of a contraction end the pre-token before them
            adjusted_classes[positions + i] = OTHER
    with_case = np.flatnonzero(~caseless)
    index = np.searchsorted(with_case, upper) - 1
    after_lower = (index >= 0) & (adjusted_classes[with_case[index]] == LOWER)
    not_upper = np.flatnonzero(classes != UPPER)
    following = classes[not_upper[np.searchsorted(not_upper, upper)]]
    no_lower_follows = (following != LOWER) & (following != LETTER) & (following != MARK)
    starts[upper[after_lower | no_lower_follows]] = True


def _split_numbers(starts: Flags, flags: Classes, classes: Classes) -> None:
    """Splits runs of numbers into groups of three, from the left."""
    edges = _find_flagged(flags, _NUMBER_EDGE)
    if classes[0] == NUMBER:
        edges = np.concatenate([[0], edges])
    # Edges alternate: the start of a run, its stop, the start of the next one. `END` closes the last run.
    first, stop = edges[::2], edges[1::2]
    long = np.flatnonzero(stop - first > _DIGITS_PER_GROUP)
    first, num_splits = first[long], (stop[long] - first[long] - 1) // _DIGITS_PER_GROUP
    starts[np.repeat(first, num_splits) + _DIGITS_PER_GROUP * concatenate_ranges(1, num_splits)] = True


def _split_by_expression(
    pattern: str, starts: Flags, classes: Classes, codes: NDArray[Any], positions: NDArray[np.int64]
) -> None:
    """Splits the text around some positions with the regular expression, and corrects `starts` there.

    The region around a position extends from the last safe split before it to the first safe split after it.
    A split is safe between a letter or number and whitespace, and at the ends of texts.
    """
    split_points = (
        np.flatnonzero(_map_classes(classes, _BEFORE_SPLIT)[:-1] & _map_classes(classes, _AFTER_SPLIT)[1:])
        + 1
    )
    split_points = np.concatenate([[0], split_points, [len(classes)]])
    regions = np.unique(np.searchsorted(split_points, positions, "right"))
    first, stop = split_points[regions - 1], split_points[regions]
    # A region inside of a text starts with whitespace and ends with a letter or number. Such regions are safe
    # to concatenate, and are split in one call. Regions at the start or end of a text are split separately.
    at_text_end = (first == 0) | (stop == len(classes)) | (classes[first - 1] == END)
    at_text_end |= classes[np.minimum(stop, len(classes) - 1)] == END
    splitter = make_pattern_splitter(pattern)
    for group, is_separate in ((~at_text_end, False), (at_text_end, True)):
        sizes = stop[group] - first[group]
        region_positions = concatenate_ranges(first[group], sizes)
        representatives = map_to_representatives(codes[region_positions])
        stops = np.cumsum(sizes).tolist() if is_separate else [len(representatives)]
        parts = [representatives[begin:end] for begin, end in zip([0, *stops], stops, strict=False)]
        lengths = np.fromiter(itertools.chain.from_iterable(map(splitter.compute_lengths, parts)), np.int64)
        starts[region_positions] = False
        starts[region_positions[np.cumsum(lengths) - lengths]] = True


def _map_classes(classes: Classes, table: bytes) -> Classes:
    return np.frombuffer(bytearray(classes.tobytes()).translate(table), np.uint8)


@lru_cache(maxsize=1)
def _get_byte_classes() -> bytes:
    return load_code_point_classes()[:256].tobytes()


# The patterns that can split UTF-8 without decoding, each with the classes whose characters it counts: a
# character of several bytes would be counted several times. The other patterns may need the regular
# expression.
_COUNTED_CLASSES: Mapping[str, list[int]] = {
    "gpt2": [],
    "cl100k": [NUMBER],
    "llama3": [NUMBER],
    "qwen2": [],
    "whitespace": [],
}

_FINDERS: Mapping[str, Callable[[Classes, NDArray[Any]], Flags]] = {
    "gpt2": _find_gpt2_starts,
    "cl100k": partial(_find_cl100k_starts, table=CL100K_TABLE),
    "llama3": partial(_find_cl100k_starts, table=CL100K_TABLE),
    "qwen2": partial(_find_cl100k_starts, table=QWEN2_TABLE),
    "o200k": _find_o200k_starts,
    "tekken": _find_tekken_starts,
    "whitespace": _find_whitespace_starts,
}
