"""`Transfers`: Sends and Recvs for what goes from one partition to another, and the control loops that these need.

What travels is a value, once for each device that needs it, under a name that both ends know; who waits for a node
elsewhere waits for an empty value that is made after it.  The host's memory and that of a device which is not the
host are two places: between them values travel in the same way, although both ends are on one device.

Where an edge between devices is inside a loop, the device at its end gets a *control loop*: the frame with nothing in
it but the loop's predicate, which is sent over, so that the Recv is issued once in every iteration.
Next to read: `aexec/kernels/control_flow/sendrecv_ops.py`.
"""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import DType, bfloat16, float32
from aexec.framework.types import MemoryType
from aexec.graph.nodes.control_flow import FrameInfo
from aexec.graph.nodes.node import Endpoint
from aexec.graph.partitioning.partition import Partition
from aexec.graph.partitioning.split_graph import IN_HOST_MEMORY, SplitGraph
from aexec.graph.partitioning.split_loops import SplitLoops

__all__ = ["Transfers"]

# In place of an output's number: what travels is that the node is done.
_DONE = -1


class Transfers:
    """Makes what goes from one partition to another, each transfer once.

    Args:
        compress: as `split` takes it.

    Attributes:
        read_by: what receives a value → the node that reads it, if it comes from a variable.
    """

    def __init__(self, split: SplitGraph, loops: SplitLoops, *, compress: bool) -> None:
        self._split = split
        self._loops = loops
        self._compress = compress
        # What was made already: per source, device and memory the node that receives it, per frame and device the
        # Merge of the control loop.
        self._received: dict[tuple[Endpoint, str, MemoryType], int] = {}
        self._control_loops: dict[tuple[str, str], int] = {}
        self.read_by: dict[int, int] = {}

    def done(self, node_id: int, partition: Partition, frame: FrameInfo | None) -> int:
        """The node that a node of a partition waits for instead of one that may be elsewhere."""
        split = self._split
        if split.places[node_id].name == partition.device.name:
            return node_id
        key = ((node_id, _DONE), partition.device.name, MemoryType.HOST_MEMORY)
        if key not in self._received:
            # Only values travel: an empty one that is made after the node has run.
            source = split.kept[node_id]
            there = split.partition(split.places[node_id])
            nothing = split.new_nothing(there, split.new_name(f"{source.name}/ctrl"), (node_id,))
            received = self.value((nothing, 0), partition, frame, MemoryType.HOST_MEMORY, stem=source.name)
            name = split.new_name(source.name)
            attrs = {"T": float32} if partition.device.is_host else {"T": float32, **IN_HOST_MEMORY}
            self._received[key] = split.new(partition, name, "Identity", attrs, ((received, 0),))
        return self._received[key]

    def value(
        self,
        source: Endpoint,
        partition: Partition,
        frame: FrameInfo | None,
        memory: MemoryType,
        *,
        shared: bool = True,
        before: tuple[int, ...] = (),
        stem: str | None = None,
    ) -> int:
        """The node of a partition that receives a value which is elsewhere.

        Args:
            frame: in which the value is.
            memory: where it is wanted.
            shared: all who want it there have the same.
            before: what has to be done before it is sent.
            stem: what the names of both ends begin with; by default the source's.
        """
        split = self._split
        key = (source, partition.device.name, memory)
        if shared and key in self._received:
            return self._received[key]
        there = split.partition(split.places[source[0]])
        node = there.nodes[source[0]]
        given = split.memory_of(source, memory)
        dtype: DType = node.output_types[source[1]].base
        compressed = self._compress and dtype is float32 and stem is None and there is not partition
        stem = node.name if stem is None else stem
        if compressed:
            source, before, dtype = (self._new_cast(there, stem, source, given, float32, before), 0), (), bfloat16
        send, receive = split.new_name(stem), split.new_name(stem)
        attrs = {
            "tensor_name": f"edge_{receive.rpartition('_')[2]}_{stem}".encode(),
            "send_device": there.device.name.encode(),
            "send_device_incarnation": there.device.incarnation,
            "recv_device": partition.device.name.encode(),
            "client_terminated": False,
        }
        received = split.new_id()
        taken = split.new_id() if compressed else received
        if shared:
            self._received[key] = taken
        sent_from = _op_in("Send", there.device, given)
        sent = split.new(there, send, sent_from, {"T": dtype, **attrs}, (source,), before)
        if not shared:
            self.read_by[taken] = source[0] if compressed else sent
        there.targets.append(sent)
        controls: tuple[int, ...] = ()
        if there is partition:
            controls = (sent,)  # until then there is nothing to receive
        elif frame is not None and frame.parent is not None:
            controls = (self._control_loop(frame, partition),)
            if (frame.name, there.device.name) not in self._loops.rounds:
                # What enters every iteration is sent in every one, although nothing else here goes round.
                self._loops.rounds.add((frame.name, there.device.name))
                there.targets.append(self._control_loop(frame, there))
        received_in = _op_in("Recv", partition.device, memory)
        split.new(partition, receive, received_in, {"tensor_type": dtype, **attrs}, (), controls, received)
        if compressed:
            self._new_cast(partition, stem, (received, 0), memory, bfloat16, node_id=taken)
        return taken

    def _new_cast(
        self,
        partition: Partition,
        stem: str,
        source: Endpoint,
        memory: MemoryType,
        given: DType,
        control_inputs: tuple[int, ...] = (),
        node_id: int | None = None,
    ) -> int:
        """What makes bfloat16 of float32 by dropping the lower bits, or float32 of bfloat16."""
        attrs = {"SrcT": given, "DstT": bfloat16 if given is float32 else float32, "Truncate": True}
        op = "_HostCast" if _is_beside(partition.device, memory) else "Cast"
        return self._split.new(partition, self._split.new_name(stem), op, attrs, (source,), control_inputs, node_id)

    def _control_loop(self, frame: FrameInfo, partition: Partition) -> int:
        """The Merge that fires in every iteration of a frame, the last included, on a device."""
        split = self._split
        key = (frame.name, partition.device.name)
        found = self._control_loops.get(key)
        if found is not None:
            return found
        condition = self._loops.conditions.get(frame.name)
        if condition is None:
            raise errors.InvalidArgumentError(f"A cross-device loop must have a pivot predicate: {frame.name}")
        assert frame.parent is not None
        merge, following = split.new_id(), split.new_id()
        self._control_loops[key] = merge  # what receives the predicate needs it
        stem = f"_cloop{condition.name}"
        if frame.parent.parent is None:
            begin = split.new_nothing(partition, split.new_name(stem))
        else:
            begin = self._control_loop(frame.parent, partition)
        attrs, new, new_name = {"T": float32}, split.new, split.new_name
        of_frame = {"frame_name": frame.name.encode(), "parallel_iterations": frame.parallel_iterations}
        enter = new(partition, new_name(stem), "Enter", {**attrs, **of_frame}, ((begin, 0),))
        new(
            partition,
            new_name(stem),
            "Merge",
            {**attrs, "N": 2},
            ((enter, 0), (following, 0)),
            node_id=merge,
        )
        predicate, host = (condition.id, 0), MemoryType.HOST_MEMORY
        is_here = split.places[condition.id].name == partition.device.name
        if not is_here or split.memory_of(predicate, host) is not host:
            predicate = (self.value(predicate, partition, frame, host), 0)
        switch = new(partition, new_name(stem), "Switch", attrs, ((merge, 0), predicate))
        new(partition, new_name(stem), "NextIteration", attrs, ((switch, 1),), node_id=following)
        return merge


def _op_in(end: str, device: Device, memory: MemoryType) -> str:
    """The op of a Send or Recv whose value is in this memory."""
    return f"_Host{end}" if _is_beside(device, memory) else f"_{end}"


def _is_beside(device: Device, memory: MemoryType) -> bool:
    """Is this the host's memory, and the device's another?"""
    return memory is MemoryType.HOST_MEMORY and not device.is_host
