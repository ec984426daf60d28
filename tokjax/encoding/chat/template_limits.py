"""The language of chat templates, and the cost of each of its operations. Templates are untrusted code.

Jinja's sandbox prevents access to Python's internals, but not `'a' * 10**10` or nested loops. Here a template
has only the filters, tests and methods of `FILTERS`, `TESTS` and `METHODS`. These tables say how the work of
each grows, and the work is subtracted from a budget before it is done. A unit is at most about 40
nanoseconds, and about four bytes of memory.

    {% for m in messages %}        for each step, LOOP_STEP and the literal text of the body
    {{ m.content | trim }}         the length of the content, of the result, and of the output
    {{ 'ab' * 1000 }}              2,000, before the string is allocated
    {{ items | join(', ') }}       the size of all items, times the length of the separator
    {{ text.split(', ') }}         the product of the lengths / 64, and ELEMENT for each part

Four rules keep the tables short. Integers have at most `MAX_BITS` bits, so arithmetic takes a constant time.
The keys of mappings are strings, whose hashes are random. Only JSON data can be written, compared or
searched. Templates make no bytes and no sets.

Costs are deterministic functions of the template and the messages: a conversation that can be encoded once
can be encoded on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any

WORK_PER_CHARACTER = 28
"""Units of work per character of the maximum length of the output, for one rendering."""
_RENDERINGS = 6
"""Number of renderings of one conversation that can exhaust their budget."""
CALL = 128
"""Cost of a call or an operator, in units, without its arguments."""
LOOP_STEP = 256
"""Cost of one step of a loop, in units, without its body."""
MAX_BITS = 10_000
"""Maximum size of an integer in bits. (Python itself does not print integers above 4,300 digits.)"""
NODE = 16
"""Cost of a node of the syntax tree in the body of a loop or macro, in units, each time that it runs."""
ELEMENT = 64
"""Cost of an element of a list that is read, in units."""
_BIT_PRODUCTS = 1 << 15
"""Number of products of two bits that cost one unit."""
_COPY = 4
"""Cost of an element of a list that is copied, in units."""
_PIECE = 40
"""Cost of a character of a text that is divided into small strings, in units."""
_ESCAPE = 8
"""Cost of a character that may be written as several, such as "\ud83d\ude00" or "&#34;"."""
_COMPARISONS = 64
"""Number of comparisons of characters that cost one unit."""

# How the work of a function grows:
CONSTANT = "constant"  # it takes a constant time
ELEMENTS = "elements"  # it reads the elements of a list, but not the texts in them
TEXT = "text"  # it reads its arguments completely
KEY = "key"  # it computes the hash of a key
PRODUCT = (
    "product"  # its result can be as long as the product of its arguments, such as items and a separator
)
SEARCH = "search"  # it compares each character of a text with those of another text
SPLIT = "split"  # like SEARCH, and it makes an object for each part
REPLACE = "replace"  # like SEARCH, and it writes a text for each part
FORMAT = "format"  # it may write each argument once for each field
PERCENT = "percent"  # it formats like the operator %
WRITE = "write"  # it may write several characters for one
JSON = "json"  # it writes the indentation once for each list and mapping around an element
NUMBERS = "numbers"  # it calculates, so its arguments must be numbers
STRINGS = "strings"  # it compares the hashes of elements, so they must be strings
CONTAINS = "contains"  # it searches its second argument, as the operator in


def _index(*rows: tuple[str, str]) -> dict[str, str]:
    """Returns the growth of each name."""
    return {name: growth for growth, names in rows for name in names.split()}


FILTERS = _index(
    (CONSTANT, "count d default first last length"),
    (ELEMENTS, "items list map reject rejectattr reverse select selectattr"),
    (TEXT, "dictsort safe"),
    (WRITE, "capitalize e escape float int lower string upper"),
    (PRODUCT, "indent join max min sort title"),
    *((SEARCH, "trim"), (REPLACE, "replace"), (PERCENT, "format")),
    *((JSON, "tojson"), (NUMBERS, "abs"), (STRINGS, "unique")),
)
TESTS = _index(
    (CONSTANT, "boolean callable defined false filter float integer iterable mapping none number sameas"),
    (CONSTANT, "sequence string test true undefined"),
    (TEXT, "!= < <= == > >= eq equalto ge greaterthan gt le lessthan lower lt ne upper"),
    (NUMBERS, "divisibleby even odd"),
    (CONTAINS, "in"),
)
METHODS = _index(
    (CONSTANT, "items keys values"),
    (KEY, "get"),
    (TEXT, "endswith isalnum isalpha isdigit islower isspace isupper removeprefix removesuffix startswith"),
    (WRITE, "capitalize lower title upper"),
    (PRODUCT, "join splitlines"),
    (SEARCH, "count find lstrip partition rfind rpartition rstrip strip"),
    *((SPLIT, "rsplit split"), (REPLACE, "replace"), (FORMAT, "format")),
)
"""Methods of strings and mappings. Lists have none."""
_WIDE = re.compile(r"(?:\([^)]*\))?[^a-zA-Z]*?(?:\*|\d{4})")
"""Matches a conversion of the operator `%`, without the `%`, that has a width of four digits or `*`."""


class TemplateLimitError(Exception):
    """Raised when a template exceeds its budget or makes an integer that is too large."""


class Budget:
    """Budget of work for all renderings of one conversation.

    Args:
        max_characters: maximum length of the output of each rendering in characters.

    Attributes:
        remaining: number of units that the current rendering can still spend; negative if it is exceeded.
    """

    def __init__(self, max_characters: int) -> None:
        self.max_characters = max_characters
        self.remaining = 0
        self._reserve = _RENDERINGS * WORK_PER_CHARACTER * max_characters

    def begin_rendering(self) -> None:
        """Limits the work of the next rendering, and returns what the last one has not spent."""
        self._reserve += max(self.remaining, 0)
        self.remaining = min(WORK_PER_CHARACTER * self.max_characters, self._reserve)
        self._reserve -= self.remaining

    def spend(self, units: int) -> None:
        """Subtracts units; raises `TemplateLimitError` if the budget is exceeded."""
        self.remaining -= units
        if self.remaining < 0:
            raise TemplateLimitError

    def spend_on_text(self, value: Any, indentation: int = 0) -> int:
        """Spends the cost of writing or comparing a value, including nested lists and mappings.

        An element that occurs twice counts twice: nested lists that share elements can be exponentially
        larger as text than in memory. The budget ends the traversal of such a value.

        Args:
            value: JSON data.
            indentation: cost of a list or mapping around an element, in units.

        Returns:
            The approximate length of the value as text, in characters.
        """
        if isinstance(value, str):  # the most frequent case, without a loop
            self.spend(len(value) + 1 + ELEMENT)
            return len(value) + 1
        self.spend(ELEMENT)
        size = depth = 0
        level = [value]
        while level:
            depth += 1
            inner: list[Any] = []
            for element in level:
                length = 1
                if isinstance(element, str):
                    length += len(element)
                    self.spend(_ESCAPE * len(element))
                elif isinstance(element, int):
                    length += element.bit_length() // 8
                elif isinstance(element, Collection):
                    self.spend(2 * len(element) * (ELEMENT + depth * indentation))
                    inner.extend(element)
                    inner.extend(element.values() if isinstance(element, Mapping) else ())
                elif not (element is None or isinstance(element, float) or is_undefined(element)):
                    raise TypeError(f"a {type(element).__name__} can't be written, compared or searched")
                self.spend(length)
                size += length
            level = inner
        return size

    def spend_on_copy(self, value: Any, count: int = 1) -> None:
        """Spends the cost of the memory of copies of a value. Elements of lists are not copied."""
        if isinstance(value, str):  # first, since `Collection` is slow
            self.spend(count * len(value))
        elif isinstance(value, int):
            _check_bits(value.bit_length())
        elif isinstance(value, Collection):
            self.spend(count * len(value) * _COPY)

    def spend_on_search(self, item: Any, container: Any) -> None:
        """Spends the cost of `item in container`."""
        if isinstance(container, str):
            self.spend(CALL + len(container))
            self.spend(len(container) * self.spend_on_text(item) // _COMPARISONS)
        else:  # the hash of the item, or comparisons with all elements
            self.spend_on_text(item if isinstance(container, (Mapping, Set)) else container)

    def spend_on_call(self, growth: str, values: Sequence[Any]) -> None:
        """Spends the cost of a call before it is made.

        Args:
            growth: how the work grows.
            values: all arguments. The first one is the object of a method, or the value to filter or test.
        """
        self.spend(CALL)
        if growth == CONSTANT:
            return
        first, *others = values
        if growth == ELEMENTS:
            if isinstance(first, Iterator):
                raise TypeError("the variable 'loop' is not a list")
            self.spend(ELEMENT * len(first) if isinstance(first, Collection) else 0)
        elif growth == KEY:
            self.spend_on_text(others[:1])
        elif growth == CONTAINS:
            self.spend_on_search(*values)
        elif growth == PERCENT:
            self.spend_on_percent(first, others)
        else:
            self._spend_on_arguments(growth, first, others)

    def _spend_on_arguments(self, growth: str, first: Any, others: Sequence[Any]) -> None:
        """Spends the cost of a function that reads its arguments completely."""
        if growth == NUMBERS and not all(isinstance(value, (int, float)) for value in (first, *others)):
            raise TypeError("abs, odd, even and divisibleby need numbers")
        if growth == STRINGS and not all(isinstance(item, str) or is_undefined(item) for item in first):
            raise TypeError("unique needs a list of strings")
        factor = sum(map(self.spend_on_text, others))
        widths = sum(abs(value) for value in others if isinstance(value, int))
        size = self.spend_on_text(first, factor + widths if growth == JSON else 0)
        texts = [value for value in others if isinstance(value, str)]
        if growth in (JSON, WRITE):
            self.spend(_ESCAPE * size)
        elif growth in (PRODUCT, STRINGS):
            divided = sum(len(value) for value in (first, *others) if isinstance(value, str))
            self.spend(size * (factor + widths) + _PIECE * divided)
        elif growth == FORMAT:
            self.spend(size * factor + ELEMENT * (first.count("{") + first.count("}")))
        elif growth in (SEARCH, SPLIT, REPLACE):
            self.spend(size * factor // _COMPARISONS)
        if growth == SPLIT:
            self.spend(ELEMENT * first.count(texts[0]) if texts else _PIECE * size)
        elif growth == REPLACE and len(texts) == 2:
            self.spend(first.count(texts[0]) * (ELEMENT + len(texts[1])))

    def spend_on_operator(self, operator: str, left: Any, right: Any) -> None:
        """Spends the cost of a binary operator such as `+`, `*` or `%` before it is computed."""
        self.spend(CALL)
        if isinstance(left, Set) or isinstance(right, Set):
            raise TypeError(f"the operator {operator} does not make sets; use lists")
        if operator == "%" and isinstance(left, str):
            self.spend_on_percent(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 0)
            _check_bits(bits)
            self.spend(bits * bits // _BIT_PRODUCTS)
        elif operator == "*":
            numbers = [value for value in (left, right) if isinstance(value, int)]
            self._spend_on_bits(left, right)
            for value in (left, right):
                self.spend_on_copy(value, max(0, *numbers) if numbers else 0)
        else:
            self._spend_on_bits(left, right)
            self.spend_on_copy(left)
            self.spend_on_copy(right)

    def _spend_on_bits(self, left: Any, right: Any) -> None:
        """Spends the cost of the product, the quotient or the remainder of large integers."""
        if isinstance(left, int) and isinstance(right, int):
            self.spend(left.bit_length() * right.bit_length() // _BIT_PRODUCTS)

    def spend_on_percent(self, form: Any, values: Any) -> None:
        """Spends the cost of `form % values`."""
        if not isinstance(form, str):
            raise TypeError(f"the filter 'format' needs a text, not a {type(form).__name__}")
        self.spend(len(form) + (1000 + self.spend_on_text(values)) * form.count("%"))
        if any(map(_WIDE.match, form.split("%")[1:])):
            raise TypeError("widths of the operator % and the filter 'format' have at most three digits")


def is_undefined(value: Any) -> bool:
    """Returns whether a value is Jinja's `Undefined`, or a subclass of it."""
    return hasattr(value, "_undefined_name")


def _check_bits(bits: int) -> None:
    """Raises `TemplateLimitError` if an integer is too large."""
    if bits > MAX_BITS:
        raise TemplateLimitError
