"""Limits on the work of chat templates, which are untrusted code.

Jinja's sandbox prevents access to Python's internals, but not `'a' * 10**10` or nested loops. Here each
operation of a template has a cost that is subtracted from a budget: before the operation if its result can be
larger than its inputs, and after it for the result. A unit is about one character or four bytes of memory.

    {% for m in messages %}        for each step, LOOP_STEP and the literal text of the body
    {{ m.content | trim }}         the length of the content, of the result, and of the output
    {{ 'ab' * 1000 }}              2,000, before the string is allocated
    {{ items | join(', ') }}       the size of all items, times the length of the separator
    {{ 3**900 % 7**500 }}          the product of the sizes of the integers in 32-bit units
    {{ {1: 'a', 2: 'b'} }}         the number of keys that are not strings, times their sizes

Hashes of numbers and tuples are known in advance, so each such key of a dict may be compared with all others:
`range(0, n * p, p)` with p = 2**61 - 1 has n numbers of the same hash. Hashes of strings are random.

Integers have at most `MAX_BITS` bits, because the time of arithmetic grows faster than their size.

Costs are deterministic functions of the template and the messages: a conversation that can be encoded once
can be encoded on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

WORK_PER_CHARACTER = 32
"""Units of work per character of the maximum length of the output."""
CALL = 128
"""Cost of a call or an addition of strings, in units, without its arguments."""
LOOP_STEP = 256
"""Cost of one step of a loop, in units, without its body."""
MAX_BITS = 10_000
"""Maximum size of an integer in bits. (Python itself does not print integers above 4,300 digits.)"""
LOOKUP = 128
"""Cost of an access to an attribute or an element, in units."""
NODE = 16
"""Cost of a node of the syntax tree in the body of a loop or macro, in units, each time that it runs."""
_OPERATION = 32
_ELEMENT = 64

_AMPLIFYING = frozenset(
    (
        *("center", "ljust", "rjust", "zfill", "expandtabs", "indent", "truncate"),
        *("replace", "translate", "join", "format", "format_map", "tojson", "xmlattr", "to_bytes"),
        *("trim", "strip", "lstrip", "rstrip", "batch", "slice", "sum", "sort", "groupby", "pprint"),
        *("rfind", "rindex", "rsplit", "rpartition", "maketrans", "isdisjoint"),
    )
)
"""Names of filters and methods whose cost can be the product of the sizes of their arguments."""
_SQUARE = frozenset(("sum", "encode", "decode", "striptags"))
"""Names of filters and methods whose cost can be the square of the size of an argument (codecs: punycode)."""
_NESTED = frozenset(("pprint", "tojson"))
"""Names of filters that process, or indent, an element once for each list or mapping around it."""
_ITERATING = frozenset(
    (
        *("batch", "groupby", "join", "list", "map", "max", "min", "reject", "rejectattr", "reverse"),
        *(
            "select",
            "selectattr",
            "slice",
            "sort",
            "sum",
            "title",
            "unique",
            "urlencode",
            "wordcount",
            "unescape",
        ),
    )
)
"""Names of filters and methods that access each element of a list, or each character, in Python."""
_SHALLOW = frozenset(
    (
        *("default", "d", "first", "items", "last", "length", "list", "random", "reverse"),
        *("map", "reject", "rejectattr", "select", "selectattr"),
    )
)
"""Names of filters that do not access the contents of list elements."""
_SPEC = re.compile(r"%(?:\([^)]*\))?([^a-zA-Z%]*)")
"""Matches a `%` conversion; its group has the flags, the width and the precision."""
_NUMBER = re.compile(r"\d+")


class TemplateLimitError(Exception):
    """Raised when a template exceeds its budget or makes an integer that is too large."""


class Budget:
    """Budget of work for one rendering.

    Attributes:
        remaining: number of units that can still be spent.
    """

    def __init__(self, units: int) -> None:
        self.remaining = units

    def spend(self, units: int) -> None:
        """Subtracts units; raises `TemplateLimitError` if the budget is exceeded."""
        self.remaining -= units
        if self.remaining < 0:
            raise TemplateLimitError

    def spend_on_text(self, value: Any) -> int:
        """Spends the cost of writing or comparing a value, including nested lists and mappings.

        An element that occurs twice counts twice: nested lists that share elements can be exponentially
        larger as text than in memory. The budget ends the traversal of such a value.

        Returns:
            The approximate length of the value as text, in characters.
        """
        if isinstance(value, str):  # the most frequent case, without a loop
            self.spend(len(value) + 1 + _ELEMENT)
            return len(value) + 1
        size = 0
        stack = [value]
        while stack:
            element = stack.pop()
            length = 1
            if isinstance(element, (str, bytes, range)):
                length += len(element)
            elif isinstance(element, int):
                bits = _count_bits(element)
                length += bits // 8
                self.spend(bits**2 // 4096)  # the time of its conversion to text
            elif isinstance(element, (Mapping, Set)):
                self.spend_on_keys(getattr(element, "mapping", element))  # a view has a mapping
                stack.extend(element)
                stack.extend(element.values() if isinstance(element, Mapping) else ())
            elif isinstance(element, Collection):
                stack.extend(element)
            elif isinstance(element, Iterator):  # its elements are not known in advance
                raise TypeError("the variable 'loop' can't be written, compared or iterated over")
            self.spend(length + _ELEMENT)
            size += length
        return size

    def spend_on_keys(self, keys: Iterable[Any]) -> None:
        """Spends the cost of comparing each key that is not a string with all others."""
        others = [key for key in keys if not isinstance(key, str)]
        self.spend(len(others) * sum(map(self.spend_on_text, others)))

    def spend_on_lookup(self, mapping: Any, key: Any) -> None:
        """Spends the cost of an access to an element of a list or mapping."""
        self.spend(LOOKUP)
        if not isinstance(key, (str, int)) or isinstance(mapping, Mapping):
            size = self.spend_on_text(key)
            self.spend(
                size * len(mapping) if isinstance(mapping, Mapping) and not isinstance(key, str) else 0
            )

    def spend_on_result(self, value: Any) -> None:
        """Spends the cost of the memory of a new value."""
        if isinstance(value, (str, bytes)):
            self.spend(len(value))
        elif isinstance(value, int):
            self.spend(_count_bits(value) // 8)
        elif isinstance(value, Collection):
            self.spend(_ELEMENT * len(value))

    def spend_on_call(self, name: str, arguments: Sequence[Any], *, shallow: bool = False) -> None:
        """Spends the cost of a call before it is made.

        Args:
            name: the name of the filter, test, method or function.
            arguments: all arguments, including the object of a method.
            shallow: whether the function does not access the contents of list elements. Names in
                `_AMPLIFYING` override it.
        """
        self.spend(_OPERATION + _ELEMENT * len(arguments))
        if name in _ITERATING:
            values = arguments[0]
            self.spend(
                _ELEMENT * len(values) if isinstance(values, Collection) else self.spend_on_text(values)
            )
        if name == "round":  # it computes 10 to the power of the precision, and multiplies the value
            if not isinstance(arguments[0], (int, float)):
                raise TypeError(f"round needs a number, not {type(arguments[0]).__name__}")
            self.spend(_check_bits(4 * _sum_integers(arguments[1:])) ** 2 // 1024)
        amplifies = name in _AMPLIFYING or name in _SQUARE
        if not amplifies and (shallow or name in _SHALLOW):
            self.spend(sum(len(value) for value in arguments if isinstance(value, (str, bytes))))
            for value in arguments:
                if isinstance(value, tuple):  # can be the key of a dict: its hash covers all nested elements
                    self.spend_on_text(value)
            return
        sizes = [self.spend_on_text(value) for value in arguments]
        if name in _SQUARE:
            self.spend(4 * max(sizes) ** 2)
        if amplifies and sizes:
            largest = max(sizes)
            widths = _sum_integers(arguments)
            # For example `join`: the separator may be copied once per item. Integers may be widths.
            self.spend(largest * (sum(sizes) - largest) + _ELEMENT * widths)
            if name == "indent":
                self.spend(largest * widths)
            if name in _NESTED:
                others = sum(sizes[1:]) + _sum_integers(arguments[1:])
                self.spend(sizes[0] * _measure_depth(arguments[0]) * (1 + others))
            if name == "format":
                self.spend(sum(_sum_widths(form) for form in arguments if isinstance(form, str)))

    def spend_on_operator(self, operator: str, left: Any, right: Any) -> None:
        """Spends the cost of a binary operator such as `+`, `*` or `%` before it is computed."""
        sizes = self.spend_on_text(left), self.spend_on_text(right)
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length(), right.bit_length()
            if operator == "**":  # the size of the result, which is checked before it is computed
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
        self.spend(CALL + sum(int(number[:19]) for number in _NUMBER.findall(form)))


def _measure_depth(value: Any) -> int:
    """Returns the number of nested lists and mappings."""
    depth, level = 0, [value]
    while level:
        level = [
            inner
            for element in level
            if isinstance(element, Collection) and not isinstance(element, (str, bytes, range))
            for inner in (element.values() if isinstance(element, Mapping) else element)
        ]
        depth += 1
    return depth


def _count_bits(value: int) -> int:
    """Returns the number of bits of an integer; raises `TemplateLimitError` if it is too large."""
    return _check_bits(value.bit_length())


def _check_bits(bits: int) -> int:
    """Returns `bits`; raises `TemplateLimitError` if it exceeds `MAX_BITS`."""
    if bits > MAX_BITS:
        raise TemplateLimitError
    return bits


def _sum_integers(values: Collection[Any]) -> int:
    """Returns the sum of the absolute values of the integers among `values`."""
    return sum(abs(value) for value in values if isinstance(value, int))


def _sum_widths(form: str) -> int:
    """Returns the sum of the widths and precisions in a `%` format."""
    return sum(int(number[:19]) for spec in _SPEC.findall(form) for number in _NUMBER.findall(spec))
