"""What a program needs that runs other people's graphs, besides `aexec.Session`.

Servers use the names of `aexec`, `aexec.errors`, `aexec.proto`, `aexec.saved_model` and this
module, and nothing below them.  `aexec_server` is one, and a test holds it to that.

* `CallableCache`: callables by what clients asked for, within bounds.
* `FeedSpec`: checks a value as feeds are checked, for decoders of bodies.
* `dtypes`, `DType`: the types of tensors; `tensor_from_proto`, `tensor_to_proto`: TensorProto.
* `NameAttrList`: what an attr of a node that names a function is.
* `StepState`: where a step is in its life.
* `collector_paused`: for work that makes many objects that stay, as decoding a large graph does; `freeze_heap`,
  `unfreeze_heap`, `collect_garbage`: for a process whose graphs are most of what it has.
* `loop_budget`: what may be done on the event loop, and what work costs; `check_inline` raises `NeedsThreadError`
  there for what may not.  `run_in_thread` does it in a thread, and `OnCancel` says what happens if that is cancelled.
* `record_network_buffer`, `record_network_buffer_freed`: for the memory log, of bodies that came from clients.
* `num_leaves`: how many values nested lists hold.
"""

from __future__ import annotations

from aexec.framework import dtypes, loop_budget
from aexec.framework.attr_value import NameAttrList
from aexec.framework.dtypes import DType
from aexec.framework.garbage_collector import collect_garbage, collector_paused, freeze_heap, unfreeze_heap
from aexec.framework.inline_call import NeedsThreadError, check_inline
from aexec.framework.log_memory import record_network_buffer, record_network_buffer_freed
from aexec.framework.tensor_codec import from_proto as tensor_from_proto
from aexec.framework.tensor_codec import to_proto as tensor_to_proto
from aexec.runtime.callable import canonical_name
from aexec.runtime.callable_cache import CallableCache
from aexec.runtime.feeds import FeedSpec
from aexec.runtime.nested_lists import num_leaves
from aexec.runtime.step import StepState
from aexec.runtime.worker_pool import OnCancel, run_in_thread

__all__ = [
    "CallableCache",
    "DType",
    "FeedSpec",
    "NameAttrList",
    "NeedsThreadError",
    "OnCancel",
    "StepState",
    "canonical_name",
    "check_inline",
    "collect_garbage",
    "collector_paused",
    "dtypes",
    "freeze_heap",
    "loop_budget",
    "num_leaves",
    "record_network_buffer",
    "record_network_buffer_freed",
    "run_in_thread",
    "tensor_from_proto",
    "tensor_to_proto",
    "unfreeze_heap",
]
