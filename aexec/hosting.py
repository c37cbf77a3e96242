"""What a program that runs other people's graphs needs, besides `aexec.Session`.

Servers use the names of `aexec`, `aexec.errors`, `aexec.proto`, `aexec.saved_model` and this
module, and nothing below them.  `aexec_server` is one, and a test holds it to that.

* `ClusterSecurity`: the certificates with which a cluster is connected to; `check_cluster` checks them, and
  `session_on_cluster` makes a session there.
* `BatchedCallable`: joins concurrent calls; `can_be_batched` says whether a shape allows it.
* `CallableCache`: a bounded cache of callables by request.
* `each_queue`: the queues of a session one at a time, for sessions of others, which may have very many.
* `FeedSpec`: checks a value as feeds are checked, for decoders of bodies.
* `graph_pieces`: a graph as bytes, JSON or text (`GraphForm`), in pieces; `tensor_to_parts`: a TensorProto in parts.
* `dtypes`, `DType`: the types of tensors; `datatype_of`, `has_datatype`, `DATATYPES`: their names in the Open Inference
  Protocol; `tensor_from_proto`, `tensor_to_proto`: TensorProto; `tensor_from_content`: a tensor's bytes alone.
* `forget_frames`: frees what an error keeps that a context manager has caught.
* `finite_float`: parses JSON's text of a number; refuses a number that is too large.
* `find_op_def`: the definition of an op; `is_built_in`: whether it is one of aexec's own.
* `NameAttrList`: the value of an attr that names a function.
* `Signature`, `TensorInfo`, `MetaGraph`: the names by which a model is used, and a graph with such signatures.
* `SliceClock`, `LoopTurns`: turns on the event loop, for work that takes long there.
* `StepState`: the states of a step.
* `collector_paused`: for work that makes many objects that stay, as decoding a large graph does; `freeze_heap`,
  `keep_large`, `drop_large`, `collect_garbage`, `collecting_when_asked`, `collect_if_due`: for a process whose
  memory is mostly graphs.
* `loop_budget`: what may be done on the event loop, and what work costs; `check_inline` raises `NeedsThreadError`
  there for longer work (`on_event_loop`).  `run_in_thread` does it in a thread, and `OnCancel` says what happens if
  that is cancelled.
  `run_in_turns` imports large graphs in threads, each in its turn, and stops when it is cancelled; it takes a
  `LongWork`, in which `go_on` is called between two pieces.  `work_owner` says in a context whose work it is: owners
  have their turns one after another.
* `record_network_buffer`, `record_network_buffer_freed`: for the memory log, of bodies that came from clients.
* `describe_node`, `describe_function`: nodes as plain data, for drawing; `viewer_files`: what draws them.
* `dispose`: takes the graph of a closed session apart, if it is the server's own; `leave_undisposed` stops that.
* `load_kernels`: imports all ops and kernels and nearly all they need, for a process from which others are forked.
* `PartialRun`: a step in parts, as `Session.partial_run_setup` returns it.
* `Queue`: a queue of a session, as `Session.queue` returns it; `QueueStatistics`: what it holds; `queue_class`: the
  class of the queues that an op makes.
* `SessionRecorder`, as `recorder_of` makes it, and `SessionChanges`: what has changed in a session's state since it was
  written last, as `ResourceRecord`s; `restore_session` puts recorded state into a new session.
* `return_freed_memory`: after large objects were dropped, returns the memory that the C library keeps to the system.
* `MemoryAccount`: a memory limit of several sessions together, for `SessionConfig.memory_account`; `total_memory`: the
  machine's memory.
* `is_loopback`: whether an address can be reached from this machine only.
* `named_tensors_apart`: takes the bytes of large tensors out of a message, before that is parsed.
* `near_names`, `listed`: the part of an error about an unknown name that lists known ones.
* `num_leaves`: the number of values in nested lists.
* `num_processors`: the number of processors that this process may run on.
* `op_of`, `self_nanos`: of a node's record in StepStats.
* `parse_duration`: seconds, from times such as `500ms`.
* `set_printer`: sets where graphs print to.
* `status_details`, `read_status`: an error as gRPC's metadata `STATUS_DETAILS` tells it; `cut_text` cuts a text to a
  number of bytes.
* `unflatten_node`: a node of a FlatGraphDef, whose attrs are not decoded, as a NodeDef.
* `unreadable`: the error for bytes that are not a message of a kind.
* `wire_format`: protobuf's, for measuring messages before they are parsed, and for parsing large ones in pieces.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aexec.distributed.cluster_security import ClusterSecurity
from aexec.distributed.cluster_target import check_cluster
from aexec.framework import dtypes
from aexec.framework.datatypes import DATATYPES, datatype_of, has_datatype
from aexec.framework.dtypes import DType
from aexec.framework.duration import parse_duration
from aexec.framework.finite_float import finite_float
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.loopback import is_loopback
from aexec.framework.memory.garbage_collector import (
    collect_garbage,
    collect_if_due,
    collecting_when_asked,
    collector_paused,
    drop_large,
    freeze_heap,
    keep_large,
)
from aexec.framework.memory.log_memory import record_network_buffer, record_network_buffer_freed
from aexec.framework.memory.memory import return_freed_memory, total_memory
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.near_names import listed, near_names
from aexec.framework.op_contract import op_registry
from aexec.framework.printed import set_printer
from aexec.framework.waiting import loop_budget
from aexec.framework.waiting.inline_call import NeedsThreadError, check_inline, on_event_loop
from aexec.framework.waiting.long_work import LongWork, go_on, work_owner
from aexec.framework.waiting.processors import num_processors
from aexec.framework.waiting.thrown_errors import forget_frames
from aexec.framework.wire import node_def, wire_format
from aexec.framework.wire.attr_value import NameAttrList
from aexec.framework.wire.messages import unreadable
from aexec.framework.wire.op_def import OpDef
from aexec.framework.wire.status_details import STATUS_DETAILS, cut_text, read_status, status_details
from aexec.framework.wire.tensor_codec import decode_ns as tensor_decode_ns
from aexec.framework.wire.tensor_codec import from_content as tensor_from_content
from aexec.framework.wire.tensor_codec import from_proto as tensor_from_proto
from aexec.framework.wire.tensor_codec import to_field_parts as tensor_to_field_parts
from aexec.framework.wire.tensor_codec import to_parts as tensor_to_parts
from aexec.framework.wire.tensor_codec import to_proto as tensor_to_proto
from aexec.framework.wire.tensors_apart import named_tensors_apart
from aexec.graph.forms.graph_page import viewer_files
from aexec.graph.forms.graph_pieces import GraphForm, graph_pieces
from aexec.graph.forms.node_descriptions import describe_function, describe_node
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node_wire import unflatten_node
from aexec.graph.signature import Signature, TensorInfo
from aexec.queues.kinds import queue_class
from aexec.queues.queue_base import QueueStatistics
from aexec.queues.session_queue import Queue
from aexec.resources.records import session_recorder
from aexec.resources.records.resource_record import ResourceRecord
from aexec.resources.records.session_recorder import SessionChanges, SessionRecorder
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.feeding.nested_lists import num_leaves
from aexec.runtime.plans.inferred_shapes import is_built_in
from aexec.runtime.profiling.step_stats import op_of, self_nanos
from aexec.runtime.session.batched_callable import BatchedCallable, BatchedStep, BatchTurn, can_be_batched
from aexec.runtime.session.callable import canonical_name
from aexec.runtime.session.callable_cache import CallableCache
from aexec.runtime.session.partial_run import PartialRun
from aexec.runtime.session.step_view import StepState
from aexec.runtime.threads.disposal import dispose, leave_undisposed
from aexec.runtime.threads.slices import LoopTurns, SliceClock
from aexec.runtime.threads.worker_pool import OnCancel, end_idle_threads, run_in_thread, run_in_turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aexec.queues.queue_base import QueueBase
    from aexec.runtime.session.session import Session

__all__ = [
    "DATATYPES",
    "STATUS_DETAILS",
    "BatchTurn",
    "BatchedCallable",
    "BatchedStep",
    "CallableCache",
    "ClusterSecurity",
    "DType",
    "FeedSpec",
    "GraphForm",
    "LongWork",
    "LoopTurns",
    "MemoryAccount",
    "MetaGraph",
    "NameAttrList",
    "NeedsThreadError",
    "OnCancel",
    "PartialRun",
    "Queue",
    "QueueStatistics",
    "ResourceRecord",
    "SessionChanges",
    "SessionRecorder",
    "Signature",
    "SliceClock",
    "StepState",
    "TensorInfo",
    "can_be_batched",
    "canonical_name",
    "check_cluster",
    "check_inline",
    "collect_garbage",
    "collect_if_due",
    "collecting_when_asked",
    "collector_paused",
    "cut_text",
    "datatype_of",
    "describe_function",
    "describe_node",
    "dispose",
    "drop_large",
    "dtypes",
    "each_queue",
    "end_idle_threads",
    "find_op_def",
    "finite_float",
    "forget_frames",
    "freeze_heap",
    "go_on",
    "graph_pieces",
    "has_datatype",
    "is_built_in",
    "is_loopback",
    "keep_large",
    "leave_undisposed",
    "listed",
    "load_kernels",
    "loop_budget",
    "named_tensors_apart",
    "near_names",
    "num_leaves",
    "num_processors",
    "on_event_loop",
    "op_of",
    "parse_duration",
    "queue_class",
    "read_status",
    "record_network_buffer",
    "record_network_buffer_freed",
    "recorder_of",
    "restore_session",
    "return_freed_memory",
    "run_in_thread",
    "run_in_turns",
    "self_nanos",
    "session_on_cluster",
    "set_printer",
    "status_details",
    "tensor_decode_ns",
    "tensor_from_content",
    "tensor_from_proto",
    "tensor_to_field_parts",
    "tensor_to_parts",
    "tensor_to_proto",
    "total_memory",
    "unflatten_node",
    "unreadable",
    "viewer_files",
    "wire_format",
    "work_owner",
]


def find_op_def(op: str) -> OpDef | None:
    """The definition of an op, if one of that name is registered."""
    found = op_registry.global_registry.find(op)
    return None if found is None else found.op_def


def each_queue(session: Session) -> Iterator[tuple[str, QueueBase]]:
    """The existing queues of a session by name, one at a time, by container and in the order in which they were made.

    They may be taken on any thread, while queues come and go.  There are none for a session on a cluster, whose queues
    are in other processes.
    """
    return session._each_queue()


def recorder_of(session: Session) -> SessionRecorder:
    """Tells what has changed in a session's state since it was written last; at first everything has."""
    return SessionRecorder(session.resources, session.tensors.state, lambda look: asyncio.to_thread(look))


def restore_session(
    session: Session, records: Iterable[ResourceRecord], kept: Mapping[str, Any], next_tensor: int
) -> None:
    """Put recorded state into a session that has run nothing yet, in any thread.

    Args:
        records, kept, next_tensor: as in `SessionChanges`, of all that there is.

    Raises:
        OpError, KeyError: the records do not fit; the session has to be closed.
    """
    session_recorder.restore_state(session.resources, session.tensors.state, records, kept, next_tensor)


# To import these takes a third of the time of all, and few graphs have an op that needs them: SobolSample.
_RARELY_NEEDED = {"scipy.stats"}


def load_kernels() -> None:
    """Import all ops and kernels and nearly all that they need, and make all definitions that are otherwise made at an
    op's first use.

    Reads files, and takes a second or two.
    """
    op_registry.global_registry.load()
    for op in op_registry.global_registry.ops():
        node_def.attr_readers(op_registry.global_registry.lookup(op).op_def)
    kernel_registry.global_registry.load(without=_RARELY_NEEDED)


def session_on_cluster(source: Any, target: str, config: Any, security: ClusterSecurity) -> Session:
    """A session as `aexec.Session` makes it of a cluster's target, to be entered or awaited."""
    # Imported only by programs that have a cluster.
    from aexec.distributed.opening_cluster_session import OpeningClusterSession

    return OpeningClusterSession(source, target, config, security)
