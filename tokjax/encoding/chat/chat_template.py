"""Chat templates: compilation, and rendering in Jinja's sandbox with bounded time and memory.

A template has the environment of transformers' `apply_chat_template`: `tojson`, `raise_exception`,
`strftime_now`, `{% break %}` and `{% continue %}`, and `{% generation %}` blocks, whose spans in the text are
returned. Of Jinja's filters, tests, methods and functions it has those that chat templates use
(`template_limits`), and no statements that load other templates.

A template is untrusted code. Each operation spends units of a `Budget`, and the hooks for this are in four
layers:

    environment      calls, operators, attributes: Jinja's sandbox lets subclasses intercept them
    filters, tests   each function is wrapped (`_limit`)
    syntax tree      loops, `~`, comparisons, slices and dict keys have no hook, so calls of internal filters
                     are inserted into the parsed template (`_make_cost_inserter`)
    output           `finalize` is called with each value that is written

For example, `{% for m in messages %}<{{ m.a ~ m.b }}>{% endfor %}` is compiled as if it were

    {% for m in messages %}{% do 2 | " step" %}<{{ m.a | " joined"(m.b) }}>{% endfor %}

where 2 is the number of literal characters in the body, plus `NODE` for each other node. The names of
internal filters begin with a space, so that the syntax of templates has no way to write them. (`map(' step')`
can call one, which only spends more.)

This module imports Jinja, so `encode_chat` imports it only when it is called.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import date
from functools import lru_cache
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from tokjax._util.imports import import_optional
from tokjax.encoding.chat.template_limits import (
    CALL,
    ELEMENT,
    FILTERS,
    LOOP_STEP,
    MAX_BITS,
    METHODS,
    NODE,
    TESTS,
    Budget,
    TemplateLimitError,
)
from tokjax.encoding.chat.text_sources import (
    SourcedMessage,
    SourcedText,
    as_sourced,
    concatenate,
    format_percent,
    indent,
    make_plain,
    mark,
    to_json,
    to_text,
    tracker_var,
)
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokjax.encoding.chat.text_sources import SourceRun, Tracker

jinja2: Any = import_optional("jinja2", extra="chat", purpose="encode_chat")
ext: Any = import_optional("jinja2.ext", extra="chat", purpose="encode_chat")
sandbox: Any = import_optional("jinja2.sandbox", extra="chat", purpose="encode_chat")
nodes = jinja2.nodes

_MAX_TEMPLATE_LENGTH = 1_000_000
_MAX_TOKENS = 12_000
_MAX_KEY = 1 << 16
"""Bound of integers that are keys of mappings. Larger ones can be chosen so that their hashes are equal."""
_TRACKING_FILTERS = frozenset(
    ("d", "default", "first", "format", "indent", "join", "last", "max", "min", "replace", "tojson")
)
"""Filters whose results have sources: they return one of their arguments, or follow the sources of each."""
_DICT_ATTRIBUTES = frozenset(dir(dict))
"""Attributes of mappings, which Jinja prefers to their keys."""
_FIELD = re.compile(r"\{\{|\}\}|\{(\w*)(:d)?\}|[{}]")
"""Matches a field of `str.format`, or a brace."""
_TEMPLATE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions that a template can cause, apart from Jinja's own."""
_budget: ContextVar[Budget] = ContextVar("budget")
"""Budget of the rendering in progress. Compiled templates are shared by threads, and so can't hold it."""


class RenderedTemplate(NamedTuple):
    """The output of a template.

    Attributes:
        text: the complete text.
        runs: the sources of the text if it was rendered with a tracker.
    """

    text: str
    runs: list[SourceRun]

    @property
    def tail(self) -> str:
        """The text after the last text of a message."""
        return self.text[
            max((stop for _, stop, source in self.runs if source.field != "scaffold"), default=0) :
        ]


class ChatTemplate(NamedTuple):
    """Compiled chat template. Create one with `compile_template`.

    Attributes:
        compiled: Jinja's template object.
        has_generation_blocks: whether the template contains `{% generation %}` blocks.
    """

    compiled: Any
    has_generation_blocks: bool

    def render(
        self, variables: Mapping[str, Any], budget: Budget, tracker: Tracker | None = None
    ) -> RenderedTemplate:
        """Renders the template.

        Args:
            variables: the variables of the template.
            budget: the maximum length of the output, and the work that the template can do.
            tracker: if given, it follows the sources of the text.

        Raises:
            InvalidArgumentError: the template raises an error, or exceeds its limits.
        """
        budget.begin_rendering()
        if tracker:
            tracker.spend = budget.spend
        budget_token = _budget.set(budget)
        tracker_token = tracker_var.set(tracker)
        pieces: list[str] = []
        remaining = budget.max_characters
        try:
            for piece in self.compiled.root_render_func(self.compiled.new_context(variables)):
                remaining -= len(piece)
                if remaining < 0:
                    raise TemplateLimitError
                pieces.append(tracker.write(piece) if tracker else piece)
            text = concatenate(pieces)
            return RenderedTemplate(str.__str__(text), tracker.list_runs(text) if tracker else [])
        except TemplateLimitError as error:
            clear_frames(error.__traceback__)  # so that the error does not keep the values of the template
            raise InvalidArgumentError(
                f"the chat template writes more than {budget.max_characters} characters, or does more work "
                "than is allowed; if you trust it, pass a larger max_characters (integers are always limited "
                f"to {MAX_BITS:,} bits)"
            ) from None
        except (*_TEMPLATE_ERRORS, jinja2.TemplateError) as error:
            clear_frames(error.__traceback__)
            raise InvalidArgumentError(
                f"the chat template can't render these messages: {type(error).__name__}: {_explain(error)}"
            ) from error
        finally:
            _budget.reset(budget_token)
            tracker_var.reset(tracker_token)


def compile_template(template: str) -> ChatTemplate:
    """Compiles a chat template. The most recently used ones are cached.

    Raises:
        InvalidArgumentError: `template` is not a valid Jinja template, or is too long.
        MissingExtraError: Jinja is not installed.
    """
    if not isinstance(template, str):
        raise InvalidArgumentError(f"template must be a Jinja template, not {type(template).__name__}")
    return _compile(template)


@lru_cache(maxsize=16)
def _compile(template: str) -> ChatTemplate:
    if len(template) > _MAX_TEMPLATE_LENGTH:
        raise InvalidArgumentError(
            f"the chat template has {len(template)} characters; templates have at most {_MAX_TEMPLATE_LENGTH}"
        )
    environment = _LimitedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,  # otherwise constant expressions are computed by the compiler, without a budget
        finalize=_finalize,
        extensions=["jinja2.ext.loopcontrols", _GenerationBlocks],
    )
    available = environment.filters
    replaced = {
        "tojson": _to_json,
        "format": lambda form, *args, **options: available["format"](as_sourced(form), *args, **options),
        "indent": indent,
        "join": _join,
        "replace": _replace,
    }
    filters = available | replaced
    environment.filters = {name: _limit(name, growth, filters[name]) for name, growth in FILTERS.items()}
    environment.tests = {
        name: _limit(name, growth, environment.tests[name]) for name, growth in TESTS.items()
    }
    environment.filters |= {
        " enter": _enter_loop,
        " step": _spend_step,
        " leave": _leave_loop,
        " joined": _concatenate,
        " weighed": _spend_comparison,
        " copied": _spend_copy,
        " contains": _contains,
        " key": _check_key,
    }
    environment.globals = {
        "range": sandbox.safe_range,
        "raise_exception": _raise,
        "namespace": _ChatNamespace,
        "dict": _make_dict,
    }
    environment.tokjax_has_blocks = False
    try:
        tree = _CostInserter().visit(environment.parse(template))
        compiled = environment.template_class.from_code(
            environment, environment.compile(tree), environment.make_globals(None)
        )
    except (jinja2.TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
        cause = _explain(error)
        if isinstance(error, (RecursionError, MemoryError)):  # of Python's parser
            cause = "it is nested too deeply, or an if has too many elif"
        raise InvalidArgumentError(f"the chat template is not a valid Jinja template: {cause}") from error
    return ChatTemplate(compiled, environment.tokjax_has_blocks)


class _LimitedEnvironment(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc]
    """Jinja's immutable sandbox, with a budget for calls and operators."""

    intercepted_binops = frozenset(sandbox.SandboxedEnvironment.default_binop_table)
    intercepted_unops = frozenset(sandbox.SandboxedEnvironment.default_unop_table)
    concat = staticmethod(concatenate)

    def call(__self, __context: Any, __function: Any, *args: Any, **options: Any) -> Any:  # noqa: N805 (not a keyword of a call)
        owner = getattr(__function, "__self__", None)
        if isinstance(owner, (str, dict)):
            for name in ("_loop_vars", "_block_vars"):  # compiled templates pass these to macros
                options.pop(name, None)
            return _call_method(owner, __function.__name__, *args, **options)
        _budget.get().spend(CALL + ELEMENT * (len(args) + len(options)))
        result = super().call(__context, __function, *args, **options)
        _budget.get().spend_on_copy(result)
        return result

    def getitem(self, obj: Any, argument: Any) -> Any:
        _spend_lookup(obj, argument)
        return super().getitem(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        _spend_lookup(obj, attribute)
        if isinstance(obj, dict) and attribute not in _DICT_ATTRIBUTES:  # the most frequent case
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> None:
        """`_call_method` replaces `str.format`."""

    def is_safe_attribute(self, obj: Any, attribute: str, value: Any) -> bool:
        if isinstance(obj, (str, dict)):
            return attribute in METHODS
        if isinstance(obj, (jinja2.runtime.LoopContext, _ChatNamespace)):  # faster than the check of Jinja
            is_value = attribute == "cycle" or not callable(value) or isinstance(obj, _ChatNamespace)
            return is_value and not attribute.startswith("_")
        return not callable(value) and super().is_safe_attribute(obj, attribute, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        message = f"{type(obj).__name__} has no {attribute!r} that a chat template may use"
        return self.undefined(f"{message}; the methods are: {', '.join(METHODS)}", exc=sandbox.SecurityError)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = _budget.get()
        if operator == "+" and isinstance(left, str) and isinstance(right, str):  # the most frequent case
            budget.spend(CALL + 2 * (len(left) + len(right)))
            return concatenate((left, right)) if tracker_var.get() else left + right
        budget.spend_on_operator(operator, left, right)
        is_format = operator == "%" and isinstance(left, str)
        call = super().call_binop
        result = format_percent(left, right) if is_format else call(context, operator, left, right)
        budget.spend_on_copy(result)
        return result

    def call_unop(self, context: Any, operator: str, value: Any) -> Any:
        _budget.get().spend(CALL)
        return super().call_unop(context, operator, value)


def _make_filter(name: str, arguments: list[Any], line: int) -> Any:
    """Makes the node of a call of an internal filter."""
    first, *others = arguments
    filter_node = nodes.Filter(first, name, others, [], None, None)
    for node in (filter_node, *arguments):
        node.set_lineno(line)
    return filter_node


def _is_constant(node: Any) -> bool:
    is_list = isinstance(node, (nodes.Tuple, nodes.List))
    return all(map(_is_constant, node.items)) if is_list else isinstance(node, nodes.Const)


class _CostInserter(jinja2.visitor.NodeTransformer):  # type: ignore[misc]
    """Visitor that inserts costs of loops, `~`, comparisons, slices and dict keys."""

    def __init__(self) -> None:
        self._works: dict[int, int] = {}

    def count_work(self, node: Any) -> int:
        """Returns the cost of running the body of a node once: of its literal text and its other nodes.

        The nodes in a body are counted once, before they are visited, which changes them.
        """
        work = 0
        for child in node.iter_child_nodes():
            literal = len(child.data) if isinstance(child, nodes.TemplateData) else 0
            literal += len(str(child.value)) if isinstance(child, nodes.Const) else 0
            is_macro = isinstance(child, (nodes.Macro, nodes.CallBlock))
            inner = self._works[id(child)] if id(child) in self._works else self.count_work(child)
            work += NODE + CALL * is_macro + literal + inner
        self._works[id(node)] = work
        return work

    def visit_For(self, node: Any) -> Any:  # noqa: N802 (Jinja's name)
        work = self.count_work(node)
        self.generic_visit(node)
        is_name = isinstance(node.target, nodes.Name)
        item = nodes.Name(node.target.name, "load") if is_name else nodes.Const(None)
        step = _make_filter(" step", [nodes.Const(work), item], node.lineno)
        if node.test is not None:  # `for ... if TEST`: steps that the test skips have a cost, too
            node.test = nodes.And(
                _make_filter(" step", [nodes.Const(0), nodes.Const(None)], node.lineno),
                node.test,
                lineno=node.lineno,
            )
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        enter, leave = (
            nodes.ExprStmt(_make_filter(name, [nodes.Const(None)], node.lineno), lineno=node.lineno)
            for name in (" enter", " leave")
        )
        return [enter, node, leave]

    def visit_Macro(self, node: Any) -> Any:  # noqa: N802
        work = nodes.Const(self.count_work(node))
        self.generic_visit(node)
        step = _make_filter(" step", [work], node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node

    visit_CallBlock = visit_Macro  # noqa: N815

    def visit_Concat(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        return _make_filter(" joined", node.nodes, node.lineno)

    def visit_Compare(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        *values, last = node.expr, *(operand.expr for operand in node.ops)
        if not {"in", "notin"}.isdisjoint(operand.op for operand in node.ops):
            if len(values) > 1:
                raise jinja2.TemplateAssertionError(
                    "'in' can't be combined with other comparisons", node.lineno
                )
            if _is_constant(last):
                return node
            found = _make_filter(" contains", [node.expr, last], node.lineno)
            return found if node.ops[0].op == "in" else nodes.Not(found, lineno=node.lineno)
        if len(values) == 1 and (_is_constant(node.expr) or _is_constant(last)):
            return node  # its cost is bounded by the constant, whose length is that of the template
        for owner in (node, *node.ops[:-1]):  # a comparison costs as much as one of its sides
            owner.expr = _make_filter(" weighed", [owner.expr], node.lineno)
        return node

    def visit_Getitem(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        return _make_filter(" copied", [node], node.lineno) if isinstance(node.arg, nodes.Slice) else node

    def visit_Pair(self, node: Any) -> Any:  # noqa: N802
        self.generic_visit(node)
        if not (isinstance(node.key, nodes.Const) and isinstance(node.key.value, str)):
            node.key = _make_filter(" key", [node.key], node.lineno)
        return node

    def visit_Include(self, node: Any) -> Any:  # noqa: N802
        name = {"ScopedEvalContextModifier": "autoescape"}.get(type(node).__name__, type(node).__name__)
        raise jinja2.TemplateAssertionError(
            f"a chat template can't use the statement {name.lower()!r}", node.lineno
        )

    visit_Import = visit_FromImport = visit_Extends = visit_Block = visit_Include  # noqa: N815
    visit_ScopedEvalContextModifier = visit_Include  # noqa: N815


class _ChatNamespace(jinja2.utils.Namespace):  # type: ignore[misc]
    """Jinja's `namespace`, except that private names are rejected and `repr` has a fixed length."""

    def __init__(*args: Any, **values: Any) -> None:
        jinja2.utils.Namespace.__init__(args[0])
        for name, value in _make_dict(*args[1:], **values).items():
            args[0][name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise sandbox.SecurityError(f"a namespace can't hold {name!r}: names must not begin with _")
        super().__setitem__(name, value)


def _make_dict(*mappings: Any, **values: Any) -> dict[Any, Any]:
    """Makes a mapping: the function `dict`. It does not accept pairs, whose keys can be of any type."""
    if not all(isinstance(mapping, Mapping) for mapping in mappings):
        raise TypeError("dict and namespace need a mapping, or values with names, such as dict(a=1)")
    _budget.get().spend(sum(ELEMENT * len(mapping) for mapping in mappings))
    return dict(*mappings, **values)


def _call_method(owner: Any, name: str, *args: Any, **options: Any) -> Any:
    """Calls a method of a string or a mapping."""
    budget = _budget.get()
    budget.spend_on_call(METHODS[name], (owner, *args, *options.values()))
    if name == "format":
        result: Any = _format_fields(owner, args, options)
    else:
        is_known = type(owner) is str and tracker_var.get() and name in vars(SourcedText)
        result = getattr(as_sourced(owner) if is_known else owner, name)(*args, **options)
    budget.spend_on_copy(result)
    return result


def _format_fields(form: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Formats as `str.format`, for fields such as `{}`, `{0}`, `{name}` and `{name:d}`."""
    if hasattr(form, "__html__"):
        raise ValueError("a text of the filters 'safe' and 'e' has no method 'format'")
    form = as_sourced(form)
    pieces: list[str] = []
    position, numbers = 0, itertools.count()
    for match in _FIELD.finditer(form):
        pieces.append(form[position : match.start()])
        position = match.end()
        if match[0] in ("{{", "}}"):
            pieces.append(form[position - 1 : position])
            continue
        if match[1] is None:
            raise ValueError("str.format has fields such as {}, {0}, {name} and {name:d} here, and no others")
        key = match[1] or str(next(numbers))
        value = args[int(key)] if key.isdecimal() else options[key]
        if match[2] and not isinstance(value, int):
            raise ValueError(f"the field {match[0]} needs an integer, not a {type(value).__name__}")
        pieces.append(to_text(value))
    return concatenate([*pieces, form[position:]])


def _limit(name: str, growth: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a filter or a test so that calls have a cost.

    Filters that return iterators return lists instead, so that their whole cost is spent by the call.
    """
    first = int(hasattr(function, "jinja_pass_arg"))  # 1 if the first argument is Jinja's context

    @functools.wraps(function)
    def call_with_budget(*args: Any, **options: Any) -> Any:
        budget = _budget.get()
        budget.spend_on_call(growth, (*args[first:], *options.values()))
        result = function(*args, **options)
        if isinstance(result, Iterator):
            result = list(result)
        if hasattr(result, "__html__") and (tracker := tracker_var.get()):
            tracker.has_markup = True
            result = make_plain(result, args[first], f"the filter {name!r}")
        if isinstance(result, str) and name not in _TRACKING_FILTERS:
            result = mark(result, (args[first:], options), f"the filter {name!r}")
        budget.spend_on_copy(result)
        return result

    return call_with_budget


def _replace(s: Any, old: Any, new: Any, count: int | None = None) -> str:
    """Replaces parts of a text: the filter `replace`."""
    replaced = _call_method(to_text(s), "replace", to_text(old), to_text(new), -1 if count is None else count)
    return cast("str", replaced)


def _explain(error: BaseException) -> str:
    """Returns the message of an error, with the names that exist in place of an unknown one."""
    message = f"{error!s:.500}"
    for start, names in (("No filter named", FILTERS), ("No test named", TESTS)):
        if message.startswith(start):
            message += f" The sandbox of chat templates has: {', '.join(names)}"
    return message


def _enter_loop(_: Any) -> None:
    if tracker := tracker_var.get():
        tracker.enter_loop()


def _leave_loop(_: Any) -> None:
    if tracker := tracker_var.get():
        tracker.leave_loop()


def _spend_lookup(value: Any, key: Any) -> None:
    """Spends the cost of an access to an attribute or an element."""
    budget = _budget.get()
    budget.spend(CALL)
    if not isinstance(key, str):
        budget.spend_on_text(key)
    if isinstance(value, SourcedMessage) and (tracker := tracker_var.get()):
        tracker.note_access(value, key)


def _spend_step(work: int, item: Any = None) -> bool:
    """Begins one step of a loop, or a macro.

    Args:
        work: the cost of the body.
        item: the item of the loop.
    """
    _budget.get().spend(LOOP_STEP + max(work, 0))  # `map(' step')` can pass a negative number
    if tracker := tracker_var.get():
        tracker.step(item)
    return True


def _concatenate(*values: Any) -> str:
    """Concatenates values as `~` does, and spends the cost."""
    budget = _budget.get()
    for value in values:
        budget.spend_on_text(value)
    return concatenate(map(to_text, values))


def _spend_comparison(value: Any) -> Any:
    """Returns the value, and spends the cost of comparing or copying it."""
    _budget.get().spend_on_text(value)
    return value


def _spend_copy(value: Any) -> Any:
    """Returns a slice, and spends the cost of its memory."""
    _budget.get().spend_on_copy(value, 2)
    return value


def _contains(item: Any, container: Any) -> bool:
    """Returns whether a list, a mapping or a text contains an item, and spends the cost of the search."""
    _budget.get().spend_on_search(item, container)
    return item in container


def _check_key(key: Any) -> Any:
    """Returns a key of a mapping. Keys of most other types can be chosen so that their hashes are equal."""
    if isinstance(key, str) or (isinstance(key, int) and abs(key) < _MAX_KEY):
        return key
    shown = f"{key!r:.40}" if isinstance(key, int) else f"a {type(key).__name__}"
    raise TypeError(f"keys of mappings are strings, or integers below {_MAX_KEY:,}, not {shown}")


@jinja2.utils.pass_eval_context  # type: ignore[untyped-decorator] # so that it is not called for constants when a template is compiled
def _finalize(_: Any, value: Any) -> Any:
    """Spends the cost of a value before it is written."""
    _budget.get().spend_on_text(value)
    return to_text(value) if tracker_var.get() else value


class _GenerationBlocks(ext.Extension):  # type: ignore[misc]
    """The Jinja extension for `{% generation %}` blocks. It marks the sources of their text.

    It also counts tokens before they are parsed.
    """

    tags = frozenset({"generation"})

    def filter_stream(self, stream: Any) -> Any:
        for count, token in enumerate(stream):
            if count == _MAX_TOKENS:
                raise ValueError(f"it has more than {_MAX_TOKENS:,} names, operators and other tokens")
            yield token

    def parse(self, parser: Any) -> Any:
        self.environment.tokjax_has_blocks = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller: Callable[[], str]) -> str:
        text, tracker = caller(), tracker_var.get()
        return tracker.mark_generated(text) if tracker else text


@jinja2.utils.pass_environment  # type: ignore[untyped-decorator]
def _join(environment: Any, value: Any, d: Any = "", attribute: Any = None) -> str:
    """Joins values: the filter `join`, which keeps the sources of lists and mappings."""
    if attribute is not None:
        value = map(jinja2.filters.make_attrgetter(environment, attribute), value)
    joined: str = as_sourced(to_text(d)).join(map(to_text, value))
    return joined


def _to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Converts a value to JSON: the filter `tojson`, with the arguments that it has in transformers."""
    return to_json(
        x,
        functools.partial(
            json.dumps,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        ),
    )


def _raise(message: Any) -> NoReturn:
    """Raises an error: the function `raise_exception` of templates."""
    _budget.get().spend_on_text(message)
    raise ValueError(message)


def make_clock(now: date | str) -> Callable[[str], str]:
    """Returns the function `strftime_now` of templates, which formats a time, or a date as text."""
    if not isinstance(now, date):
        try:
            now = date.fromisoformat(now)
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                f"date must be a date or a time, or text such as '2026-11-27', not {now!r:.80}"
            ) from None

    def strftime_now(pattern: str) -> str:
        _budget.get().spend(256 * len(pattern))  # 256 characters: more than a directive can produce
        return mark(now.strftime(pattern), pattern, "the function strftime_now")

    return strftime_now
