"""Writing op definitions: the specification mini-language and `OpDefBuilder`.

    attr := NAME ":" type [">=" INT] ["=" default]
    type := base | "list(" base ")"
    base := string | int | float | bool | type | shape | tensor | func
          | numbertype | numerictype | realnumbertype | realnumerictype | quantizedtype
          | "{" DTYPE, ... "}"  (a `type`, limited)  |  "{" 'text', ... "}"  (a `string`, limited)
    arg  := NAME ":" ["Ref("] [NATTR "*"] (DTYPE | TATTR | LISTATTR) [")"]

The language is TensorFlow's (core/framework/op_def_builder.h), so definitions can be
compared with its own.  All errors of one definition are reported together.
Next to read: `op_registry.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.wire import attr_value
from aexec.framework.wire.op_def import NO_DEFAULT, ArgDef, AttrDef, Deprecation, OpDef

if TYPE_CHECKING:
    from aexec.framework.shape_functions.shape_inference import ShapeFn

__all__ = ["OpDefBuilder", "parse_signature"]

_NUMBERS = (
    *(dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8, dtypes.int16, dtypes.int8, dtypes.complex64),
    *(dtypes.int64, dtypes.qint8, dtypes.quint8, dtypes.qint32, dtypes.bfloat16, dtypes.qint16, dtypes.quint16),
    *(dtypes.uint16, dtypes.complex128, dtypes.float16, dtypes.uint32, dtypes.uint64),
)
_REAL_NUMBERS = tuple(d for d in _NUMBERS if not d.is_complex and not d.is_quantized)
_QUANTIZED = (dtypes.qint8, dtypes.quint8, dtypes.qint32, dtypes.qint16, dtypes.quint16)

# Names that stand for a list of types, in the order of error messages.
_COMPOUND_TYPES: dict[str, tuple[DType, ...]] = {
    "numbertype": _NUMBERS,
    "numerictype": _NUMBERS,
    "realnumbertype": _REAL_NUMBERS,
    "realnumerictype": _REAL_NUMBERS,
    "quantizedtype": _QUANTIZED,
}
_BASE_TYPES = frozenset(attr_value.MEMBER_OF_TYPE)

_OP_NAME = re.compile(r"_*[A-Z][A-Za-z0-9_]*(>_*[A-Z][A-Za-z0-9_]*)*")
_ATTR_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_ARG_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOKEN = re.compile(
    r"""\s*(?:(?P<WORD>[A-Za-z_][A-Za-z0-9_>]*?(?![A-Za-z0-9_]))
          |(?P<INT>-?\d+)
          |(?P<STRING>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
          |(?P<punct>->|>=|[:,(){}*=])
          |(?P<END>$))""",
    re.VERBOSE,
)


class _Tokens:
    """A reader of one specification.  Raises InvalidArgumentError at the first token that does not fit."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def _match(self) -> re.Match[str]:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            raise self.error("a name, number, string or one of : , ( ) { } * = >= ->")
        return match

    def error(self, expected: str) -> errors.InvalidArgumentError:
        rest = self.text[self.position :].strip()
        return errors.InvalidArgumentError(
            f'Trouble parsing "{self.text}": expected {expected}, got {repr(rest) if rest else "its end"}'
        )

    def take(self, kind: str, expected: str = "") -> str:
        """The next token, which must be of `kind`: WORD, INT, STRING, END, or a punctuation itself."""
        match = self._match()
        token = match[match.lastgroup or "END"]
        if (match.lastgroup if kind.isupper() else token) != kind:
            raise self.error(expected or f"'{kind}'")
        self.position = match.end()
        return token

    def accept(self, kind: str) -> str | None:
        """The next token if it is of `kind`; otherwise None, and nothing is taken."""
        match = self._match()
        token = match[match.lastgroup or "END"]
        if (match.lastgroup if kind.isupper() else token) != kind:
            return None
        self.position = match.end()
        return token

    def rest(self) -> str:
        """The rest of the text."""
        text = self.text[self.position :].strip()
        self.position = len(self.text)
        return text


def parse_signature(text: str) -> tuple[str, list[str], list[str]]:
    """Split `Name(a: T, b: N * T) -> c: T` into the name and the argument specifications.

    Outputs may be in parentheses; an op without outputs has no arrow.

    Raises:
        InvalidArgumentError: the text does not follow that form.
    """
    name, paren, rest = text.partition("(")
    if not paren or not _OP_NAME.fullmatch(name.strip()):
        raise errors.InvalidArgumentError(f"expected an op signature like 'Name(x: T) -> y: T', got '{text}'")
    tokens = _Tokens(rest)
    inputs = [] if tokens.accept(")") else _arg_list(tokens, ")")
    outputs: list[str] = []
    if tokens.accept("->"):
        outputs = _arg_list(tokens, ")") if tokens.accept("(") else _arg_list(tokens, "END")
    tokens.take("END", "the end")
    return name.strip(), inputs, outputs


def _arg_list(tokens: _Tokens, close: str) -> list[str]:
    args = []
    while True:
        name = tokens.take("WORD", "the name of an argument")
        tokens.take(":")
        start = tokens.position
        while tokens.accept("WORD") or tokens.accept("*"):
            if tokens.accept("("):  # of Ref(...)
                while tokens.accept("WORD") or tokens.accept("*"):
                    pass
                tokens.take(")")
        args.append(f"{name}:{tokens.text[start : tokens.position]}")
        if tokens.accept(close) is not None:
            return args
        tokens.take(",", f"',' or '{close}'")


def _parse_attr(spec: str) -> AttrDef:
    tokens = _Tokens(spec)
    name = tokens.take("WORD", "the name of an attr")
    if not _ATTR_NAME.fullmatch(name):
        raise errors.InvalidArgumentError(f"'{name}' is no name for an attr: expected a letter, letters, digits, _")
    tokens.take(":")
    attr_type, allowed = _parse_attr_type(tokens)
    minimum = None
    if tokens.accept(">="):
        minimum = int(tokens.take("INT", "an integer as minimum"))
        if attr_type != "int" and not attr_type.startswith("list("):
            raise errors.InvalidArgumentError(f"attr '{name}' of type {attr_type} cannot have a minimum")
    default: Any = NO_DEFAULT
    if tokens.accept("="):
        default = attr_value.parse(tokens.rest(), attr_type)
    tokens.take("END", "'>=', '=' or the end")
    return AttrDef(name, attr_type, default, allowed, minimum)


def _parse_attr_type(tokens: _Tokens) -> tuple[str, tuple[Any, ...] | None]:
    if tokens.accept("list"):
        tokens.take("(")
        base, allowed = _parse_base_type(tokens)
        tokens.take(")")
        return f"list({base})", allowed
    return _parse_base_type(tokens)


def _parse_base_type(tokens: _Tokens) -> tuple[str, tuple[Any, ...] | None]:
    if not tokens.accept("{"):
        before = tokens.position
        word = tokens.take("WORD", "the type of an attr")
        if word in _COMPOUND_TYPES:
            return "type", _COMPOUND_TYPES[word]
        if word in _BASE_TYPES:
            return word, None
        tokens.position = before
        raise tokens.error("the type of an attr")
    strings: list[bytes] = []
    types: list[DType] = []
    while not tokens.accept("}"):
        if quoted := tokens.accept("STRING"):
            strings.append(attr_value.c_unescape(quoted[1:-1]))
        else:
            word = tokens.take("WORD", "a type or string")
            named = attr_value.type_named(word)
            if named is None and word not in _COMPOUND_TYPES:
                raise errors.InvalidArgumentError(f"'{word}' is not a data type")
            types += [named] if named else _COMPOUND_TYPES[word]
        if not tokens.accept(","):
            tokens.take("}", "',' or '}'")
            break
    if bool(strings) == bool(types):
        raise tokens.error("either types or strings between { and }")
    return ("string", tuple(strings)) if strings else ("type", tuple(types))


class _Arg:
    """An argument specification before its names are looked up."""

    def __init__(self, spec: str) -> None:
        tokens = _Tokens(spec)
        self.name = tokens.take("WORD", "the name of an argument")
        if not _ARG_NAME.fullmatch(self.name):
            raise errors.InvalidArgumentError(
                f"'{self.name}' is no name for an argument: expected a small letter, small letters, digits, _"
            )
        tokens.take(":")
        self.is_ref = bool(tokens.accept("Ref"))
        if self.is_ref:
            tokens.take("(")
        self.number = ""
        self.type = tokens.take("WORD", "a type or the name of an attr")
        if tokens.accept("*"):
            self.number = self.type
            self.type = tokens.take("WORD", "a type or the name of an attr")
        if self.is_ref:
            tokens.take(")")
        tokens.take("END", "the end")

    def resolve(self, attrs: dict[str, AttrDef]) -> ArgDef:
        """Look up the names.  Attrs used as a length or as a list of types get a minimum of 1 if they have none."""
        if self.number:
            _use(attrs, self.number, "int", self.name)
        attr = attrs.get(self.type)
        if attr is None:
            dtype = attr_value.type_named(self.type)
            if dtype is None:
                raise errors.InvalidArgumentError(
                    f"argument '{self.name}': '{self.type}' is neither a data type nor an attr"
                )
            return ArgDef(self.name, type=dtype, number_attr=self.number, is_ref=self.is_ref)
        if attr.type == "list(type)":
            if self.number:
                raise errors.InvalidArgumentError(
                    f"argument '{self.name}' cannot have both a length, '{self.number}', and a list of types"
                )
            _use(attrs, self.type, "list(type)", self.name)
            return ArgDef(self.name, type_list_attr=self.type, is_ref=self.is_ref)
        _use(attrs, self.type, "type", self.name)
        return ArgDef(self.name, type_attr=self.type, number_attr=self.number, is_ref=self.is_ref)


def _use(attrs: dict[str, AttrDef], name: str, wanted: str, arg: str) -> None:
    attr = attrs.get(name)
    if attr is None or attr.type != wanted:
        found = f"of type {attr.type}" if attr else "not declared"
        raise errors.InvalidArgumentError(f"argument '{arg}': expected attr '{name}' of type {wanted}, it is {found}")
    if attr.minimum is None and wanted != "type":
        attrs[name] = AttrDef(attr.name, attr.type, attr.default, attr.allowed, 1)


class OpDefBuilder:
    """Collects the parts of an op's definition; nothing is parsed before `finalize`.

    Args:
        name: the op type, CamelCase.

    Example:
        >>> op = OpDefBuilder("AddTwo").attr("T: {float, int32}").input("x: T").input("y: T").output("z: T")
        >>> str(op.finalize())
        'Op<name=AddTwo; signature=x:T, y:T -> z:T; attr=T:type,allowed=[DT_FLOAT, DT_INT32]>'
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.shape_fn: ShapeFn | None = None
        self._attrs: list[str] = []
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._control_outputs: list[str] = []
        self._flags: dict[str, Any] = {}
        self._errors: list[str] = []

    def attr(self, spec: str) -> OpDefBuilder:
        """Declare an attr, e.g. `N: int >= 2`, `padding: {'SAME', 'VALID'} = 'SAME'`."""
        self._attrs.append(spec)
        return self

    def input(self, spec: str) -> OpDefBuilder:
        """Declare the next input, e.g. `x: T`, `values: N * T`, `ref: Ref(float)`."""
        self._inputs.append(spec)
        return self

    def output(self, spec: str) -> OpDefBuilder:
        """Declare the next output."""
        self._outputs.append(spec)
        return self

    def control_output(self, name: str) -> OpDefBuilder:
        """Declare a named control output."""
        self._control_outputs.append(name)
        return self

    def set_is_commutative(self) -> OpDefBuilder:
        """Declare that the op's two inputs may be swapped."""
        self._flags["is_commutative"] = True
        return self

    def set_is_aggregate(self) -> OpDefBuilder:
        """Declare that the op sums any number of inputs of one type."""
        self._flags["is_aggregate"] = True
        return self

    def set_is_stateful(self) -> OpDefBuilder:
        """Declare that running a node has effects, see `OpDef`.  An input or output of type resource implies this."""
        self._flags["is_stateful"] = True
        return self

    def set_allows_uninitialized_input(self) -> OpDefBuilder:
        """Declare that an input may be a variable without a value."""
        self._flags["allows_uninitialized_input"] = True
        return self

    def set_is_distributed_communication(self) -> OpDefBuilder:
        """Declare that the op waits for the same op in other tasks."""
        self._flags["is_distributed_communication"] = True
        return self

    def deprecated(self, version: int, explanation: str) -> OpDefBuilder:
        """Declare that the op does not exist from GraphDef producer `version` on; `explanation` says what to use
        instead.
        """
        if "deprecation" in self._flags:
            self._errors.append("deprecated called twice")
        self._flags["deprecation"] = Deprecation(version, explanation)
        return self

    def set_shape_fn(self, shape_fn: ShapeFn) -> OpDefBuilder:
        """Set the function that computes the shapes of a node's outputs from those of its inputs."""
        if self.shape_fn is not None:
            self._errors.append("set_shape_fn called twice")
        self.shape_fn = shape_fn
        return self

    def doc(self, text: str) -> OpDefBuilder:
        """Text for people: the first line is the summary."""
        summary, _, description = text.strip().partition("\n")
        self._flags["summary"] = summary.strip()
        self._flags["description"] = description.strip()
        return self

    def finalize(self) -> OpDef:
        """Parse and check everything.

        Raises:
            InvalidArgumentError: naming the op and every error found.
        """
        problems = list(self._errors)
        if not _OP_NAME.fullmatch(self.name):
            problems.append(f"'{self.name}' is no name for an op: expected CamelCase")

        @contextmanager
        def collecting() -> Iterator[None]:
            try:
                yield
            except errors.InvalidArgumentError as e:
                problems.append(e.message)

        attrs: dict[str, AttrDef] = {}
        for spec in self._attrs:
            with collecting():
                self._add_attr(attrs, _parse_attr(spec))
        taken = dict.fromkeys(attrs, "attr")
        args: dict[str, list[ArgDef]] = {"input": [], "output": []}
        for kind, specs in (("input", self._inputs), ("output", self._outputs)):
            for spec in specs:
                with collecting():
                    arg = _Arg(spec).resolve(attrs)
                    if arg.name in taken:
                        raise errors.InvalidArgumentError(
                            f"duplicate name '{arg.name}' for {kind}: it is an {taken[arg.name]} already"
                        )
                    taken[arg.name] = kind
                    args[kind].append(arg)
        for attr in attrs.values():
            with collecting():
                if attr.has_default:
                    attr.check(attr.default)
        if len(set(self._control_outputs)) < len(self._control_outputs):
            problems.append("duplicate name of a control output")
        if problems:
            raise errors.InvalidArgumentError(f"Op {self.name}: " + "\n".join(problems))
        flags = dict(self._flags)
        if any(arg.type is dtypes.resource for arg in (*args["input"], *args["output"])):
            flags["is_stateful"] = True
        return OpDef(
            self.name,
            tuple(args["input"]),
            tuple(args["output"]),
            tuple(attrs.values()),
            tuple(self._control_outputs),
            **flags,
        )

    @staticmethod
    def _add_attr(attrs: dict[str, AttrDef], attr: AttrDef) -> None:
        if attr.name in attrs:
            raise errors.InvalidArgumentError(f"duplicate name '{attr.name}' for attr")
        if attr_value.type_named(attr.name):
            raise errors.InvalidArgumentError(f"attr '{attr.name}' cannot have the name of a data type")
        attrs[attr.name] = attr
