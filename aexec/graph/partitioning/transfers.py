"""`Transfers`: Sends and Recvs between partitions, and the control loops that they need.

A value is sent once for each device that needs it, under a name that both ends know.  A control edge between devices
becomes an empty value that is made after its source has run.  Host memory and the memory of another device are two
places: values between them are sent the same way, even if both ends are on one device.

If an edge between devices is inside a loop, the receiving device gets a *control loop*: a copy of the frame with
nothing but the loop's predicate, which is sent to it, so that the Recv runs in every iteration.
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

# Instead of an output slot: the transfer signals that the node is done.
_DONE = -1


class Transfers:
    """Makes the transfers between partitions, each one once.

    Args:
        compress: as in `split`.

    Attributes:
        read_by: id of the node that receives a variable's value → id of the node that reads the variable.
    """

    def __init__(self, split: SplitGraph, loops: SplitLoops, *, compress: bool) -> None:
        self._split = split
        self._loops = loops
        self._compress = compress
        # What was made already: (source, device name, memory) → id of the node that receives it; and below (frame name,
        # device name) → id of the Merge of the control loop.
        self._received: dict[tuple[Endpoint, str, MemoryType], int] = {}
        self._control_loops: dict[tuple[str, str], int] = {}
        self.read_by: dict[int, int] = {}

    def done(self, node_id: int, partition: Partition, frame: FrameInfo | None) -> int:
        """Return the node that a node of a partition must wait for so that another node, maybe elsewhere, is done."""
        split = self._split
        if split.places[node_id].name == partition.device.name:
            return node_id
        key = ((node_id, _DONE), partition.device.name, MemoryType.HOST_MEMORY)
        if key not in self._received:
            # Only values can be sent, so send an empty one that is made after the node has run.
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
        """Return the node of a partition that receives a value from elsewhere.

        Args:
            frame: the frame of the value.
            memory: the memory in which it is wanted.
            shared: use one transfer for all that want the value there.
            before: ids of nodes that must be done before it is sent.
            stem: prefix of the names of both ends; by default the name of the source.
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
            controls = (sent,)  # before the Send there is nothing to receive
        elif frame is not None and frame.parent is not None:
            controls = (self._control_loop(frame, partition),)
            if (frame.name, there.device.name) not in self._loops.rounds:
                # The value is sent in every iteration, although the sending device has no other node that runs in each.
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
        """Add the cast that drops the lower half of float32's bits, or the one that restores float32; return its id."""
        attrs = {"SrcT": given, "DstT": bfloat16 if given is float32 else float32, "Truncate": True}
        op = "_HostCast" if _is_beside(partition.device, memory) else "Cast"
        return self._split.new(partition, self._split.new_name(stem), op, attrs, (source,), control_inputs, node_id)

    def _control_loop(self, frame: FrameInfo, partition: Partition) -> int:
        """Return the Merge on a device that fires in every iteration of a frame, including the last."""
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
        self._control_loops[key] = merge  # set it first: the node that receives the predicate needs it
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
    """Return the op of a Send or Recv whose value is in this memory."""
    return f"_Host{end}" if _is_beside(device, memory) else f"_{end}"


def _is_beside(device: Device, memory: MemoryType) -> bool:
    """True if this is host memory, but the device has its own."""
    return memory is MemoryType.HOST_MEMORY and not device.is_host
