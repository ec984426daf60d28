"""Bounds on the work of a chat template, which is untrusted code.

Jinja's sandbox keeps a template away from Python's internals, but not from `'a' * 10**10` or from loops
within loops. Here every operation of a template has a cost, which is taken from a budget: before the
operation where its result may be larger than its inputs, and after it for the result. The unit is about
one character or four bytes of memory.

    {% for m in messages %}        LOOP_STEP each time, and the literal text of the body
    {{ m.content | trim }}         the length of the content, of the result, and of the output
    {{ 'ab' * 1000 }}              2,000, before the string is made
    {{ items | join(', ') }}       the size of all items, times the length of the separator
    {{ 3**900 % 7**500 }}          the product of the sizes of the integers in words

Integers have at most `MAX_BITS` bits, since the time of arithmetic grows faster than their size.

Costs depend on the template and on the messages alone, so a conversation that is encoded once is always
encoded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

WORK_PER_CHARACTER = 32
"""Units of work per character that a template may write."""
CALL = 128
LOOP_STEP = 256
MAX_BITS = 10_000
"""Integers of more bits are rejected. (Python writes none of more than 4,300 digits, 14,300 bits.)"""
_OPERATION = 32
_ELEMENT = 64

_AMPLIFYING = frozenset(
    (
        *("center", "ljust", "rjust", "zfill", "expandtabs", "indent", "truncate"),
        *("replace", "translate", "join", "format", "format_map", "tojson", "xmlattr", "to_bytes"),
        *("trim", "strip", "lstrip", "rstrip", "batch", "slice", "sum"),
    )
)
"""Names of filters and methods whose cost may be the product of the sizes of their arguments."""
_SHALLOW = frozenset(
    (
        *("default", "d", "first", "items", "last", "length", "list", "random", "reverse"),
        *("map", "reject", "rejectattr", "select", "selectattr"),
    )
)
"""Names of filters that don't look into the elements of a list."""
_SPEC = re.compile(r"%(?:\([^)]*\))?([^a-zA-Z%]*)")
_NUMBER = re.compile(r"\d+")


class TemplateLimitError(Exception):
    """A template has spent its budget."""


class Budget:
    """The work that one rendering may still do."""

    def __init__(self, units: int) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        """Spends units; raises an error once the budget is empty."""
        self.left -= units
        if self.left < 0:
            raise TemplateLimitError

    def spend_on_text(self, value: Any) -> int:
        """Spends the cost of writing or comparing a value, with the elements of lists and mappings in it.

        An element that is in a list twice counts twice.

        Returns:
            About how many characters it has as text.
        """
        if isinstance(value, str):  # (the most frequent case, without a loop)
            self.spend(len(value) + 1 + _ELEMENT)
            return len(value) + 1
        size = 0
        left = [value]
        while left:
            some = left.pop()
            length = 1
            if isinstance(some, (str, bytes, range)):
                length += len(some)
            elif isinstance(some, int):
                length += _check_integer(some) // 8
            elif isinstance(some, Mapping):
                left.extend(some.keys())
                left.extend(some.values())
            elif isinstance(some, Collection):
                left.extend(some)
            self.spend(length + _ELEMENT)
            size += length
        return size

    def spend_on_result(self, value: Any) -> None:
        """Spends the cost of the memory of a new value."""
        if isinstance(value, (str, bytes)):
            self.spend(len(value))
        elif isinstance(value, int):
            self.spend(_check_integer(value) // 8)
        elif isinstance(value, Collection):
            self.spend(_ELEMENT * len(value))

    def spend_on_call(self, name: str, arguments: Sequence[Any], *, shallow: bool = False) -> None:
        """Spends the cost of a call, before it is made.

        Args:
            name: the name of the filter, the test, the method or the function.
            arguments: all that it is given, the object of a method too.
            shallow: whether it does not look into the elements of lists, unless its name says otherwise.
        """
        self.spend(_OPERATION)
        if name == "round":  # (it computes 10 to the power of the precision)
            self.spend(_check_bits(4 * _sum_integers(arguments[1:])) ** 2 // 1024)
        amplifies = name in _AMPLIFYING
        if not amplifies and (shallow or name in _SHALLOW):
            self.spend(sum(len(value) for value in arguments if isinstance(value, (str, bytes))))
            for value in arguments:
                if isinstance(value, tuple):  # (a key of a dict: its hash is computed from all that it holds)
                    self.spend_on_text(value)
            return
        sizes = [self.spend_on_text(value) for value in arguments]
        if amplifies and sizes:
            largest = max(sizes)
            widths = _sum_integers(arguments)
            self.spend(largest * (sum(sizes) - largest) + _ELEMENT * widths)
            if name == "indent":
                self.spend(largest * widths)
            if name == "sum":
                self.spend(largest * largest)
            if name == "format":
                self.spend(sum(_sum_widths(form) for form in arguments if isinstance(form, str)))

    def spend_on_operator(self, operator: str, left: Any, right: Any) -> None:
        """Spends the cost of `+`, `*`, `%` and the like, before they are computed."""
        sizes = self.spend_on_text(left), self.spend_on_text(right)
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length(), right.bit_length()
            if operator == "**":
                bits = (min(bits[0] * max(right, 0), MAX_BITS + 1),) * 2
            self.spend(_check_bits(bits[0]) * bits[1] // 1024)
        elif operator == "*":
            numbers = [abs(value) for value in (left, right) if isinstance(value, int)]
            self.spend(max(sizes) * numbers[0] if len(numbers) == 1 else sizes[0] * sizes[1])
        elif operator == "%" and isinstance(left, (str, bytes)):
            form = left if isinstance(left, str) else left.decode("latin-1")
            values = right if isinstance(right, (tuple, list)) else [right]
            self.spend(form.count("%") * sizes[1] + _sum_widths(form))
            self.spend(_sum_integers(values) if "*" in form else 0)

    def spend_on_field(self, value: Any, form: str) -> None:
        """Spends the cost of one field of `str.format`."""
        self.spend_on_text(value)
        self.spend(sum(int(number[:19]) for number in _NUMBER.findall(form)))


def _check_integer(value: int) -> int:
    return _check_bits(value.bit_length())


def _check_bits(bits: int) -> int:
    """Returns the bits of an integer; raises an error if it is too large."""
    if bits > MAX_BITS:
        raise TemplateLimitError
    return bits


def _sum_integers(values: Collection[Any]) -> int:
    return sum(abs(value) for value in values if isinstance(value, int))


def _sum_widths(form: str) -> int:
    """The sum of the widths and precisions in a `%` format."""
    return sum(int(number[:19]) for spec in _SPEC.findall(form) for number in _NUMBER.findall(spec))
