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
    from collections.abc import Collection, Iterator, Mapping

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
NEEDS_RIGHT, NEEDS_LEFT = 4, 8
"""The flags of the next pair decide about the second character; the flags of the pair before."""
RIGHT_STARTS, LEFT_STARTS = 16, 32
"""A character that needs this pair as its next one, or as the pair before, starts a pre-token."""
RIGHT_MARKED, LEFT_MARKED = 64, 128
"""A window has to decide about such a character."""
_NUM_COARSE = 16
"""Maximum number of coarse classes, so that a pair of them is a byte."""
_MAX_CLASSES = 40
"""Maximum number of classes of an automaton. Published patterns have up to 22."""
_MAX_PARSE_STATES = 200
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
        needs_window: for each such pair, whether a window has to decide if it is marked or near a trigger,
            `bool`, shape `(256,)`.
        windows: the decision of each window of classes, in the numbers of the automaton, `uint8`, shape
            `(classes, classes, classes, 2, classes)`: by the classes of the two characters before, its own,
            and, if the fourth index is 0, the next one, else the first other class after it.
        left_windows: the decision by the classes of three characters before a character and its own, in the
            same numbers, `uint8`, shape `(classes, classes, classes, classes)`.
        is_trigger: whether each class is a rare character, such as the apostrophe of contractions, `bool`,
            shape `(256,)`. `pairs` does not hold for some characters after the next one.
        reach: number of these characters.
        groups: for classes whose runs are split into groups, as `\p{N}{1,3}` splits digits, by class: the
            number of characters per group, and the classes after which a run may not start a pre-token,
            `bool`, shape `(256,)`.
        splits_before_spaces: whether a space or newline after a letter or number starts a pre-token in any
            text.
        covers_any_text: whether the matches of the pattern cover every text.
    """

    automaton: SplitAutomaton
    classes: NDArray[np.uint8]
    pairs: bytes
    needs_window: Flags
    windows: NDArray[np.uint8]
    left_windows: NDArray[np.uint8]
    is_trigger: Flags
    reach: int
    groups: Mapping[int, tuple[int, Flags]]
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
    triggers, settled, reach = _choose_triggers(automaton, steps)
    pairs = _decide_pairs(steps, triggers, settled)
    pairs_anywhere = _decide_pairs(steps, range(automaton.num_classes), settled)
    sizes = {class_: _find_group_size(automaton, pairs_anywhere, class_) for class_ in range(automaton.end)}
    sizes = {class_: size for class_, size in sizes.items() if size}
    for class_ in sizes:  # these runs are split separately
        pairs[class_, class_] = pairs_anywhere[class_, class_] = CONTINUES
    flags = _make_pair_flags(steps, triggers, settled, pairs)
    needs_window = pairs_anywhere == UNDECIDED
    needs_window[triggers] = True
    classes = _number_classes(flags)
    return BoundaryTables(
        automaton,
        classes,
        _make_pair_table(classes, flags).tobytes(),
        _make_pair_table(classes, needs_window).ravel() > 0,
        _decide_windows(steps),
        _decide_left_windows(steps),
        np.isin(np.arange(256), classes[triggers]),
        reach + 1,  # `NEEDS_LEFT` refers to one more character
        {
            int(classes[class_]): (
                size,
                np.isin(np.arange(256), classes[_find_joined(pairs_anywhere, class_)]),
            )
            for class_, size in sizes.items()
        },
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
        `(triggers, settled, reach)`: the classes; the states after `reach` or more other characters, `bool`;
        and `reach`.
    """
    sizes = np.bincount(
        automaton.run_classes, np.diff(automaton.run_starts, append=CODE_POINTS), automaton.num_classes
    )
    punctuation = [code for code in range(_ASCII) if not chr(code).isalnum() and code > ord(" ")]
    candidates = {int(class_) for class_ in automaton.find_classes(np.array(punctuation))}
    triggers: list[int] = []
    settled, reach = _settle(steps, triggers)
    for class_ in sorted(class_ for class_ in candidates if sizes[class_] == 1):
        with_class = [*triggers, class_]
        fewer, longer_reach = _settle(steps, with_class)
        if _count_undecided(steps, with_class, fewer) < _count_undecided(steps, triggers, settled):
            triggers, settled, reach = with_class, fewer, longer_reach
    return triggers, settled, reach


def _settle(steps: _ParseSteps, triggers: list[int]) -> tuple[Flags, int]:
    """Returns the states after many characters that are not triggers, and how many it takes."""
    others = [class_ for class_ in range(len(steps.all)) if class_ not in triggers]
    states = np.ones(steps.all.shape[1], bool)
    count = 0
    while (following := np.any(steps.advance(states[None])[0, others], axis=0)).sum() < states.sum():
        states = following
        count += 1
    return states, count


def _count_undecided(steps: _ParseSteps, triggers: list[int], settled: Flags) -> int:
    return int((_decide_pairs(steps, triggers, settled) == UNDECIDED).sum())


def _decide_pairs(steps: _ParseSteps, triggers: Collection[int], settled: Flags) -> Classes:
    """Returns the decision for each pair of classes, `uint8`, shape `(classes, classes)`."""
    left = _find_left_states(steps, triggers, settled)
    return _decide_next(steps, left)


def _find_left_states(steps: _ParseSteps, triggers: Collection[int], settled: Flags) -> Flags:
    """Returns the states that can follow each class, `bool`, shape `(classes, states)`.

    A trigger may follow any text. Before other classes, there were no triggers.
    """
    after_any, after_others = steps.advance(np.array([np.ones_like(settled), settled]))
    is_trigger = np.isin(np.arange(len(steps.all)), list(triggers))
    states: Flags = np.where(is_trigger[:, None], after_any, after_others)
    return states


def _decide_windows(steps: _ParseSteps) -> Classes:
    """Returns `windows` of `BoundaryTables`."""
    num_classes, num_states = steps.all.shape[:2]
    left = steps.advance(steps.advance(np.ones((1, num_states), bool))[0]).reshape(-1, num_states)
    can_go_on = np.any(steps.all, axis=2).T  # by state and class
    after = np.stack(
        [
            np.broadcast_to(can_go_on, (num_classes, *can_go_on.shape)),
            _multiply(_repeat(steps.all), can_go_on),
        ]
    )
    # From the order (whether after a run, class, state, class after) to rows of states.
    starting, continuing = (
        _multiply(table, after).transpose(1, 0, 3, 2).reshape(-1, num_states)
        for table in (steps.starting, steps.continuing)
    )
    decisions = _decide(left, starting, continuing)
    return decisions.reshape(num_classes, num_classes, num_classes, 2, num_classes)


def _decide_left_windows(steps: _ParseSteps) -> Classes:
    """Returns the decision for four characters, about the last one."""
    num_classes, num_states = steps.all.shape[:2]
    left = np.ones((1, num_states), bool)
    for _ in range(3):
        left = steps.advance(left).reshape(-1, num_states)
    decisions = _decide_next(steps, left)
    return decisions.reshape((num_classes,) * 4)


def _repeat(steps: Flags) -> Flags:
    """Returns the pairs of states that are connected by one or more steps of a class."""
    while (longer := steps | _multiply(steps, steps)).sum() > steps.sum():
        steps = longer
    return steps


def _multiply(left: Flags, right: Flags) -> Flags:
    """Returns the product of Boolean matrices."""
    product: Flags = left.astype(np.float32) @ right.astype(np.float32) > 0
    return product


def _decide(left: Flags, starting: Flags, continuing: Flags) -> Classes:
    """Returns the decision for each left context and each right context.

    Args:
        left: the states of parses that can follow each left context, shape `(lefts, states)`.
        starting: the states in which the next character can start a pre-token, for each right context, shape
            `(rights, states)`.
        continuing: the same for characters that continue one.
    """
    can_start, can_continue = _multiply(left, starting.T), _multiply(left, continuing.T)
    return np.where(can_start, np.where(can_continue, UNDECIDED, STARTS), CONTINUES).astype(np.uint8)


def _decide_next(steps: _ParseSteps, left: Flags) -> Classes:
    """Returns the decision for each left context and each class of the next character."""
    return _decide(left, np.any(steps.starting, axis=2), np.any(steps.continuing, axis=2))


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


def _find_joined(pairs: Classes, class_: int) -> NDArray[np.int64]:
    """Returns the other classes after which a class may not start a pre-token."""
    return np.flatnonzero((pairs[:, class_] != STARTS) & (np.arange(len(pairs)) != class_))


def _make_pair_flags(steps: _ParseSteps, triggers: list[int], settled: Flags, pairs: Classes) -> Classes:
    """Returns the flags of all pairs, `uint8`, shape `(classes, classes)`."""
    flags = np.where(pairs == STARTS, STARTS_FLAG, 0).astype(np.uint8)
    flags[pairs == UNDECIDED] = MARKED
    # Windows decide about triggers and the characters after them, so that the letters of contractions need no
    # separate coarse classes.
    flags[triggers, :-1] = MARKED
    undecided = pairs == UNDECIDED
    undecided[triggers] = undecided[:, triggers] = False
    by_right, by_left = _decide_triples(steps, triggers, settled)
    for class_ in range(len(pairs)):  # with this class in the middle of a triple
        chosen, decisions = _choose_decisions(by_right[:, class_], undecided[:, class_])
        flags[chosen, class_] |= NEEDS_RIGHT
        flags[chosen, class_] &= ~np.uint8(MARKED)
        flags[class_] |= np.choose(decisions, [0, RIGHT_STARTS, RIGHT_MARKED]).astype(np.uint8)
        undecided[chosen, class_] = False
    for class_ in range(len(pairs)):
        chosen, decisions = _choose_decisions(by_left[:, class_].T, undecided[class_])
        flags[class_, chosen] |= NEEDS_LEFT
        flags[class_, chosen] &= ~np.uint8(MARKED)
        flags[:, class_] |= np.choose(decisions, [0, LEFT_STARTS, LEFT_MARKED]).astype(np.uint8)
    flags[:, triggers] |= MARKED
    return flags


def _decide_triples(steps: _ParseSteps, triggers: list[int], settled: Flags) -> tuple[Classes, Classes]:
    """Decides by three characters: about the second one, and about the third one.

    Returns:
        Two arrays of decisions, indexed by the classes of the three characters, `uint8`.
    """
    num_classes, num_states = steps.all.shape[:2]
    left = _find_left_states(steps, triggers, settled)
    can_go_on = np.any(steps.all, axis=2).T
    starting, continuing = (
        _multiply(table, can_go_on).transpose(0, 2, 1).reshape(-1, num_states)
        for table in (steps.starting, steps.continuing)
    )
    by_right = _decide(left, starting, continuing)
    after_two = steps.advance(left)
    after_two[:, triggers] = left[triggers]
    left = after_two.reshape(-1, num_states)
    by_left = _decide_next(steps, left)
    shape = num_classes, num_classes, num_classes
    return by_right.reshape(shape), by_left.reshape(shape)


def _choose_decisions(decisions: Classes, needing: Flags) -> tuple[NDArray[np.int64], Classes]:
    """Chooses pairs that one neighbouring pair can decide about, in the same way for all of them.

    Args:
        decisions: for each pair (row) and each class of the third character, the decision about the pair.
        needing: the pairs that are not decided yet.

    Returns:
        `(chosen, common)`: the chosen rows, and their decisions by the class of the third character.
    """
    rows = np.flatnonzero(needing)
    undecided = np.sum(decisions[rows] == UNDECIDED, axis=1)
    if not len(rows) or undecided.min() == decisions.shape[1]:
        return np.zeros(0, np.int64), np.zeros(decisions.shape[1], np.uint8)
    common = decisions[rows[undecided.argmin()]]
    return rows[np.all(decisions[rows] == common, axis=1)], common


def _number_classes(pairs: Classes) -> Classes:
    """Numbers the classes: those with equal rows and columns in the table of pairs share a coarse class."""
    rows = np.concatenate([pairs, pairs.T], axis=1)
    coarse = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    rank = np.array([(coarse[:i] == class_).sum() for i, class_ in enumerate(coarse)])
    if max(coarse.max(), rank.max()) >= _NUM_COARSE:
        raise UnsupportedExpressionError("it distinguishes too many classes of characters")
    numbers: Classes = (coarse + _NUM_COARSE * rank).astype(np.uint8)
    return numbers


def _make_pair_table(classes: Classes, entries: Classes | Flags) -> Classes:
    """Returns the table of pairs of coarse classes: the entries of all their pairs of classes, combined."""
    coarse = classes % _NUM_COARSE
    table = np.zeros((_NUM_COARSE, _NUM_COARSE), np.uint8)
    np.bitwise_or.at(table, (coarse[:, None], coarse[None, :]), entries.astype(np.uint8))
    return table


def _splits_before_spaces(automaton: SplitAutomaton, steps: _ParseSteps) -> bool:
    """Returns whether a space or newline after a letter or number starts a pre-token in any text."""
    starts, categories = load_category_runs()
    points = find_distinct(np.append(starts, automaton.run_starts))
    is_before = np.isin(categories[np.searchsorted(starts, points, "right") - 1], LETTERS_AND_NUMBERS)
    before = {int(class_) for class_ in automaton.find_classes(points[is_before])}
    spaces = automaton.find_classes(np.array([ord(" "), ord("\n")]))
    left = steps.advance(np.ones((1, steps.all.shape[1]), bool))[0, list(before)]
    return bool(np.all(_decide_next(steps, left)[:, spaces] == STARTS))
