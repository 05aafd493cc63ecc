"""What a template of ``template.render`` may do: Jinja2's immutable sandbox, with bounds.

Jinja2's sandbox keeps a template away from Python's insides. It does not keep it from asking for
much: here each way to make something large out of something small is measured before it is made
(repetition, powers, joining, padding), rounds and calls are counted, and the text is measured
while it grows. What is left needs memory, of which the process gets only so much meanwhile.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from string import Formatter
from types import TracebackType
from typing import Any, Final, NoReturn

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.exceptions import TemplateError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, Undefined, markup_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing
from jinja2.visitor import NodeTransformer

from async_nodes.core import strict_json
from async_nodes.core.errors import AsyncNodesError, TerminalError
from async_nodes.nodes.memory import memory_limit

MAX_TEXT: Final = 1_000_000
"""Characters of the rendered text, and of every text on the way to it."""

MAX_ITEMS: Final = 100_000
"""Elements of a list that a template makes, and numbers of a ``range``."""

MAX_ROUNDS: Final = 200_000
"""Rounds of all loops and calls together."""

MAX_WIDTH: Final = 1_000
"""What a text may be padded or indented to."""

MAX_BITS: Final = 4_096
"""Length of a whole number."""

MAX_MEMORY: Final = 64 << 20
"""Bytes that the process may grow by meanwhile."""

_WIDTHS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_HIDDEN_METHODS = frozenset({"encode", "translate", "maketrans"})
_LEFT_OUT = frozenset({"attr", "pprint", "random", "urlize", "xmlattr"})
_LONG_NUMBER = re.compile(r"\d{4}")
_FILE = "<template>"


class TooMuchError(Exception):
    """Say which bound a template would break."""


def render(template: str, values: Mapping[str, Any], *, autoescape: bool = False) -> str:
    """Return the rendered text.

    Args:
        template: the source.
        values: the variables.
        autoescape: escape values for HTML.

    Raises:
        TerminalError: ``template_failed`` with the line, for everything that goes wrong.

    """
    sandbox = Sandbox(values, autoescape=autoescape)
    pieces: list[str] = []
    size = 0
    try:
        with memory_limit(MAX_MEMORY):
            for piece in sandbox.from_string(template).generate(values):
                pieces.append(piece)
                size += len(piece)
                _check_text(size)
            return "".join(pieces)
    except TemplateSyntaxError as error:
        _refuse(error.message or "the syntax is wrong", error.lineno)
    except MemoryError:
        _refuse(f"it needs more than {MAX_MEMORY >> 20} MiB of memory", None)
    except RecursionError:
        _refuse("it is nested too deeply, or a macro calls itself without end", None)
    except AsyncNodesError as error:  # a filter of ours
        _refuse(error.detail, _line(error.__traceback__))
    except (TemplateError, TooMuchError) as error:
        _refuse(str(error), _line(error.__traceback__))
    except Exception as error:  # noqa: BLE001 - whatever an operation on the values raises
        _refuse(f"{type(error).__name__}: {error}", _line(error.__traceback__))


def _refuse(what: str, line: int | None) -> NoReturn:
    place = f"line {line}: " if line else ""
    raise TerminalError(f"the template failed: {place}{what}", code="template_failed")


def _line(trace: TracebackType | None) -> int | None:
    """Return the template's line in a traceback, the innermost one."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


class Sandbox(ImmutableSandboxedEnvironment):
    """Compile and run one template."""

    intercepted_binops = frozenset({"*", "+", "**", "%"})

    def __init__(self, values: Mapping[str, Any], *, autoescape: bool) -> None:
        super().__init__(
            undefined=_undefined(values),
            autoescape=autoescape,
            optimized=False,  # nothing may be computed before the bounds are there
            keep_trailing_newline=True,
            cache_size=0,
        )
        self._rounds = 0
        self.globals = {"range": _range, "dict": _dict, "namespace": Namespace}
        self.filters = {
            **{name: one for name, one in FILTERS.items() if name not in _LEFT_OUT},
            **{name: _measured(FILTERS[name], test) for name, test in _MEASURES.items()},
            **_FILTERS,
            "_joined": _joined,
            "_counted": self._counted,
        }

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Join what a block or a macro has written."""
        return _join_measured(pieces)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Hide what makes bytes of texts, too."""
        if isinstance(obj, str) and attr in _HIDDEN_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Refuse widths in ``str.format``."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def measured(*args: Any, **kwargs: Any) -> str:
            _check_format(value.__self__)
            return wrapped(*args, **kwargs)

        return measured

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Count the calls; measure what methods of texts would make."""
        self._spend()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            _check_method(owner, obj.__name__, args, kwargs)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Measure what an operator would make."""
        _OPERATORS[operator](left, right)
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for found in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            raise TemplateSyntaxError("there are no other templates to read", found.lineno)
        bounded: nodes.Template = _Bounded().visit(tree)
        bounded.set_environment(self)
        return bounded

    def _spend(self) -> None:
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise TooMuchError(f"its loops and calls take more than {MAX_ROUNDS:,} rounds")

    def _counted(self, values: Any) -> _Counted:
        return _Counted(values, self._spend)


class _Bounded(NodeTransformer):
    """Lead loops and ``~``, which Jinja2 does not let an environment watch, through filters."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the visitor's name
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - the visitor's name
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_joined")


def _filtered(value: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


class _Counted:
    """Iterate over values and count the rounds; as long as they are."""

    def __init__(self, values: Iterable[Any], spend: Callable[[], None]) -> None:
        self._values = values
        self._spend = spend

    def __iter__(self) -> Iterator[Any]:
        for value in self._values:
            self._spend()
            yield value

    def __len__(self) -> int:
        if isinstance(self._values, Sized):
            return len(self._values)
        raise TypeError("its length is not known")


def _undefined(values: Mapping[str, Any]) -> type[StrictUndefined]:
    """Return the class of what a template names and nobody has given."""

    class Missing(StrictUndefined):
        @property
        def _undefined_message(self) -> str:
            owner = values if self._undefined_obj is missing else self._undefined_obj
            known = [str(key) for key in owner] if isinstance(owner, Mapping) else []
            close = difflib.get_close_matches(str(self._undefined_name), known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            return f"{super()._undefined_message}{hint}"

        # Within a list that is printed, too.
        __repr__ = StrictUndefined.__str__

    return Missing


# -- measures --------------------------------------------------------------------------------------


def _check_text(size: int) -> None:
    if size > MAX_TEXT:
        raise TooMuchError(f"the text is longer than {MAX_TEXT:,} characters")


def _check_items(size: int) -> None:
    if size > MAX_ITEMS:
        raise TooMuchError(f"a list has more than {MAX_ITEMS:,} elements")


def _check_width(*widths: Any) -> None:
    for width in widths:
        size = len(width) if isinstance(width, str) else width
        if isinstance(size, int) and abs(size) > MAX_WIDTH:
            raise TooMuchError(f"a width is more than {MAX_WIDTH:,}")


def _check_size(value: Any, size: int) -> None:
    """Check a text or list of this size, of the kind that the value is."""
    if isinstance(value, str | bytes):
        _check_text(size)
    elif isinstance(value, list | tuple):
        _check_items(size)


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise TooMuchError(f"a number has more than {MAX_BITS:,} bits")


def _check_times(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    for value, times in ((left, right), (right, left)):
        if isinstance(value, str | bytes | list | tuple) and isinstance(times, int):
            _check_size(value, len(value) * max(times, 0))


def _check_plus(left: Any, right: Any) -> None:
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        _check_size(left, len(left) + len(right))


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 0))


def _check_percent(left: Any, _right: Any = None) -> None:
    if isinstance(left, str) and ("*" in left or _LONG_NUMBER.search(left)):
        # The pattern finds long numbers in the plain text as well: those are told to go elsewhere.
        for directive in re.findall(r"%[^%a-zA-Z]*", left):
            if "*" in directive or _LONG_NUMBER.search(directive):
                raise TooMuchError(f"a width in {directive[:20]!r} is more than {MAX_WIDTH - 1}")


def _check_format(text: str) -> None:
    for _, _, spec, _ in Formatter().parse(text):
        if spec and ("{" in spec or _LONG_NUMBER.search(spec)):
            raise TooMuchError(f"a width in {spec[:20]!r} is more than {MAX_WIDTH - 1}")


def _check_replace(text: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    text, old, new = str(text), str(old), str(new)
    _check_text(len(text) + text.count(old) * max(len(new) - len(old), 0))


def _check_joined(separator: Any, values: Any) -> None:
    if isinstance(values, Sized):
        _check_text(len(str(separator)) * len(values))


def _check_method(owner: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if name in _WIDTHS:
        _check_width(*args, *kwargs.values())
    elif name == "replace":
        _check_replace(owner, *args, **kwargs)
    elif name == "join" and args:
        _check_joined(owner, args[0])


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], None]]] = {
    "*": _check_times,
    "+": _check_plus,
    "**": _check_power,
    "%": _check_percent,
}


def _numbers(*args: Any, **kwargs: Any) -> None:
    """Check every width among a filter's arguments, the value itself apart."""
    _check_width(*args[1:], *kwargs.values())


def _lengths(_values: Any, linecount: Any = 0, *_: Any, slices: Any = 0, **__: Any) -> None:
    for size in (linecount, slices):
        if isinstance(size, int):
            _check_items(size)


_MEASURES: Final[Mapping[str, Callable[..., None]]] = {
    "batch": _lengths,
    "center": _numbers,
    "format": lambda text, *_, **__: _check_percent(str(text)),
    "indent": _numbers,
    "join": lambda values, d="", *_, **__: _check_joined(d, values),
    "replace": _check_replace,
    "slice": _lengths,
    "wordwrap": lambda *_, **named: _check_width(named.get("wrapstring")),
}


def _measured(function: Callable[..., Any], measure: Callable[..., None]) -> Callable[..., Any]:
    """Return a filter that is measured first; what Jinja2 passes before the value is passed on."""
    passes = getattr(function, "jinja_pass_arg", None)

    def filtered(*args: Any, **kwargs: Any) -> Any:
        measure(*(args[1:] if passes else args), **kwargs)
        return function(*args, **kwargs)

    if passes:
        filtered.jinja_pass_arg = passes  # type: ignore[attr-defined] # how Jinja2 marks them
    return filtered


# -- what a template has ---------------------------------------------------------------------------


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    _check_items(len(numbers))
    return numbers


def _dict(*given: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """Make an object: the class itself would have more than a template needs."""
    return dict(*given, **members)


def _join_measured(pieces: Iterable[str]) -> str:
    kept: list[str] = []
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        _check_text(size)
    return "".join(kept)


def _joined(values: list[Any]) -> str:
    _check_text(sum(len(value) for value in values if isinstance(value, str)))
    return markup_join(values)


def _tojson(value: Any, indent: int | None = None) -> str:
    if isinstance(value, Undefined):
        str(value)  # raises
    data = strict_json.dumps(value).decode("utf-8")
    if indent is not None:
        import json

        _check_width(indent)
        data = json.dumps(json.loads(data), ensure_ascii=False, indent=indent)
    return data


def _fromjson(text: str) -> Any:
    return strict_json.loads(str(text).encode("utf-8", "surrogatepass"))


def _b64encode(text: str) -> str:
    return base64.b64encode(str(text).encode("utf-8")).decode("ascii")


def _b64decode(text: str) -> str:
    return base64.b64decode(str(text), validate=True).decode("utf-8")


_FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "tojson": _tojson,
    "fromjson": _fromjson,
    "b64encode": _b64encode,
    "b64decode": _b64decode,
}
