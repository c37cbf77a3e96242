"""What a program needs that runs other people's graphs, besides `aexec.Session`.

Servers use the names of `aexec`, `aexec.errors`, `aexec.proto`, `aexec.saved_model` and this
module, and nothing below them.  `aexec_server` is one, and a test holds it to that.

* `ClusterSecurity`: by which certificates a cluster is connected to; `check_cluster` says whether one may be, and
  `session_on_cluster` makes a session there.
* `BatchedCallable`: joins calls that come close together; `can_be_batched` says of which shapes.
* `CallableCache`: callables by what clients asked for, within bounds.
* `FeedSpec`: checks a value as feeds are checked, for decoders of bodies.
* `graph_pieces`: a graph as bytes, JSON or text (`GraphForm`), in pieces; `tensor_to_parts`: a TensorProto in parts.
* `dtypes`, `DType`: the types of tensors; `datatype_of`, `has_datatype`, `DATATYPES`: what the Open Inference Protocol
  calls them; `tensor_from_proto`, `tensor_to_proto`: TensorProto.
* `finite_float`: of JSON's text of a number; a number that is too large is refused.
* `find_op_def`: what an op is; `is_built_in`: is it one of aexec's own, and not one that the program registered?
* `NameAttrList`: what an attr of a node that names a function is.
* `Signature`, `TensorInfo`, `MetaGraph`: by which names a model is used, and a graph with such signatures.
* `SliceClock`, `LoopTurns`: turns on the event loop, for who does much there.
* `StepState`: where a step is in its life.
* `collector_paused`: for work that makes many objects that stay, as decoding a large graph does; `freeze_heap`,
  `keep_large`, `drop_large`, `collect_garbage`, `collecting_when_asked`, `collect_if_due`: for a process whose
  graphs are most of what it has.
* `loop_budget`: what may be done on the event loop, and what work costs; `check_inline` raises `NeedsThreadError`
  there for what may not (`on_event_loop`).  `run_in_thread` does it in a thread, and `OnCancel` says what happens if
  that is cancelled.
  `run_in_turns` imports large graphs in threads, each in its turn, and ends with whoever awaits it; it takes a
  `LongWork`, in which `go_on` is called between two pieces.
* `record_network_buffer`, `record_network_buffer_freed`: for the memory log, of bodies that came from clients.
* `dispose`: takes the graph of a closed session apart, if it is the server's own; `leave_undisposed` stops that.
* `load_kernels`: imports all ops and kernels and what they need, for a process from which others are forked.
* `PartialRun`: a step in parts, as `Session.partial_run_setup` gives it.
* `Queue`: a session's, as `Session.queue` gives it; `queue_class`: the class of the queues that an op makes.
* `return_freed_memory`: after large things were let go of, gives the system what the C library keeps.
* `MemoryAccount`: what several sessions may take together, for `SessionConfig.memory_account`; `total_memory`: what the
  machine has.
* `is_loopback`: can this machine alone reach an address?
* `near_names`, `listed`: what an error says of a name that is not there.
* `num_leaves`: how many values nested lists hold.
* `num_processors`: that this process may run on.
* `op_of`, `self_nanos`: of a node's record in StepStats.
* `parse_duration`: seconds, of times as people write them.
* `set_printer`: where graphs print to.
* `summarize`: an attr's value as messages show it.
* `unflatten_node`: a node of a FlatGraphDef, whose attrs are not decoded, as a NodeDef.
* `unreadable`: the error for bytes that are no message of a kind.
* `wire_format`: protobuf's, for measuring messages before they are parsed, and for parsing large ones in pieces.
"""

from __future__ import annotations

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
from aexec.framework.waiting.long_work import LongWork, go_on
from aexec.framework.waiting.processors import num_processors
from aexec.framework.wire import node_def, wire_format
from aexec.framework.wire.attr_value import NameAttrList, summarize
from aexec.framework.wire.messages import unreadable
from aexec.framework.wire.op_def import OpDef
from aexec.framework.wire.tensor_codec import from_proto as tensor_from_proto
from aexec.framework.wire.tensor_codec import to_parts as tensor_to_parts
from aexec.framework.wire.tensor_codec import to_proto as tensor_to_proto
from aexec.graph.forms.graph_pieces import GraphForm, graph_pieces
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node_wire import unflatten_node
from aexec.graph.signature import Signature, TensorInfo
from aexec.queues.kinds import queue_class
from aexec.queues.session_queue import Queue
from aexec.runtime.feeding.feeds import FeedSpec
from aexec.runtime.feeding.nested_lists import num_leaves
from aexec.runtime.plans.inferred_shapes import is_built_in
from aexec.runtime.profiling.step_stats import op_of, self_nanos
from aexec.runtime.session.batched_callable import BatchedCallable, BatchedStep, BatchTurn, can_be_batched
from aexec.runtime.session.callable import canonical_name
from aexec.runtime.session.callable_cache import CallableCache
from aexec.runtime.session.partial_run import PartialRun
from aexec.runtime.session.step import StepState
from aexec.runtime.threads.disposal import dispose, leave_undisposed
from aexec.runtime.threads.slices import LoopTurns, SliceClock
from aexec.runtime.threads.worker_pool import OnCancel, end_idle_threads, run_in_thread, run_in_turns

if TYPE_CHECKING:
    from aexec.runtime.session.session import Session

__all__ = [
    "DATATYPES",
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
    "datatype_of",
    "dispose",
    "drop_large",
    "dtypes",
    "end_idle_threads",
    "find_op_def",
    "finite_float",
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
    "near_names",
    "num_leaves",
    "num_processors",
    "on_event_loop",
    "op_of",
    "parse_duration",
    "queue_class",
    "record_network_buffer",
    "record_network_buffer_freed",
    "return_freed_memory",
    "run_in_thread",
    "run_in_turns",
    "self_nanos",
    "session_on_cluster",
    "set_printer",
    "summarize",
    "tensor_from_proto",
    "tensor_to_parts",
    "tensor_to_proto",
    "total_memory",
    "unflatten_node",
    "unreadable",
    "wire_format",
]


def find_op_def(op: str) -> OpDef | None:
    """The definition of an op, if one of that name is registered."""
    found = op_registry.global_registry.find(op)
    return None if found is None else found.op_def


def load_kernels() -> None:
    """Import all ops and kernels, and what those need, and make all definitions that wait for their op's first use.

    It reads files, and takes a second or two.
    """
    op_registry.global_registry.load()
    for op in op_registry.global_registry.ops():
        node_def.attr_readers(op_registry.global_registry.lookup(op).op_def)
    kernel_registry.global_registry.load()


def session_on_cluster(source: Any, target: str, config: Any, security: ClusterSecurity) -> Session:
    """A session as `aexec.Session` makes it of a cluster's target, to be entered or awaited."""
    # Imported by those who have a cluster.
    from aexec.distributed.opening_cluster_session import OpeningClusterSession

    return OpeningClusterSession(source, target, config, security)
