r"""Boundary tables: where pre-tokens start, by the classes of the characters around each position.

Whether a pre-token starts at a character depends, with few exceptions, on its class and the class of the
character before it. The tables have the decision for all combinations, or that more context is needed. They
are computed from the automaton of a split pattern. For `cl100k`:

    text         d  o  n  '  t  _  _  p  a  y  _  $  1  2  3  4      _ is a space
    pairs        ^  .  .  ^  ?  ^  ?  ^  .  .  ^  .  ^  ?  ?  ?      ? two classes are not enough
    correct      ^  .  .  ^  .  ^  ^  .  .  .  ^  .  ^  .  .  ^      don|'t|_|_pay|_$|123|4

How they are computed
---------------------
When the automaton reports a match, the pre-token may end there, or a longer match may follow. A *parse* of a
text guesses: at each character, the pre-token either continues or ends. For an ended pre-token, the parse
continues with the automaton, which must not report a longer match. So each text has exactly one parse that
reaches its end. The state of a parse consists of the state of the automaton in the current pre-token, and of
the states for ended ones. Published patterns have 10 to 40 states of parses.

If the state before a character is not known, but a set of possible ones, the character either starts a
pre-token in all parses that can go on from these, in none, or in some. So a table entry is a product of
matrices: states that can follow the left context, times states that the right context can follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import find_distinct
from tokjax.pretokenize.split_automaton import DEAD, START
from tokjax.pretokenize.split_expressions import UnsupportedExpressionError
from tokjax.pretokenize.unicode_classes import CODE_POINTS, LETTERS_AND_NUMBERS, load_category_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tokjax.pretokenize.split_automaton import SplitAutomaton

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]

CONTINUES, STARTS, UNDECIDED = range(3)
"""Decisions: a character continues a pre-token, starts one, or more context is needed."""

# Flags of a pair of characters in the table of pairs.
STARTS_FLAG = 1
"""The second character starts a pre-token."""
MARKED = 2
"""A window has to decide about the second character, or it is a trigger (see `BoundaryTables`)."""
NEEDS_RIGHT = 4
"""The flags of the next pair decide about the second character."""
RIGHT_STARTS, RIGHT_MARKED = 16, 32
"""A character that needs this pair as its next one starts a pre-token; a window has to decide about it."""
_NUM_COARSE = 16
"""Maximum number of coarse classes, so that a pair of them is a byte."""
_MAX_CLASSES = 40
"""Maximum number of classes of an automaton. Published patterns have up to 22."""
_MAX_PARSE_STATES = 100
"""Maximum number of states of parses. Published patterns have up to 40."""
_ASCII = 0x80
"""Number of ASCII characters."""


@dataclass(frozen=True, eq=False)
class BoundaryTables:
    r"""The tables of a split pattern.

    Classes are numbered anew: the lower four bits of a class are its coarse class, which is all that the
    table of pairs needs, and the upper four bits tell classes with the same coarse class apart.

    Attributes:
        automaton: the automaton of the pattern, with its own numbers of the classes.
        classes: the new number of each class of the automaton, `uint8`.
        pairs: the flags of each pair of coarse classes, indexed by `previous << 4 | current`.
        windows: the decision by the classes of the two characters before a character, its own and the next
            one, in the numbers of the automaton, `uint8`, shape `(classes, classes, classes, classes)`.
        run_windows: the decision by the classes of the character before, its own, the next one, and the first
            one after it that is neither of the last two; same shape.
        left_windows: the decision by the classes of the three characters before, and its own; same shape.
        is_trigger: whether each class is a rare character, such as the apostrophe of contractions, `bool`,
            shape `(256,)`. `pairs` does not hold for some characters after the next one.
        reach: number of these characters.
        groups: for classes whose runs are split into groups, as `\p{N}{1,3}` splits digits: the number of
            characters per group, by class.
        splits_before_spaces: whether a space or newline after a letter or number starts a pre-token in any
            text.
        covers_any_text: whether the matches of the pattern cover every text.
    """

    automaton: SplitAutomaton
    classes: NDArray[np.uint8]
    pairs: bytes
    windows: Classes
    run_windows: Classes
    left_windows: Classes
    is_trigger: Flags
    reach: int
    groups: Mapping[int, int]
    splits_before_spaces: bool
    covers_any_text: bool

    @property
    def end(self) -> int:
        """The class of the end of a text."""
        return int(self.classes[self.automaton.end])

    @cached_property
    def class_of_code(self) -> NDArray[np.uint8]:
        """The class of each code point, `uint8`, shape `(0x110000,)`."""
        runs = self.classes.take(self.automaton.run_classes)
        return np.repeat(runs, np.diff(self.automaton.run_starts, append=CODE_POINTS))

    @cached_property
    def automaton_class(self) -> NDArray[np.int64]:
        """The class in `automaton` of each class, `int64`, shape `(256,)`."""
        inverse = np.zeros(256, np.int64)
        inverse[self.classes] = np.arange(len(self.classes))
        return inverse

    @cached_property
    def _pair_index(self) -> NDArray[np.int64]:
        """The index of two classes in a table of pairs of classes, by `second << 8 | first`."""
        first, second = self.automaton_class[None, :], self.automaton_class[:, None]
        return (first * len(self.classes) + second).reshape(-1)

    def look_up(self, windows: Classes, fours: NDArray[np.uint32]) -> Classes:
        """Returns the decisions of a table of windows for four classes, the first one in the low bits."""
        index = self._pair_index.take(fours & np.uint32(0xFFFF))
        index *= len(self.classes) ** 2
        index += self._pair_index.take(fours >> np.uint32(16))
        return windows.take(index)

    @cached_property
    def automaton_lists(self) -> tuple[list[list[int]], list[list[bool]]]:
        """The arrays `next_state` and `has_match` as lists, for loops in Python, with the new classes."""
        tables = self.automaton.next_state, self.automaton.has_match
        next_state, has_match = (table[:, self.automaton_class].tolist() for table in tables)
        return next_state, has_match


def build_boundary_tables(automaton: SplitAutomaton) -> BoundaryTables:
    """Builds the tables of a split pattern.

    Raises:
        UnsupportedExpressionError: the pattern needs too large tables.
    """
    if automaton.num_classes > _MAX_CLASSES:
        raise UnsupportedExpressionError(f"it distinguishes more than {_MAX_CLASSES} classes of characters")
    steps = _find_parse_steps(automaton)
    triggers, left, reach = _choose_triggers(automaton, steps)
    pairs = _decide(steps, left)
    sizes = {class_: _find_group_size(automaton, pairs, class_) for class_ in range(automaton.end)}
    sizes = {class_: size for class_, size in sizes.items() if size}
    for class_ in sizes:  # these runs are split separately
        pairs[class_, class_] = CONTINUES
    shape = (automaton.num_classes,) * 4
    windows = _decide(steps, _find_left_states(steps, 2), steps.can_follow).reshape(shape)
    flags = _make_pair_flags(pairs, triggers, _decide(steps, left, steps.can_follow))
    classes = _number_classes(flags)
    return BoundaryTables(
        automaton,
        classes,
        _make_pair_table(classes, flags).tobytes(),
        windows,
        _decide_run_windows(steps, windows),
        _decide(steps, _find_left_states(steps, 3)).reshape(shape),
        np.isin(np.arange(256), classes[triggers]),
        reach,
        {int(classes[class_]): size for class_, size in sizes.items()},
        _splits_before_spaces(automaton, steps),
        steps.covers_any_text,
    )


class _Parse(NamedTuple):
    """The state of a parse before a character.

    Attributes:
        state: the state of the automaton in the current pre-token. `DEAD` at the start of a text. `None` for
            a character at which no match starts: the next character starts another one.
        ended: the states of the automaton for ended pre-tokens. They must not report a match any more.
    """

    state: int | None
    ended: frozenset[int]


_TEXT_START = _Parse(DEAD, frozenset())


class _ParseSteps(NamedTuple):
    """Steps between the states of parses, `bool`, indexed by class, state before and state after.

    Only states from which a parse can reach the end of a text are included.

    Attributes:
        starting: the steps in which the character starts a pre-token.
        continuing: the steps in which it continues one.
        all: all steps.
        covers_any_text: whether all characters are in a match.
    """

    starting: Flags
    continuing: Flags
    all: Flags
    covers_any_text: bool

    @property
    def can_follow(self) -> Flags:
        """The states that a character of each class can follow, `bool`, shape `(states, classes)`."""
        states: Flags = np.any(self.all, axis=2).T
        return states

    def advance(self, states: Flags) -> Flags:
        """Returns the states that can follow some states and a character of each class.

        Args:
            states: sets of states, `bool`, shape `(sets, states)`.

        Returns:
            `bool`, shape `(sets, classes, states)`.
        """
        num_classes, num_states = self.all.shape[:2]
        table = self.all.transpose(1, 0, 2).reshape(num_states, num_classes * num_states)
        return _multiply(states, table).reshape(len(states), num_classes, num_states)


def _find_parse_steps(automaton: SplitAutomaton) -> _ParseSteps:
    """Finds all states of parses, and the steps between them."""
    next_state, has_match = automaton.next_state.tolist(), automaton.has_match.tolist()
    numbers = {_TEXT_START: 0}
    queue = [_TEXT_START]
    steps: list[tuple[bool, int, int, int]] = []
    for number, parse in enumerate(queue):  # the queue grows meanwhile
        for class_ in range(automaton.num_classes):
            for following, starts in _iter_steps(next_state, has_match, parse, class_):
                if following not in numbers:
                    numbers[following] = len(queue)
                    queue.append(following)
                steps.append((starts, class_, number, numbers[following]))
        if len(queue) > _MAX_PARSE_STATES:
            raise UnsupportedExpressionError(f"its parses have more than {_MAX_PARSE_STATES} states")
    table = np.zeros((2, automaton.num_classes, len(queue), len(queue)), bool)
    table[tuple(np.array(steps).T)] = True
    successors: Flags = np.any(table, axis=(0, 1))
    live = np.arange(len(queue)) == 0  # a parse is at the state `_TEXT_START` again after the end of the text
    while (grown := live | np.any(successors[:, live], axis=1)).sum() > live.sum():
        live = grown
    continuing, starting = table[:, :, live][:, :, :, live]
    covers_any_text = all(
        parse.state is not None for parse, is_live in zip(queue, live, strict=True) if is_live
    )
    return _ParseSteps(starting, continuing, starting | continuing, covers_any_text)


def _iter_steps(
    next_state: list[list[int]], has_match: list[list[bool]], parse: _Parse, class_: int
) -> Iterator[tuple[_Parse, bool]]:
    """Yields the states of a parse after a character, each with whether the character starts a pre-token."""
    if any(has_match[state][class_] for state in parse.ended):
        return  # an ended pre-token has a longer match, so the guess was wrong
    ended = frozenset(next_state[state][class_] for state in parse.ended) - {DEAD}
    is_end = class_ == len(next_state[START]) - 1
    if parse.state not in (None, DEAD):
        following = next_state[parse.state][class_]
        if following != DEAD:
            yield _Parse(following, ended), False
        if not has_match[parse.state][class_]:
            return
        ended = ended | {following} - {DEAD}
    if is_end:
        yield _TEXT_START, True
        return
    first = next_state[START][class_]
    if first != DEAD:
        yield _Parse(first, ended), True
    # No match starts at this character. Adjacent characters of this kind are one pre-token.
    yield _Parse(None, ended | {first} - {DEAD}), parse.state is not None


def _choose_triggers(automaton: SplitAutomaton, steps: _ParseSteps) -> tuple[list[int], Flags, int]:
    """Chooses classes of which each is one rare character, as the apostrophe of contractions.

    Where none of the last characters is a trigger, fewer states of parses are possible. A class is chosen if
    that decides more pairs.

    Returns:
        `(triggers, left, reach)`: the classes; the states that can follow each class, `bool`, shape
        `(classes, states)`, if it is a trigger or there were `reach` or more other characters before it; and
        `reach`.
    """
    sizes = np.bincount(
        automaton.run_classes, np.diff(automaton.run_starts, append=CODE_POINTS), automaton.num_classes
    )
    punctuation = [code for code in range(_ASCII) if not chr(code).isalnum() and code > ord(" ")]
    candidates = {int(class_) for class_ in automaton.find_classes(np.array(punctuation))}
    triggers: list[int] = []
    left, reach = _settle(steps, triggers)
    for class_ in sorted(class_ for class_ in candidates if sizes[class_] == 1):
        with_class = _settle(steps, [*triggers, class_])
        if np.sum(_decide(steps, with_class[0]) == UNDECIDED) < np.sum(_decide(steps, left) == UNDECIDED):
            triggers, (left, reach) = [*triggers, class_], with_class
    return triggers, left, reach


def _settle(steps: _ParseSteps, triggers: list[int]) -> tuple[Flags, int]:
    """Returns `left` and `reach` of `_choose_triggers`."""
    others = [class_ for class_ in range(len(steps.all)) if class_ not in triggers]
    states, reach = np.ones(steps.all.shape[1], bool), 0
    left = steps.advance(states[None])[0]
    while (following := np.any(left[others], axis=0)).sum() < states.sum():
        states, reach = following, reach + 1
        left[others] = steps.advance(states[None])[0, others]
    return left, reach


def _find_left_states(steps: _ParseSteps, count: int) -> Flags:
    """Returns the states that can follow each sequence of classes, `bool`, shape `(sequences, states)`."""
    left = np.ones((1, steps.all.shape[1]), bool)
    for _ in range(count):
        left = steps.advance(left).reshape(-1, left.shape[1])
    return left


def _decide(
    steps: _ParseSteps, left: Flags, after: Flags | None = None, classes: slice = slice(None)
) -> Classes:
    """Decides whether characters start a pre-token.

    Args:
        steps: the steps of parses.
        left: the states of parses that can follow each left context, shape `(lefts, states)`.
        after: the states that each context on the right of a character can follow, shape `(states, rights)`;
            `None` for any context.
        classes: the classes of characters to decide about.

    Returns:
        The decision for each left context, class and right context, `uint8`; without the last axis for any
        right context.
    """
    tables = steps.starting[classes], steps.continuing[classes]
    if after is None:
        rights = [np.any(table, axis=2).T for table in tables]
    else:
        rights = [_multiply(table, after).transpose(1, 0, 2).reshape(len(after), -1) for table in tables]
    can_start, can_continue = (_multiply(left, right) for right in rights)
    decisions = np.where(can_start, np.where(can_continue, UNDECIDED, STARTS), CONTINUES).astype(np.uint8)
    return decisions if after is None else decisions.reshape(len(left), -1, after.shape[1])


def _decide_run_windows(steps: _ParseSteps, windows: Classes) -> Classes:
    """Returns `run_windows` of `BoundaryTables`, where `windows` are not enough."""
    left = _find_left_states(steps, 1)
    decisions = np.full(windows.shape, UNDECIDED, np.uint8)
    for own, following in np.argwhere(np.any(windows == UNDECIDED, axis=(0, 1))).tolist():
        run = _repeat(steps.all[own] | steps.all[following] | np.eye(left.shape[1], dtype=bool))
        after = _multiply(_multiply(steps.all[following], run), steps.can_follow)
        decisions[:, own, following] = _decide(steps, left, after, slice(own, own + 1))[:, 0]
    return decisions


def _repeat(steps: Flags) -> Flags:
    """Returns the pairs of states that are connected by one or more steps."""
    while (longer := steps | _multiply(steps, steps)).sum() > steps.sum():
        steps = longer
    return steps


def _multiply(left: Flags, right: Flags) -> Flags:
    """Returns the product of Boolean matrices."""
    product: Flags = left.astype(np.float32) @ right.astype(np.float32) > 0
    return product


def _find_group_size(automaton: SplitAutomaton, pairs: Classes, class_: int) -> int:
    r"""Returns the group size of a class whose runs are split as by `\p{N}{1,3}`, and 0 for others.

    Each group ends after `size` characters, whatever follows, if the first one of the run starts a pre-token.
    """
    if pairs[class_, class_] != UNDECIDED:
        return 0
    state = int(automaton.next_state[START, class_])
    for size in range(1, len(automaton.next_state)):
        if not automaton.has_match[state].all():
            return 0
        state = int(automaton.next_state[state, class_])
        if state == DEAD:
            return size
    return 0


def _make_pair_flags(pairs: Classes, triggers: list[int], triples: Classes) -> Classes:
    """Returns the flags of all pairs, `uint8`, shape `(classes, classes)`.

    Args:
        pairs: the decision for each pair of classes.
        triggers: the classes of triggers.
        triples: the decision about the second one of three characters.
    """
    flags = np.array([0, STARTS_FLAG, MARKED], np.uint8)[pairs]
    # Windows decide about triggers and the characters after them, so that the letters of contractions need no
    # separate coarse classes.
    flags[triggers, :-1] = MARKED
    flags[:, triggers] |= MARKED
    needs_right = (pairs == UNDECIDED) & np.all(triples != UNDECIDED, axis=2)
    needs_right[triggers] = needs_right[:, triggers] = False
    flags[needs_right] = NEEDS_RIGHT
    # The decision by the next pair, if it is the same for all pairs that need it.
    starts, continues = (
        np.all((triples == decision) | ~needs_right[:, :, None], axis=0) for decision in (STARTS, CONTINUES)
    )
    flags |= np.select([continues, starts], [0, RIGHT_STARTS], RIGHT_MARKED).astype(np.uint8)
    return flags


def _number_classes(pairs: Classes) -> Classes:
    """Numbers the classes: those with equal rows and columns in the table of pairs share a coarse class."""
    rows = np.concatenate([pairs, pairs.T], axis=1)
    coarse = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    rank = np.array([(coarse[:i] == class_).sum() for i, class_ in enumerate(coarse)])
    if max(coarse.max(), rank.max()) >= _NUM_COARSE:
        raise UnsupportedExpressionError("it distinguishes too many classes of characters")
    numbers: Classes = (coarse + _NUM_COARSE * rank).astype(np.uint8)
    return numbers


def _make_pair_table(classes: Classes, flags: Classes) -> Classes:
    """Returns the table of pairs of coarse classes: the flags of all their pairs of classes, combined."""
    coarse = classes % _NUM_COARSE
    table = np.zeros((_NUM_COARSE, _NUM_COARSE), np.uint8)
    np.bitwise_or.at(table, (coarse[:, None], coarse[None, :]), flags)
    return table


def _splits_before_spaces(automaton: SplitAutomaton, steps: _ParseSteps) -> bool:
    """Returns whether a space or newline after a letter or number starts a pre-token in any text."""
    starts, categories = load_category_runs()
    points = find_distinct(np.append(starts, automaton.run_starts))
    is_before = np.isin(categories[np.searchsorted(starts, points, "right") - 1], LETTERS_AND_NUMBERS)
    before = {int(class_) for class_ in automaton.find_classes(points[is_before])}
    spaces = automaton.find_classes(np.array([ord(" "), ord("\n")]))
    left = _find_left_states(steps, 1)[list(before)]
    return bool(np.all(_decide(steps, left)[:, spaces] == STARTS))
