"""Chat templates: compilation, and rendering in Jinja's sandbox with bounded time and memory.

A template has the environment of transformers' `apply_chat_template`: the filters and tests of Jinja,
`tojson`, `raise_exception`, `strftime_now`, `{% break %}` and `{% continue %}`, and `{% generation %}`
blocks, whose spans in the text are returned. These are removed: `lipsum`, because it is random, and the
filters `urlize`, `striptags` and `wordwrap`, because their running time is not bounded by the size of their
input.

A template is untrusted code. Each operation spends units of a `Budget`
(`template_limits`), and the hooks for this are in four layers:

    environment      calls, operators, `str.format`: Jinja's sandbox lets subclasses intercept them
    filters, tests   each function is wrapped (`_limit`)
    syntax tree      loops, `~`, comparisons, slices and dict keys have no hook, so calls of internal filters
                     are inserted into the parsed template (`_make_cost_inserter`)
    output           `finalize` is called with each value that is written

For example, `{% for m in messages %}<{{ m.a ~ m.b }}>{% endfor %}` is compiled as if it were

    {% for m in messages %}{% do 2 | " step" %}<{{ m.a | " joined"(m.b) }}>{% endfor %}

where 2 is the number of literal characters in the body, plus `NODE` for each other node. The names of
internal filters begin with a space, so that the syntax of templates has no way to write them. (`map(' step')`
can call one, which only spends more.)

Classes that derive from Jinja's are made in functions, so that Jinja is imported only when a template is
used.
"""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Set
from contextvars import ContextVar
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tokjax._util.imports import import_optional
from tokjax.encoding.chat.template_limits import (
    CALL,
    LOOKUP,
    LOOP_STEP,
    MAX_BITS,
    NODE,
    WORK_PER_CHARACTER,
    Budget,
    TemplateLimitError,
)
from tokjax.encoding.chat.text_sources import (
    FieldHolder,
    SourcedMessage,
    SourcedText,
    Tracker,
    as_sourced,
    concatenate,
    format_percent,
    indent,
    make_plain,
    mark,
    reject_bytes,
    to_json,
    to_text,
    tracker_var,
)
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_TEMPLATE_LENGTH = 1_000_000
_MAX_TOKENS = 12_000
_MAX_CODE_LENGTH = 2_000_000
"""Maximum length of the Python code of a template. Each `include` lists all variables there."""
_MAX_INDENT = 16
"""Maximum indentation of `tojson`, in characters. Nested data multiplies it."""
_REMOVED_FILTERS = ("urlize", "striptags", "wordwrap")
_SHALLOW_TESTS = frozenset(("defined", "undefined", "none", "string", "mapping", "sequence", "iterable"))
"""Tests that do not access the elements of a list."""
_DEEP_METHODS = frozenset(("count", "index", "changed", "isdisjoint", "fromkeys"))
"""Methods that compare or hash all elements of a list, recursively."""
_REMAINDER_TESTS = frozenset(("odd", "even", "divisibleby"))
"""Tests that compute `%`, which formats a string."""
_SELECTING_FILTERS = frozenset(("default", "d", "first", "last", "min", "max", "random", "attr"))
"""Filters that return one of their arguments, or a part of one."""
_COMBINING_FILTERS = frozenset(("replace", "format"))
"""Filters that call a method of a string argument, which keeps the sources if that string has them."""
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
        text: the complete text, without markers; a `SourcedText` if it was rendered with a tracker.
        generated: character spans `(start, stop)` of the `{% generation %}` blocks, 0-based and half-open.
    """

    text: str
    generated: list[tuple[int, int]]


class ChatTemplate(NamedTuple):
    """Compiled chat template. Create one with `compile_template`.

    Attributes:
        compiled: Jinja's template object.
        markers: random strings that are written at the start and the end of each `{% generation %}` block
            while the template is rendered.
        has_generation_blocks: whether the template contains `{% generation %}` blocks.
    """

    compiled: Any
    markers: tuple[str, str]
    has_generation_blocks: bool

    def render(
        self, variables: Mapping[str, Any], max_characters: int, tracker: Tracker | None = None
    ) -> RenderedTemplate:
        """Renders the template.

        Args:
            variables: the variables of the template.
            tracker: if given, the text is a `SourcedText`.
            max_characters: maximum length of the output in characters. The work that the template can do is
                limited to `WORK_PER_CHARACTER` units for each.

        Raises:
            InvalidArgumentError: the template raises an error, or exceeds its limits.
        """
        jinja2 = import_optional("jinja2", extra="chat", purpose="encode_chat")
        budget = Budget(WORK_PER_CHARACTER * max_characters)
        if tracker:
            tracker.spend = budget.spend
        budget_token = _budget.set(budget)
        tracker_token = tracker_var.set(tracker)
        pieces: list[str] = []
        remaining = max_characters
        try:
            for piece in self.compiled.generate(variables):
                remaining -= len(piece)
                if remaining < 0:
                    raise TemplateLimitError
                pieces.append(tracker.write(piece) if tracker else piece)
            text = concatenate(pieces)
            return (
                _split_at_markers(text, *self.markers)
                if self.has_generation_blocks
                else RenderedTemplate(text, [])
            )
        except TemplateLimitError:
            raise InvalidArgumentError(
                f"the chat template writes more than {max_characters} characters, or does more work than is "
                "allowed; if you trust it, pass a larger max_characters (integers are always limited to "
                f"{MAX_BITS:,} bits)"
            ) from None
        except (*_TEMPLATE_ERRORS, jinja2.TemplateError) as error:
            raise InvalidArgumentError(
                f"the chat template can't render these messages: {type(error).__name__}: {error!s:.500}"
            ) from error
        finally:
            _budget.reset(budget_token)
            tracker_var.reset(tracker_token)


@lru_cache(maxsize=16)
def compile_template(template: str) -> ChatTemplate:
    """Compiles a chat template. The most recently used ones are cached.

    Raises:
        InvalidArgumentError: `template` is not a valid Jinja template, or is too long.
        MissingExtraError: Jinja is not installed.
    """
    jinja2 = import_optional("jinja2", extra="chat", purpose="encode_chat")
    if not isinstance(template, str):
        raise InvalidArgumentError(f"template must be a Jinja template, not {type(template).__name__}")
    if len(template) > _MAX_TEMPLATE_LENGTH:
        raise InvalidArgumentError(
            f"the chat template has {len(template)} characters; templates have at most {_MAX_TEMPLATE_LENGTH}"
        )
    environment = _make_environment_class()(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,  # otherwise constant expressions are computed by the compiler, without a budget
        finalize=_make_output_finalizer(),
        extensions=["jinja2.ext.loopcontrols", _make_generation_extension(), _make_token_counter()],
    )
    environment.code_generator_class = _make_code_generator_class()
    environment.filters |= {"tojson": _to_json, "indent": _make_indent_filter(), "join": _make_join_filter()}
    environment.filters["unique"] = _make_unique_filter()
    for name in _REMOVED_FILTERS:
        del environment.filters[name]
    environment.filters = {name: _limit(name, function) for name, function in environment.filters.items()}
    environment.tests = {
        name: _limit(name, function, shallow=name in _SHALLOW_TESTS)
        for name, function in environment.tests.items()
    }
    environment.filters |= {
        " enter": _enter_loop,
        " step": _spend_step,
        " spend": _spend_work,
        " leave": _leave_loop,
        " joined": _concatenate,
        " weighed": _spend_comparison,
        " keyed": _spend_on_keys,
    }
    del environment.globals["lipsum"]
    environment.globals.update(
        raise_exception=_raise,
        namespace=_make_namespace_class(),
        dict=_DictFunction(),
    )
    # Random, so that no message can contain them.
    markers = f"\ue000{secrets.token_hex(16)}\ue001", f"\ue000{secrets.token_hex(16)}\ue001"
    environment.tokjax_markers, environment.tokjax_has_blocks = markers, False
    try:
        tree = _make_cost_inserter()().visit(environment.parse(template))
        compiled = environment.template_class.from_code(
            environment, environment.compile(tree), environment.make_globals(None)
        )
    except (jinja2.TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
        cause: object = error
        if isinstance(error, (RecursionError, MemoryError)):  # of Python's parser
            cause = "it is nested too deeply, or an if has too many elif"
        raise InvalidArgumentError(f"the chat template is not a valid Jinja template: {cause}") from error
    return ChatTemplate(compiled, markers, environment.tokjax_has_blocks)


@lru_cache(maxsize=1)
def _make_environment_class() -> Any:
    """Makes the environment class: Jinja's immutable sandbox, with a budget for calls and operators."""
    sandbox = import_optional("jinja2.sandbox", extra="chat", purpose="encode_chat")
    base: Any = sandbox.ImmutableSandboxedEnvironment

    class LimitedFormatter(sandbox.SandboxedFormatter):  # type: ignore[misc, name-defined]
        def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
            value, first = super().get_field(field_name, args, kwargs)
            _budget.get().spend_on_field(value, "")
            return value, first

        def convert_field(self, value: Any, conversion: Any) -> Any:
            converted = super().convert_field(value, conversion)
            is_text = conversion is not None and isinstance(converted, str)
            return mark(converted, value, "the method 'format'") if is_text else converted

        def format_field(self, value: Any, format_spec: str) -> Any:
            _budget.get().spend_on_field(value, format_spec)
            text = mark(super().format_field(value, format_spec), value, "the method 'format'")
            if isinstance(value, SourcedText) and not format_spec:
                text = value
            return self.holder.hold(text) if isinstance(text, SourcedText) else text

        def vformat(self, format_string: str, args: Any, kwargs: Any) -> str:
            self.holder = FieldHolder()
            text: str = super().vformat(format_string, args, kwargs)
            return self.holder.release(text) if tracker_var.get() else text

    class EscapeFormatter(LimitedFormatter, sandbox.SandboxedEscapeFormatter):  # type: ignore[misc, name-defined]
        pass

    class LimitedEnvironment(base):  # type: ignore[misc]
        intercepted_binops = frozenset(base.default_binop_table)
        intercepted_unops = frozenset(base.default_unop_table)
        concat = staticmethod(concatenate)

        def call(__self, __context: Any, __function: Any, *args: Any, **options: Any) -> Any:  # noqa: N805 (not a keyword of a call)
            budget = _budget.get()
            name = getattr(__function, "__name__", "")
            owner = getattr(__function, "__self__", None)
            if type(owner) is str and tracker_var.get() and name in vars(SourcedText):
                __function = getattr(as_sourced(owner), name)
            budget.spend(CALL)
            if name == "get" and isinstance(owner, Mapping):
                budget.spend_on_lookup(owner, args[0] if args else "")
            budget.spend_on_call(
                name if isinstance(name, str) else "",
                (
                    *(() if owner is None or isinstance(owner, Iterator) else (owner,)),
                    *args,
                    *options.values(),
                ),
                shallow=name not in _DEEP_METHODS,
            )
            if name == "fromkeys":  # each dict has this method
                budget.spend_on_keys(*args[:1] or ((),))
            result = super().call(__context, __function, *args, **options)
            if tracker_var.get() and isinstance(owner, str) and isinstance(result, bytes):
                reject_bytes((owner, args, options), f"the method {name!r}")
            if tracker_var.get() and isinstance(result, str):
                if hasattr(result, "__html__"):
                    result = make_plain(result, (args, options), f"the function {name!r}")
                elif isinstance(owner, str):
                    result = mark(result, (owner, args, options), f"the method {name!r}")
            budget.spend_on_result(result)
            return result

        def getitem(self, obj: Any, argument: Any) -> Any:
            budget = _budget.get()
            budget.spend_on_lookup(obj, argument)
            _note_access(obj, argument)
            value = super().getitem(obj, argument)
            if not isinstance(obj, Collection):  # such as a namespace: its size does not include its values
                budget.spend(3 * LOOKUP)
                budget.spend_on_text(value)
            return value

        def getattr(self, obj: Any, attribute: str) -> Any:
            _budget.get().spend(LOOKUP if isinstance(obj, Collection) else 4 * LOOKUP)  # a namespace is slow
            _note_access(obj, attribute)
            return super().getattr(obj, attribute)

        def call_unop(self, context: Any, operator: str, arg: Any) -> Any:
            _budget.get().spend_on_text(arg)
            return super().call_unop(context, operator, arg)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            budget = _budget.get()
            if operator == "+" and isinstance(left, str) and isinstance(right, str):  # the most frequent case
                budget.spend(CALL + 2 * (len(left) + len(right)))
                return concatenate((left, right)) if tracker_var.get() else left + right
            if isinstance(left, Set) or isinstance(right, Set):
                raise TypeError(f"the operator {operator} does not make sets; use lists")
            budget.spend_on_operator(operator, left, right)
            if operator == "%" and isinstance(left, str):
                result: Any = format_percent(left, right)
            else:
                result = super().call_binop(context, operator, left, right)
            budget.spend_on_result(result)
            return result

        def wrap_str_format(self, value: Any) -> Any:
            if super().wrap_str_format(value) is None:  # `value` is not a method of a string
                return None

            def wrapper(*args: Any, **options: Any) -> str:
                if value.__name__ == "format_map":
                    (options,) = args
                    args = ()
                form = value.__self__
                if hasattr(form, "__html__"):
                    made: str = EscapeFormatter(self, escape=form.escape).vformat(form, args, options)
                    escaped: str = type(form)(made)
                    return escaped
                text: str = LimitedFormatter(self).vformat(form, args, options)
                is_from_message = isinstance(form, SourcedText) and any(
                    source.field != "scaffold" for source in form._sources
                )
                if is_from_message:  # the formatter splits the form without its sources
                    return mark(str.__str__(text), (form, args, options), "the method 'format'")
                return text

            return functools.update_wrapper(wrapper, value)

    return LimitedEnvironment


@lru_cache(maxsize=1)
def _make_cost_inserter() -> Any:
    """Makes the visitor that inserts costs of loops, `~`, comparisons, slices and dict keys."""
    nodes = import_optional("jinja2.nodes", extra="chat", purpose="encode_chat")
    base: Any = import_optional("jinja2.visitor", extra="chat", purpose="encode_chat").NodeTransformer

    def call(name: str, arguments: list[Any], line: int) -> Any:
        first, *others = arguments
        filter_node = nodes.Filter(first, name, others, [], None, None)
        for node in (filter_node, *arguments):
            node.set_lineno(line)
        return filter_node

    def count_work(node: Any) -> int:
        """Returns the cost of running the body of a node once: of its literal text and its other nodes."""
        macros = len(list(node.find_all((nodes.Macro, nodes.CallBlock))))
        literal = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        return CALL * macros + literal + NODE * sum(1 for _ in node.find_all(nodes.Node))

    class CostInserter(base):  # type: ignore[misc]
        def visit_For(self, node: Any) -> Any:  # noqa: N802 (Jinja's name)
            work = count_work(node)
            self.generic_visit(node)
            is_name = isinstance(node.target, nodes.Name)
            item = nodes.Name(node.target.name, "load") if is_name else nodes.Const(None)
            step = call(" step", [nodes.Const(work), item], node.lineno)
            if node.test is not None:  # `for ... if TEST`: steps that the test skips have a cost, too
                node.test = nodes.And(
                    call(" step", [nodes.Const(0), nodes.Const(None)], node.lineno),
                    node.test,
                    lineno=node.lineno,
                )
            node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
            enter, leave = (
                nodes.ExprStmt(call(name, [nodes.Const(None)], node.lineno), lineno=node.lineno)
                for name in (" enter", " leave")
            )
            return [enter, node, leave]

        def visit_Macro(self, node: Any) -> Any:  # noqa: N802
            work = nodes.Const(count_work(node))
            self.generic_visit(node)
            step = call(" spend", [work], node.lineno)
            node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
            return node

        visit_CallBlock = visit_Block = visit_Macro  # noqa: N815

        def visit_Concat(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            return call(" joined", node.nodes, node.lineno)

        def visit_Compare(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            node.expr = call(" weighed", [node.expr], node.lineno)
            for operand in node.ops:
                operand.expr = call(" weighed", [operand.expr], node.lineno)
            return node

        def visit_Getitem(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            return call(" weighed", [node], node.lineno) if isinstance(node.arg, nodes.Slice) else node

        def visit_Dict(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            return call(" keyed", [node], node.lineno)

        def visit_Pair(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            node.key = call(" weighed", [node.key], node.lineno)
            return node

    return CostInserter


@lru_cache(maxsize=1)
def _make_namespace_class() -> Any:
    """Makes Jinja's `namespace`, except that private names are rejected and `repr` has a fixed length."""
    utils: Any = import_optional("jinja2.utils", extra="chat", purpose="encode_chat")
    sandbox = import_optional("jinja2.sandbox", extra="chat", purpose="encode_chat")

    class ChatNamespace(utils.Namespace):  # type: ignore[misc]
        def __init__(*positional: Any, **values: Any) -> None:
            self, *others = positional
            named = _DictFunction()(*others, **values)
            for name in named:
                check(name)
            utils.Namespace.__init__(self, named)

        def __setitem__(self, name: str, value: Any) -> None:
            check(name)
            super().__setitem__(name, value)

        def __repr__(self) -> str:
            return "<namespace>"

    def check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise sandbox.SecurityError(f"a namespace can't hold {name!r}: names must not begin with _")

    return ChatNamespace


class _DictFunction:
    """The functions `dict` and `dict.fromkeys`, with a cost and without the other attributes of the type."""

    def __call__(self, *positional: Any, **values: Any) -> dict[Any, Any]:
        _budget.get().spend_on_text(positional)
        for pairs in positional:
            if not isinstance(pairs, Mapping):
                _budget.get().spend_on_keys(next(iter(pair), "") for pair in pairs)
        return dict(*positional, **values)

    def fromkeys(self, *positional: Any) -> dict[Any, Any]:
        return dict.fromkeys(*positional)


def _limit(name: str, function: Callable[..., Any], *, shallow: bool = False) -> Callable[..., Any]:
    """Wraps a filter or a test so that calls have a cost.

    Filters that return iterators return lists instead, so that their whole cost is spent by the call.
    """
    first = int(hasattr(function, "jinja_pass_arg"))  # 1 if the first argument is Jinja's context

    @functools.wraps(function)
    def call_with_budget(*args: Any, **options: Any) -> Any:
        budget = _budget.get()
        budget.spend_on_call(name, (*args[first:], *options.values()), shallow=shallow)
        if name in _REMAINDER_TESTS:
            budget.spend_on_operator("%", args[0], (*args[1:], *options.values(), 2)[0])
        passed = args
        if name in _COMBINING_FILTERS:
            passed = (*args[:first], as_sourced(args[first]), *args[first + 1 :])
        result = function(*passed, **options)
        if isinstance(result, Iterator):
            result = list(result)
        if isinstance(result, str) and name not in _SELECTING_FILTERS and tracker_var.get():
            if hasattr(result, "__html__"):
                result = make_plain(result, args[first], f"the filter {name!r}")
            result = mark(result, (args[first:], options), f"the filter {name!r}")
        budget.spend_on_result(result)
        return result

    return call_with_budget


def _enter_loop(_: Any) -> None:
    if tracker := tracker_var.get():
        tracker.enter_loop()


def _leave_loop(_: Any) -> None:
    if tracker := tracker_var.get():
        tracker.leave_loop()


def _note_access(value: Any, key: Any) -> None:
    if isinstance(value, SourcedMessage) and (tracker := tracker_var.get()):
        tracker.note_access(value, key)


def _spend_work(work: int) -> bool:
    """Spends the cost of a body."""
    _budget.get().spend(max(work, 0))  # `map(' spend')` can pass a negative number
    return True


def _spend_step(work: int, item: Any = None) -> bool:
    """Begins one step of a loop.

    Args:
        work: the cost of the body.
        item: the item of the loop.
    """
    _spend_work(LOOP_STEP + max(work, 0))
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


def _spend_on_keys(value: Any) -> Any:
    """Returns a mapping, and spends the cost of comparing its keys."""
    _budget.get().spend_on_keys(value)
    return value


@lru_cache(maxsize=1)
def _make_output_finalizer() -> Any:
    """Makes the function that Jinja calls with each value before writing it."""
    utils = import_optional("jinja2.utils", extra="chat", purpose="encode_chat")

    def spend(context: Any, value: Any) -> Any:
        _budget.get().spend_on_text(value)
        if tracker_var.get() is None:
            return value
        if context.autoescape:
            raise ValueError("{% autoescape %} loses the origin of the text; pass mask=False")
        return to_text(value)

    # With an evaluation context, it is not called for constants when a template is compiled.
    return utils.pass_eval_context(spend)


@lru_cache(maxsize=1)
def _make_generation_extension() -> Any:
    """Makes the Jinja extension for `{% generation %}` blocks. It puts markers around their output."""
    nodes = import_optional("jinja2.nodes", extra="chat", purpose="encode_chat")
    base: Any = import_optional("jinja2.ext", extra="chat", purpose="encode_chat").Extension

    class GenerationBlocks(base):  # type: ignore[misc]
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            self.environment.tokjax_has_blocks = True
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

        def _write(self, caller: Callable[[], str]) -> str:
            begin, end = self.environment.tokjax_markers
            return concatenate((begin, caller(), end))

    return GenerationBlocks


@lru_cache(maxsize=1)
def _make_token_counter() -> Any:
    """Makes the Jinja extension that counts tokens before they are parsed."""
    base: Any = import_optional("jinja2.ext", extra="chat", purpose="encode_chat").Extension

    class TokenCounter(base):  # type: ignore[misc]
        def filter_stream(self, stream: Any) -> Any:
            for count, token in enumerate(stream):
                if count == _MAX_TOKENS:
                    raise ValueError(f"it has more than {_MAX_TOKENS:,} names, operators and other tokens")
                yield token

    return TokenCounter


@lru_cache(maxsize=1)
def _make_code_generator_class() -> Any:
    """Makes Jinja's generator of Python code, with a limit on the length of the code."""
    base: Any = import_optional("jinja2.compiler", extra="chat", purpose="encode_chat").CodeGenerator

    class LimitedCodeGenerator(base):  # type: ignore[misc]
        tokjax_length = 0

        def write(self, code: str) -> None:
            self.tokjax_length += len(code)
            if self.tokjax_length > _MAX_CODE_LENGTH:
                raise ValueError(f"its Python code has more than {_MAX_CODE_LENGTH:,} characters")
            super().write(code)

    return LimitedCodeGenerator


def _split_at_markers(marked: str, begin: str, end: str) -> RenderedTemplate:
    """Removes the markers of `{% generation %}` blocks from a text, and returns the spans between them.

    With `<` for `begin` and `>` for `end`:

        "U: hi A: <low.> U: ok A: <yes>"   text "U: hi A: low. U: ok A: yes", spans (9, 13) and (23, 26)
    """
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for i, part in enumerate(marked.split(begin)):
        inner, closed, rest = part.partition(end) if i else ("", end, part)
        if not closed or end in rest:
            raise ValueError("{% generation %} blocks are nested, or a filter truncated one")
        if i:
            spans.append((length, length + len(inner)))
        pieces += [inner, rest]
        length += len(inner) + len(rest)
    return RenderedTemplate(concatenate(pieces), spans)


@lru_cache(maxsize=1)
def _make_indent_filter() -> Any:
    """Makes the filter `indent`: Jinja's, which is faster, for texts without sources."""
    filters: Any = import_optional("jinja2.filters", extra="chat", purpose="encode_chat")

    @functools.wraps(indent)
    def choose(s: Any, *args: Any, **options: Any) -> Any:
        return (indent if isinstance(s, SourcedText) else filters.do_indent)(s, *args, **options)

    return choose


@lru_cache(maxsize=1)
def _make_join_filter() -> Any:
    """Makes the filter `join`: Jinja's, except that it keeps the sources of lists and mappings, too."""
    filters: Any = import_optional("jinja2.filters", extra="chat", purpose="encode_chat")
    utils: Any = import_optional("jinja2.utils", extra="chat", purpose="encode_chat")

    def join(context: Any, value: Any, d: Any = "", attribute: Any = None) -> Any:
        if tracker_var.get() is None:
            return filters.sync_do_join(context, value, d, attribute)
        if attribute is not None:
            value = map(filters.make_attrgetter(context.environment, attribute), value)
        return as_sourced(to_text(d)).join(map(to_text, value))

    return utils.pass_eval_context(join)


@lru_cache(maxsize=1)
def _make_unique_filter() -> Any:
    """Makes the filter `unique`: Jinja's, with the cost of comparing the keys."""
    filters: Any = import_optional("jinja2.filters", extra="chat", purpose="encode_chat")
    utils: Any = import_optional("jinja2.utils", extra="chat", purpose="encode_chat")

    def unique(environment: Any, value: Any, case_sensitive: bool = False, attribute: Any = None) -> Any:
        change = None if case_sensitive else filters.ignore_case
        keys = list(map(filters.make_attrgetter(environment, attribute, change), value))
        _budget.get().spend_on_keys(keys)
        items: dict[Any, Any] = {}
        for key, item in zip(keys, value, strict=True):
            items.setdefault(key, item)
        return list(items.values())

    return utils.pass_environment(unique)


def _to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Converts a value to JSON: the filter `tojson`, with the arguments that it has in transformers."""
    if (indent if isinstance(indent, int) else len(indent or "")) > _MAX_INDENT:
        raise ValueError(f"tojson indents by at most {_MAX_INDENT}, not {indent!r:.20}")
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
        return now.strftime(pattern)

    return strftime_now
