r"""Split patterns as finite automata.

A pattern splits a text from left to right: the first match that starts at the end of the previous one is the
next pre-token. Where there is no match, the characters up to the next match become one pre-token.

`compile_automaton` turns the syntax tree of a pattern into an automaton, which reads one character at a time
and says where the match ends. It takes three steps:

1. The tree becomes a program, in which alternatives are ordered by priority.
2. Characters that no set of the pattern distinguishes become one class: `gpt2` has ten.
3. A state of the automaton is the list of the places in the program that the text read so far can lead to, in
   the order of priority. A place after a match has lower priority than the match, and is dropped.

A lookahead refers to the next character, and so is decided when that character is read. For the same reason,
a match is reported with the character after it.

As an example, ` ?[0-9]+|.` has the classes `_` (space), `n` (number), `o` (other) and `END`. A `!` marks a
match that ended before the character::

    state              _        n        o        END
    1  start           2        3        4        -
    2  read a space    - !      3 !      - !      - !
    3  read a number   - !      3 !      - !      - !
    4  read another    - !      - !      - !      - !

The last match counts: in "_12", the matches "_", "_1" and "_12" are found in turn.

See R. Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import find_distinct
from tokjax.pretokenize.split_expressions import (
    Alternatives,
    ExpressionTooLargeError,
    Lookahead,
    OneOf,
    Repetition,
    Sequence,
    UnsupportedExpressionError,
    contains,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokjax.pretokenize.split_expressions import CodePointSet, Node

DEAD, START = 0, 1
"""States: no match can follow; nothing was read yet."""
_MAX_INSTRUCTIONS = 2000
"""Maximum number of instructions of a program. Published patterns have up to 120."""
_MAX_SETS = 64
"""Maximum number of different sets. Published patterns have up to 25."""
_MAX_STATES = 500
"""Maximum number of states. Published patterns have up to 40."""


@dataclass(frozen=True, eq=False)
class SplitAutomaton:
    """The automaton of a split pattern. Arrays are indexed by state and by class.

    Attributes:
        next_state: the state after reading a character of a class, `uint16`, shape `(states, classes)`.
        has_match: whether a match ended before the character that is read, `bool`, same shape.
        run_starts: first code point of each run of code points of equal class, `int64`, ascending.
        run_classes: the class of each of these runs, `uint8`.
    """

    next_state: NDArray[np.uint16]
    has_match: NDArray[np.bool_]
    run_starts: NDArray[np.int64]
    run_classes: NDArray[np.uint8]

    @property
    def num_classes(self) -> int:
        """Number of classes, including that of the end of the text."""
        return int(self.next_state.shape[1])

    @property
    def end(self) -> int:
        """The class of the end of the text."""
        return self.num_classes - 1

    def find_classes(self, codes: NDArray[np.integer]) -> NDArray[np.uint8]:
        """Returns the classes of a few code points."""
        return self.run_classes[np.searchsorted(self.run_starts, codes, "right") - 1]


class _Instruction(NamedTuple):
    """Instruction of a program: continue if the next character is in a set. Without `following`, a match.

    Attributes:
        following: the places to try next, in this order.
        set_index: index of the set; `None` for no condition.
        is_negative: whether the next character must not be in the set.
        reads: whether the character is read.
    """

    following: tuple[int, ...]
    set_index: int | None = None
    is_negative: bool = False
    reads: bool = False


class _Program:
    """The instructions of a pattern, and the sets that they refer to.

    Args:
        tree: the pattern.

    Attributes:
        instructions: the instructions, which refer to each other by index.
        start: index of the first one.
        sets: the different sets of code points.
    """

    def __init__(self, tree: Node) -> None:
        self.instructions = [_Instruction(())]
        self.sets: list[CodePointSet] = []
        self._set_indices: dict[bytes, int] = {}
        self.start = self._add(tree, 0)

    def _add(self, tree: Node, following: int) -> int:
        """Adds the instructions of a part; returns the first one. `following` is the one after the part."""
        match tree:
            case OneOf(members):
                return self._emit(_Instruction((following,), self._intern(members), reads=True))
            case Lookahead(members, is_negative):
                return self._emit(_Instruction((following,), self._intern(members), is_negative))
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._add(part, following)
                return following
            case Alternatives(parts):
                return self._emit(_Instruction(tuple(self._add(part, following) for part in parts)))
            case Repetition(part, low, high, is_lazy):
                first = self._add_optional(part, following, high, low, is_lazy=is_lazy)
                for _ in range(low):
                    first = self._add(part, first)
                return first

    def _add_optional(self, part: Node, following: int, high: int | None, low: int, *, is_lazy: bool) -> int:
        """Adds the repetitions after the first `low` ones."""
        if high is None:
            loop = self._emit(_Instruction(()))
            body = self._add(part, loop)
            self.instructions[loop] = _Instruction((following, body) if is_lazy else (body, following))
            return loop
        first = following
        for _ in range(high - low):
            body = self._add(part, first)
            first = self._emit(_Instruction((following, body) if is_lazy else (body, following)))
        return first

    def _emit(self, instruction: _Instruction) -> int:
        if len(self.instructions) >= _MAX_INSTRUCTIONS:
            raise ExpressionTooLargeError(f"more than {_MAX_INSTRUCTIONS} characters, with repetitions")
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def _intern(self, members: CodePointSet) -> int:
        index = self._set_indices.setdefault(members.tobytes(), len(self.sets))
        if index == len(self.sets):
            self.sets.append(members)
        return index


def compile_automaton(tree: Node) -> SplitAutomaton:
    """Compiles a pattern.

    Raises:
        UnsupportedExpressionError: the pattern matches the empty text, or has too many states.
    """
    program = _Program(tree)
    run_starts, run_classes, membership = _find_classes(program.sets)
    next_state, has_match = _determinize(program, membership)
    if has_match[START].any():
        raise UnsupportedExpressionError("it matches the empty text")
    live = _find_live(next_state, has_match)
    if not live[START]:
        raise UnsupportedExpressionError("it matches no text")
    next_state = np.where(live[next_state], next_state, DEAD)
    next_state, has_match = _merge_states(next_state, has_match)
    # Classes that the automaton does not distinguish become one. `END` stays the last one.
    columns = np.concatenate([next_state, has_match])[:, :-1]
    _, kept, merged = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    kept = np.append(kept, next_state.shape[1] - 1)
    return SplitAutomaton(
        next_state[:, kept].astype(np.uint16),
        has_match[:, kept],
        run_starts,
        merged.ravel()[run_classes].astype(np.uint8),
    )


def _find_classes(
    sets: Iterable[CodePointSet],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Groups the code points that no set distinguishes.

    Returns:
        `(run_starts, run_classes, membership)`: the runs as in `SplitAutomaton`; and whether each set
        contains each class, shape `(sets, classes + 1)`. The last class is the end of the text, which is in
        no set.
    """
    sets = list(sets)
    run_starts = find_distinct(np.concatenate([[0], *sets]))
    if len(sets) > _MAX_SETS:
        raise UnsupportedExpressionError(f"more than {_MAX_SETS} sets of characters")
    signatures = np.zeros(len(run_starts), np.uint64)  # a bit for each set
    for index, members in enumerate(sets):
        signatures |= contains(members, run_starts).astype(np.uint64) << np.uint64(index)
    distinct, run_classes = np.unique(signatures, return_inverse=True)
    bits = np.uint64(1) << np.arange(len(sets), dtype=np.uint64)
    membership = np.append(distinct, np.uint64(0)) & bits[:, None]
    return run_starts, run_classes, membership.astype(bool)


def _determinize(
    program: _Program, membership: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns `next_state` and `has_match` of the states that a text can lead to."""
    contains_class = membership.tolist()
    num_classes = membership.shape[1]
    states: dict[tuple[int, ...], int] = {(): DEAD, (program.start,): START}
    next_state, has_match = [[DEAD] * num_classes], [[False] * num_classes]
    queue: list[tuple[int, ...]] = [(program.start,)]
    for places in queue:
        row, matches = [], []
        for class_ in range(num_classes):
            characters, ends = _follow(program, contains_class, places, class_)
            reached = tuple(dict.fromkeys(characters))
            if reached not in states:
                states[reached] = len(states)
                queue.append(reached)
            row.append(states[reached])
            matches.append(ends)
        next_state.append(row)
        has_match.append(matches)
        if len(states) > _MAX_STATES:
            raise UnsupportedExpressionError(f"its automaton has more than {_MAX_STATES} states")
    return np.array(next_state), np.array(has_match)


def _follow(
    program: _Program, contains_class: list[list[bool]], places: Iterable[int], class_: int
) -> tuple[list[int], bool]:
    """Follows a program from some places, if the next character has a class.

    Returns:
        The places after this character, in the order of priority, and whether the pattern has matched before
        it.
    """
    reached: list[int] = []
    seen: set[int] = set()
    stack = list(reversed(list(places)))
    while stack:
        place = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        following, set_index, is_negative, reads = program.instructions[place]
        if not following:
            return reached, True
        if set_index is None or contains_class[set_index][class_] != is_negative:
            if reads:
                reached += following
            else:
                stack += reversed(following)
    return reached, False


def _find_live(next_state: NDArray[np.int64], has_match: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns the states after which a match can follow."""
    live: NDArray[np.bool_] = np.any(has_match, axis=1)
    while (grown := live | np.any(live[next_state], axis=1)).sum() > live.sum():
        live = grown
    return live


def _merge_states(
    next_state: NDArray[np.int64], has_match: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Merges states with the same future (Moore's algorithm). `DEAD` and `START` keep their numbers."""
    groups = np.unique(has_match, axis=0, return_inverse=True)[1].ravel()
    count = 0
    while groups.max() + 1 > count:
        count = groups.max() + 1
        rows = np.column_stack([groups, groups[next_state]])
        groups = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    _, first, groups = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(first)  # DEAD and START come first, since their first members are states 0 and 1
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    states = first[order]
    return rank[groups][next_state[states]], has_match[states]
