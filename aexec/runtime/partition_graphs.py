"""What a plan runs, written as graphs: one per device, as `RunOptions.output_partition_graphs` asks.

They are described as TensorFlow partitions: fed and fetched tensors are `_Arg` and `_Retval`
nodes, and an edge between devices is a `_Send` on one and a `_Recv` on the other; each graph
can be imported on its own (`ImportOptions(internal_names=True)`).  Here it is description only:
a plan runs its nodes directly.  After TensorFlow's core/graph/graph_partition.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import attr_value
from aexec.framework.attr_value import TensorAttr
from aexec.framework.device import Device
from aexec.framework.dtypes import DType, float32
from aexec.graph import colocation
from aexec.graph.graph_export import node_to_proto
from aexec.graph.node import Endpoint, GraphView, Node
from aexec.graph.prune import is_fed_placeholder, reachable
from aexec.runtime.plan import PlanKey

__all__ = ["partition_graphs"]


def partition_graphs(graph: GraphView, signature: PlanKey, device_of: Callable[[Node], Device]) -> list[proto.GraphDef]:
    """One graph per device that has a node to run, in the order of each device's first node."""
    partitions = _Partitions(graph, signature, device_of)
    for node in partitions.kept.values():
        partitions.add(node)
    partitions.add_results()
    return partitions.finish()


class _Partitions:
    def __init__(self, graph: GraphView, signature: PlanKey, device_of: Callable[[Node], Device]) -> None:
        self.graph = graph
        self.signature = signature
        self.fed = {endpoint: index for index, endpoint in enumerate(signature.feeds)}
        roots = [*(i for i, _ in signature.fetches), *signature.targets]
        needed = sorted(reachable(graph, roots, self.fed))
        self.kept = {i: graph.nodes[i] for i in needed if not is_fed_placeholder(graph, i, self.fed)}
        self.devices = {i: device_of(node) for i, node in self.kept.items()}
        self.graphs: dict[str, proto.GraphDef] = {}
        # What was made already: names of feeds and of received edges, per device.
        self._args: set[tuple[Endpoint, str]] = set()
        self._received: dict[tuple[Endpoint, str], str] = {}
        self._made = 0

    def add(self, node: Node) -> None:
        device = self.devices[node.id]
        message = node_to_proto(node)
        message.device = device.name
        inputs = [self._data(endpoint, device) for endpoint in node.inputs]
        controls = dict.fromkeys(self._control(i, device) for i in node.control_inputs if i in self.kept)
        del message.input[:]
        message.input.extend([*inputs, *(f"^{name}" for name in controls)])
        self._graph(device).node.append(message)

    def add_results(self) -> None:
        for index, (node_id, slot) in enumerate(self.signature.fetches):
            source = self.graph.nodes[node_id]
            device = self.devices.get(node_id)
            if device is None:
                continue  # a fed placeholder: it never gets to a device
            name = f"_retval_{source.name}_{slot}_{index}"
            attrs = {"T": source.output_types[slot].base, "index": index}
            self._node(device, name, "_Retval", _text(source, slot), attrs=attrs)

    def finish(self) -> list[proto.GraphDef]:
        for message in self.graphs.values():
            message.versions.CopyFrom(self.graph.versions)
            if len(self.graph.library):
                message.library.CopyFrom(self.graph.library.to_proto())
            _drop_foreign_groups(message)
        return list(self.graphs.values())

    def _graph(self, device: Device) -> proto.GraphDef:
        return self.graphs.setdefault(device.name, proto.GraphDef())

    def _node(self, device: Device, name: str, op: str, *inputs: str, attrs: Mapping[str, Any]) -> None:
        message = self._graph(device).node.add(name=name, op=op, input=inputs, device=device.name)
        for key, value in attrs.items():
            message.attr[key].CopyFrom(attr_value.encode(value))

    def _new_name(self, stem: str) -> str:
        """`stem/_1`, `stem/_2`, …: no node of the graph."""
        while True:
            self._made += 1
            name = f"{stem}/_{self._made}"
            if name not in self.graph:
                return name

    # Edges

    def _data(self, endpoint: Endpoint, device: Device) -> str:
        """What a node on `device` has as input that consumes `endpoint`."""
        source = self.graph.nodes[endpoint[0]]
        if endpoint in self.fed:
            return self._arg(source, endpoint, device)
        text = _text(source, endpoint[1])
        if self.devices[source.id] is device:
            return text
        return self._transferred(endpoint, device, source, text, source.output_types[endpoint[1]].base)

    def _control(self, node_id: int, device: Device) -> str:
        """The node that a node on `device` waits for instead of a node that may be elsewhere."""
        source = self.graph.nodes[node_id]
        made_on = self.devices[node_id]
        if made_on is device:
            return source.name
        key = ((node_id, -1), device.name)
        if key not in self._received:
            # Only values travel: an empty one that is made after the node has run.
            signal = self._new_name(source.name)
            nothing = TensorAttr(np.zeros(0, np.float32), float32)
            self._node(made_on, signal, "Const", f"^{source.name}", attrs={"dtype": float32, "value": nothing})
            return self._transferred(key[0], device, source, signal, float32)
        return self._received[key]

    def _arg(self, source: Node, endpoint: Endpoint, device: Device) -> str:
        index = self.fed[endpoint]
        name = f"_arg_{source.name}_{endpoint[1]}_{index}"
        if (endpoint, device.name) not in self._args:
            self._args.add((endpoint, device.name))
            self._node(device, name, "_Arg", attrs={"T": source.output_types[endpoint[1]].base, "index": index})
        return name

    def _transferred(self, endpoint: Endpoint, device: Device, source: Node, value: str, dtype: DType) -> str:
        """Name of the node on `device` that receives `value`, an output on the device of `source`."""
        key = (endpoint, device.name)
        if key not in self._received:
            made_on = self.devices[source.id]
            send, receive = self._new_name(source.name), self._new_name(source.name)
            attrs = {
                "tensor_name": f"edge_{self._made}_{source.name}".encode(),
                "send_device": made_on.name.encode(),
                "send_device_incarnation": made_on.incarnation,
                "recv_device": device.name.encode(),
                "client_terminated": False,
            }
            self._node(made_on, send, "_Send", value, attrs={"T": dtype, **attrs})
            self._node(device, receive, "_Recv", attrs={"tensor_type": dtype, **attrs})
            self._received[key] = receive
        return self._received[key]


def _text(source: Node, slot: int) -> str:
    return f"{source.name}:{slot}" if slot else source.name


def _drop_foreign_groups(message: proto.GraphDef) -> None:
    """Colocation groups of nodes that are not in the graph have done their work."""
    names: set[str] = {node.name for node in message.node}
    for node in message.node:
        if colocation.ATTR not in node.attr:
            continue
        groups: Iterable[bytes] = node.attr[colocation.ATTR].list.s
        kept = [g for g in groups if (name := colocation.group_name(g)) is None or name in names]
        del node.attr[colocation.ATTR]
        if kept:
            node.attr[colocation.ATTR].list.s.extend(kept)
