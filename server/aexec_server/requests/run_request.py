"""Reads a run's request from JSON: the V2 tensor list for programs, or an object for people.

    {"feeds": [{"name": "x:0", "shape": [2], "datatype": "FP32", "data": [1, 2]}], "fetches": ["y:0"]}
    {"feeds": {"x:0": [1, 2]}, "fetches": ["y:0"]}

Or, in either form, by the names of a signature: `{"signature": "serving_default", "inputs": {"x": [1, 2]}}`.

Both, and the protobuf message, are read into a `RunRequest`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import aexec
from aexec import errors, proto
from aexec.hosting import DType, loop_budget
from aexec_server.http import bodies
from aexec_server.http.json_style import JsonStyle
from aexec_server.requests import tensors
from aexec_server.requests.run_table import check_run_id

__all__ = [
    "DEFAULT_PRIORITY",
    "MAX_NAMES",
    "PARAMETERS",
    "RunRequest",
    "binary_rest",
    "parse_header_length",
    "read_json",
    "read_names",
    "read_ns",
    "read_parameters",
    "read_tensor_list",
    "read_timeout",
    "read_wanted",
]

_FIELDS = frozenset({"run_id", "feeds", "fetches", "targets", "options", "parameters"})
_GRAPH_FIELDS = frozenset({"feeds", "fetches", "targets"})
_SIGNATURE_FIELDS = frozenset({"signature", "inputs", "outputs"})
_ALL_FIELDS = _FIELDS | _SIGNATURE_FIELDS
_OPTIONS = frozenset({"timeout_in_ms"})
# Options of ours that a RunOptions message does not have.
_OUR_OPTIONS = frozenset({"priority", "prints"})
PARAMETERS = frozenset({"binary_data_output", "timeout", "priority"})
_FEED_FIELDS = frozenset({"name", "shape", "datatype", "data", "parameters"})
_FETCH_FIELDS = frozenset({"name", "parameters"})
_FEED_PARAMETERS = frozenset({"binary_data_size"})
_FETCH_PARAMETERS = frozenset({"binary_data"})
_MAX_TIMEOUT_MS = 2**53
MAX_NAMES = 4096
# Priority of runs that ask for none.
DEFAULT_PRIORITY = 100
_MAX_PRIORITY = 1000


@dataclass(slots=True)
class RunRequest:
    """What a client asks of one run.

    Attributes:
        run_id: chosen by the client, or None.
        by_signature: names are those of a signature.
        signature: name of the signature; None for the default one.
        feeds: tensor or input name → array, or the JSON value if `untyped`.
        untyped: feeds are nested lists, whose types the graph determines.
        fetches: tensor or output names, in order, repetitions included; None for all outputs of the signature.
        targets: names of operations.
        timeout: seconds, or None.
        priority: its place among waiting runs, from 1; lower ones go first.
        trace, partition_graphs: what the metadata are to hold.
        report_memory: let the error of a run that is out of memory list the nodes that have most.
        prints: put what the run prints into the metadata.
        as_list: answer with the V2 tensor list.
        as_message: answer with a protobuf message, which has a form for every type.
        binary: for each fetch of the list, whether it is sent as bytes.
        binary_by_default: value of `binary` for fetches that do not say, and for those that are not named.
        style: how numbers are written in the answer's JSON.
    """

    run_id: str | None = None
    by_signature: bool = False
    signature: str | None = None
    feeds: dict[str, Any] = field(default_factory=dict)
    untyped: bool = False
    fetches: tuple[str, ...] | None = ()
    targets: tuple[str, ...] = ()
    timeout: float | None = None
    priority: int = DEFAULT_PRIORITY
    trace: bool = False
    partition_graphs: bool = False
    report_memory: bool = False
    prints: bool = False
    as_list: bool = False
    as_message: bool = False
    binary: list[bool] = field(default_factory=list)
    binary_by_default: bool = False
    style: JsonStyle | None = None

    @property
    def rows(self) -> int:
        """First size of the first tensor that is fed; 1 if there is none."""
        value = next(iter(self.feeds.values()), None)
        return len(value) if getattr(value, "ndim", 0) or type(value) is list else 1  # type: ignore[arg-type]

    @property
    def as_text(self) -> bool:
        """True if the answer is text without binary tensors."""
        return not (self.as_message or any(self.binary))

    def name_outputs(self, names: Sequence[str]) -> None:
        """Set the fetches to all outputs, which have these names."""
        self.fetches = tuple(names)
        self.binary = [self.binary_by_default] * len(self.fetches)

    def with_feeds(self, feeds: dict[str, Any]) -> RunRequest:
        """Return a copy of this request with other feeds."""
        return RunRequest(
            self.run_id,
            self.by_signature,
            self.signature,
            feeds,
            self.untyped,
            self.fetches,
            self.targets,
            self.timeout,
            self.priority,
            self.trace,
            self.partition_graphs,
            self.report_memory,
            self.prints,
            self.as_list,
            self.as_message,
            self.binary,
            self.binary_by_default,
            self.style,
        )

    def values(self, names: Sequence[str], dtypes: Sequence[DType]) -> list[Any]:
        """Return the fed values in the order of `names`. This is the only place where values by name become values by
        position.

        Args:
            names: names of all feeds, as the request calls them, in the order that a callable takes.
            dtypes: their types.

        Raises:
            InvalidArgumentError: a value is not of its type, or JSON has no form for the type.
            NeedsThreadError: it would take too long on the event loop, where it was called.
        """
        feeds = self.feeds
        if not self.untyped:
            return [feeds[name] for name in names]
        return [tensors.from_people(name, dtype, feeds[name]) for name, dtype in zip(names, dtypes, strict=True)]

    def set_options(self, options: proto.RunOptions) -> None:
        """Apply a RunOptions message.

        Raises:
            InvalidArgumentError: the timeout is negative.
            UnimplementedError: an option is set that would be ignored though the run depends on it.
        """
        self.timeout = read_timeout(options.timeout_in_ms, '"timeout_in_ms"', 1e3)
        if options.experimental.HasField("run_handler_pool_options"):
            # In RunOptions higher priorities go first, and 0 is the default.
            above = options.experimental.run_handler_pool_options.priority
            self.priority = min(max(1, DEFAULT_PRIORITY - above), _MAX_PRIORITY)
            options.experimental.ClearField("run_handler_pool_options")
        checked = aexec.RunOptions.from_proto(options)
        self.trace = checked.trace
        self.partition_graphs = checked.output_partition_graphs
        self.report_memory = checked.report_tensor_allocations_upon_oom


def read_timeout(value: Any, what: str, per_second: float) -> float | None:
    """Return a timeout in seconds; None for 0, which means no timeout.  Raises InvalidArgumentError."""
    if type(value) is not int or not 0 <= value <= _MAX_TIMEOUT_MS:
        raise errors.InvalidArgumentError(f"{what} must be a whole number and not negative, got {str(value)[:40]}")
    return value / per_second if value else None


def parse_header_length(text: str | None, body: bodies.Body) -> int | None:
    """Return the length of the body's JSON by the header Inference-Header-Content-Length; None if the header is absent.

    Raises:
        InvalidArgumentError: it is not a number, is 0, or is more than the body's length.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= len(body)):
        raise errors.InvalidArgumentError(
            f"Inference-Header-Content-Length must be a number of bytes, at most the body's {len(body)}, "
            f"got {text[:40]!r}"
        )
    if int(text) == 0:
        raise errors.InvalidArgumentError(
            "Inference-Header-Content-Length 0 means a body without JSON, but a run must say what to feed and fetch"
        )
    return int(text)


def read_ns(body: bodies.Body, header_length: int | None) -> float:
    """Return the estimated nanoseconds to decode a run."""
    length = len(body) if header_length is None else header_length
    return length * loop_budget.JSON_READ_NS + (len(body) - length) * loop_budget.WIRE_NS


def read_json(body: bodies.Body, header_length: int | None) -> RunRequest:
    """Decode a run.

    Args:
        body: JSON, followed by the tensors of the binary extension if there is a `header_length`.

    Raises:
        InvalidArgumentError: the body is not a valid request; the message says what is wrong.
    """
    fields = bodies.json_object(body if header_length is None else body[:header_length])
    request = RunRequest()
    if not _FIELDS.issuperset(fields):
        _read_signature(request, fields)
    if "run_id" in fields and fields["run_id"] is not None:
        request.run_id = check_run_id(fields["run_id"])
    if "parameters" in fields:
        read_parameters(request, fields["parameters"])
    given, wanted = ("inputs", "outputs") if request.by_signature else ("feeds", "fetches")
    if request.by_signature and wanted not in fields:
        request.fetches = None
    else:
        read_wanted(request, fields.get(wanted, ()), f'"{wanted}"')
    if "targets" in fields:
        request.targets = read_names(fields["targets"], '"targets"')
    feeds = fields.get(given)
    if type(feeds) is list or header_length is not None:
        request.as_list = True
        read_tensor_list(request, [] if feeds is None else feeds, binary_rest(body, header_length), f'"{given}"')
    elif type(feeds) is dict:
        request.feeds = feeds
        request.untyped = True
    elif feeds is not None:
        raise bodies.expected(f'"{given}" must be an object (tensor name to value) or a list of tensors', feeds)
    _check_count(request.feeds, f'"{given}"')
    if "options" in fields:
        _read_options(request, fields["options"])
    return request


def binary_rest(body: bodies.Body, header_length: int | None) -> memoryview:
    """Return the bytes after the JSON of a body."""
    return memoryview(b"") if header_length is None else memoryview(body)[header_length:]


def _read_signature(request: RunRequest, fields: dict[str, Any]) -> None:
    """Read the members of a request by signature.  Raises InvalidArgumentError."""
    bodies.check_fields(fields, _ALL_FIELDS, "the request")
    both = sorted(_GRAPH_FIELDS.intersection(fields))
    if both:
        theirs = ", ".join(f'"{name}"' for name in sorted(_SIGNATURE_FIELDS.intersection(fields)))
        raise errors.InvalidArgumentError(f'{theirs}: a run by signature has no "{both[0]}"')
    name = fields.get("signature")
    if name is not None and type(name) is not str:
        raise bodies.expected('"signature" must be a name', name)
    request.by_signature = True
    request.signature = name


def read_names(value: Any, what: str) -> tuple[str, ...]:
    """Return a JSON list of names as a tuple.  Raises InvalidArgumentError for anything else."""
    if type(value) is not list or not all(type(name) is str for name in value):
        raise bodies.expected(f"{what} must be a list of names", value)
    _check_count(value, what)
    return tuple(value)


def _check_count(names: Collection[Any], what: str) -> None:
    if len(names) > MAX_NAMES:
        raise errors.InvalidArgumentError(f"{what} may have at most {MAX_NAMES} names, got {len(names)}")


def read_wanted(request: RunRequest, value: Any, what: str) -> None:
    """Read which fetches are wanted: names, or objects that also say whether the tensor is sent as bytes."""
    if type(value) is str:
        value = [value]
    elif type(value) is not list and value != ():
        raise bodies.expected(f"{what} must be a list of tensor names", value)
    _check_count(value, what)
    names: list[str] = []
    for fetch in value:
        binary = request.binary_by_default
        if type(fetch) is dict:
            request.as_list = True
            bodies.check_fields(fetch, _FETCH_FIELDS, "a fetch")
            wish = _object(fetch.get("parameters"), "parameters of a fetch", _FETCH_PARAMETERS).get("binary_data")
            if wish is not None:
                binary = _boolean(wish, '"binary_data"')
            fetch = fetch.get("name")
        if type(fetch) is not str:
            raise bodies.expected('A fetch must be a tensor name, or {"name": …}', fetch)
        names.append(fetch)
        request.binary.append(binary)
    request.fetches = tuple(names)


def _object(value: Any, what: str, allowed: frozenset[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if type(value) is not dict:
        raise bodies.expected(f"The {what} must be an object", value)
    bodies.check_fields(value, allowed, f"the {what}")
    return value


def _boolean(value: Any, what: str) -> bool:
    if type(value) is not bool:
        raise bodies.expected(f"{what} must be true or false", value)
    return value


def read_parameters(request: RunRequest, value: Any) -> None:
    """Read the V2 parameters of a request."""
    parameters = _object(value, "parameters of the request", PARAMETERS)
    request.as_list = True
    if "timeout" in parameters:
        request.timeout = read_timeout(parameters["timeout"], '"timeout" (microseconds)', 1e6)
    request.priority = _priority(parameters.get("priority", 0))
    request.binary_by_default = _boolean(parameters.get("binary_data_output", False), '"binary_data_output"')


def _priority(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_PRIORITY:
        raise bodies.expected(f'"priority" must be a whole number up to {_MAX_PRIORITY}, 0 for the default', value)
    return value or DEFAULT_PRIORITY


def _read_options(request: RunRequest, value: Any) -> None:
    if type(value) is not dict:
        raise bodies.expected('"options" must be an object', value)
    timeout = request.timeout
    if _OPTIONS.issuperset(value):  # the common case needs no message
        if value:
            request.timeout = read_timeout(value["timeout_in_ms"], '"timeout_in_ms"', 1e3)
    else:
        if "priority" in value:
            request.priority = _priority(value["priority"])
        if "prints" in value:
            request.prints = _boolean(value["prints"], '"prints"')
        others = {key: item for key, item in value.items() if key not in _OUR_OPTIONS}
        request.set_options(bodies.parse_dict(proto.RunOptions, others, '"options"'))
    if timeout is not None:
        request.timeout = timeout if request.timeout is None else min(timeout, request.timeout)


def read_tensor_list(request: RunRequest, feeds: Any, raw: memoryview, what: str) -> None:
    """Read the V2 tensors of a request; the binary ones follow each other in `raw`, in the order of the list.

    Raises:
        InvalidArgumentError: the list or a tensor is not valid.
    """
    if type(feeds) is not list:
        raise bodies.expected(f"{what} must be a list of tensors in a request with binary data", feeds)
    position = 0
    for feed in feeds:
        if type(feed) is not dict:
            raise bodies.expected("A feed must be an object with name, shape, datatype and data", feed)
        bodies.check_fields(feed, _FEED_FIELDS, "a feed")
        name = feed.get("name")
        if type(name) is not str:
            raise bodies.expected('"name" of a feed must be a string', name)
        if name in request.feeds:
            raise errors.InvalidArgumentError(f'Endpoint "{name}" fed more than once.')
        dtype = tensors.dtype_of_datatype(feed.get("datatype"), name)
        parameters = _object(feed.get("parameters"), f"parameters of {name}", _FEED_PARAMETERS)
        if "binary_data_size" not in parameters:
            request.feeds[name] = tensors.from_json(name, dtype, feed.get("shape"), feed.get("data"))
            continue
        size = parameters["binary_data_size"]
        if "data" in feed:
            raise errors.InvalidArgumentError(f'{name} has both "data" and "binary_data_size"')
        if type(size) is not int:
            raise bodies.expected(f'"binary_data_size" of {name} must be a number of bytes', size)
        if not 0 <= size <= len(raw) - position:
            raise errors.InvalidArgumentError(
                f'"binary_data_size" of {name} must be a number of bytes, at most the {len(raw) - position} '
                f"that follow the JSON, got {str(size)[:40]}"
            )
        dims = tensors.read_shape(name, feed.get("shape"))
        request.feeds[name] = tensors.from_binary(name, dtype, dims, raw[position : position + size])
        position += size
    if position != len(raw):
        raise errors.InvalidArgumentError(
            f"{len(raw) - position} bytes of binary data follow the last tensor; the sizes do not add up"
        )
