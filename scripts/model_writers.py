"""Writers of models: one description of an architecture becomes a GraphDef, or an ONNX model with the same weights.

An architecture (`models.py`) calls a writer's methods and never looks at what they return.  `GraphDefWriter` takes
aexec's own Python front end and writes the ops that TensorFlow's freezers leave in graphs; `OnnxWriter` takes the
`onnx` package and writes what an exporter would: maps with channels first, one GRU node for a loop of cells.  Images
are fed with channels last to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import aexec
from aexec import ops

Value = Any
Array = np.ndarray


class Recurrence(NamedTuple):
    """Weights of a layer of recurrent cells, as TensorFlow's v1 cells keep them: one matrix for input and state.

    GRU: `gates` (reset, update) and `candidate`; LSTM: `gates` (input, new, forget, output) and no candidate.
    """

    gates: Array
    gates_bias: Array
    candidate: Array | None = None
    candidate_bias: Array | None = None

    @property
    def units(self) -> int:
        return len(self.gates_bias) // (4 if self.candidate is None else 2)

    @property
    def inputs(self) -> int:
        return len(self.gates) - self.units


class ModelWriter(Protocol):
    """Writes the operations of an architecture.  Maps are images, and results of convolutions."""

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value: ...
    def image(self, name: str, shape: Sequence[int]) -> Value: ...
    def output(self, name: str, value: Value) -> None: ...
    def constant(self, array: Any) -> Value: ...
    def conv(self, x: Value, filters: Array, stride: int = 1, padding: str = "SAME") -> Value: ...
    def depthwise(self, x: Value, filters: Array, stride: int = 1, padding: str = "SAME") -> Value: ...
    def batch_norm(self, x: Value, scale: Array, offset: Array, mean: Array, variance: Array) -> Value: ...
    def bias(self, x: Value, bias: Array) -> Value: ...
    def pad_map(self, x: Value, before: int, after: int) -> Value: ...
    def max_pool(self, x: Value, size: int, stride: int) -> Value: ...
    def map_mean(self, x: Value) -> Value: ...
    def map_rows(self, x: Value, shape: Sequence[int]) -> Value: ...
    def unary(self, op: str, x: Value) -> Value: ...
    def binary(self, op: str, x: Value, y: Value) -> Value: ...
    def add_n(self, values: Sequence[Value]) -> Value: ...
    def dense(self, x: Value, weights: Value, bias: Value) -> Value: ...
    def batch_product(self, x: Value, y: Value, transpose_y: bool = False) -> Value: ...
    def row_mean(self, x: Value) -> Value: ...
    def reshape(self, x: Value, shape: Sequence[int]) -> Value: ...
    def transpose(self, x: Value, order: Sequence[int]) -> Value: ...
    def concat(self, values: Sequence[Value], axis: int) -> Value: ...
    def split(self, x: Value, count: int, axis: int) -> list[Value]: ...
    def count_up(self, limit: Value) -> Value: ...
    def recurrent(self, x: Value, steps: int, weights: Recurrence) -> Value: ...
    def best_boxes(
        self, boxes: Value, scores: Value, classes: int, keep: int, overlap: float, threshold: float
    ) -> tuple[Value, Value, Value]: ...


UNARY = "Elu Erf Exp Identity Relu Relu6 Rsqrt Sigmoid Softmax Square Tanh".split()
BINARY = "Add Div Maximum Minimum Mul Sub".split()


class GraphDefWriter:
    """Writes a GraphDef with aexec's front end, into the current graph."""

    def __init__(self) -> None:
        self._back_edges: dict[str, str] = {}  # Merge node of a loop → its NextIteration
        self._pivot: list[Value] = []  # control input of constants in a loop's body

    def close_loops(self, graph_def: Any) -> None:
        """Add the back edges, which cannot be built in order."""
        for node in graph_def.node:
            if node.name in self._back_edges:
                node.input[1] = self._back_edges[node.name]

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        return aexec.placeholder(dtype, shape, name=name)

    image = input

    def output(self, name: str, value: Value) -> None:
        ops.identity(value, name=name)

    def constant(self, array: Any) -> Value:
        return aexec.constant(array)

    def conv(self, x: Value, filters: Array, stride: int = 1, padding: str = "SAME") -> Value:
        return ops.conv2d(x, aexec.constant(filters), strides=[1, stride, stride, 1], padding=padding)

    def depthwise(self, x: Value, filters: Array, stride: int = 1, padding: str = "SAME") -> Value:
        return ops.depthwise_conv2d_native(x, aexec.constant(filters), strides=[1, stride, stride, 1], padding=padding)

    def batch_norm(self, x: Value, scale: Array, offset: Array, mean: Array, variance: Array) -> Value:
        return ops.fused_batch_norm_v3(x, scale, offset, mean, variance, is_training=False)[0]

    def bias(self, x: Value, bias: Array) -> Value:
        return ops.bias_add(x, bias)

    def pad_map(self, x: Value, before: int, after: int) -> Value:
        return ops.pad(x, np.int32([[0, 0], [before, after], [before, after], [0, 0]]))

    def max_pool(self, x: Value, size: int, stride: int) -> Value:
        return ops.max_pool(x, ksize=[1, size, size, 1], strides=[1, stride, stride, 1], padding="VALID")

    def map_mean(self, x: Value) -> Value:
        return ops.mean(x, np.int32([1, 2]))

    def map_rows(self, x: Value, shape: Sequence[int]) -> Value:
        return self.reshape(x, shape)

    def unary(self, op: str, x: Value) -> Value:
        return getattr(ops, op.lower())(x)

    def binary(self, op: str, x: Value, y: Value) -> Value:
        return getattr(ops, {"Add": "add_v2", "Div": "real_div"}.get(op, op.lower()))(x, y)

    def add_n(self, values: Sequence[Value]) -> Value:
        return ops.add_n(values)

    def dense(self, x: Value, weights: Value, bias: Value) -> Value:
        return ops.bias_add(ops.mat_mul(x, weights), bias)

    def batch_product(self, x: Value, y: Value, transpose_y: bool = False) -> Value:
        return ops.batch_mat_mul_v2(x, y, adj_y=transpose_y)

    def row_mean(self, x: Value) -> Value:
        return ops.mean(x, np.int32([-1]), keep_dims=True)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return ops.reshape(x, np.int32(shape))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        return ops.transpose(x, np.int32(order))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return ops.concat_v2(values, self._axis(axis))

    def split(self, x: Value, count: int, axis: int) -> list[Value]:
        return list(ops.split(self._axis(axis), x, num_split=count))

    def _axis(self, axis: int) -> Value:
        with aexec.control_dependencies(self._pivot):
            return aexec.constant(np.int32(axis))

    def count_up(self, limit: Value) -> Value:
        """Write a loop of two variables: an integer that counts to `limit`, and a float that follows."""
        one, step = self.constant(np.int32(1)), self.constant(np.float32(1))
        return self._while(
            [self.constant(np.int32(0)), self.constant(np.float32(0))],
            [limit, one, step],
            lambda i, a, limit, one, step: ops.less(i, limit),
            lambda i, a, limit, one, step: [ops.add_v2(i, one), ops.add_v2(a, step)],
        )[1]

    def recurrent(self, x: Value, steps: int, weights: Recurrence) -> Value:
        """Return the last state of cells over `x`, [steps, 1, inputs]: a while loop that reads from a TensorArray."""
        handle, flow = ops.tensor_array_v3(np.int32(steps), dtype="float32")
        flow = ops.tensor_array_scatter_v3(handle, np.arange(steps, dtype=np.int32), x, flow)
        cell, constants = (lstm_cell, weights[:2]) if weights.candidate is None else (gru_cell, weights[:4])
        zeros = [self.constant(np.zeros((1, weights.units), np.float32)) for _ in range(2 - (cell is gru_cell))]
        first, limit, one = (self.constant(np.int32(n)) for n in (0, steps, 1))

        def body(t: Value, *rest: Value) -> list[Value]:
            state, (_, one, handle, flow, *of_cell) = rest[: len(zeros)], rest[len(zeros) :]
            row = ops.tensor_array_read_v3(handle, t, flow, dtype="float32")
            return [ops.add_v2(t, one), *cell(self, row, state, of_cell)]

        def proceed(t: Value, *rest: Value) -> Value:
            return ops.less(t, rest[len(zeros)])

        invariants = [limit, one, handle, flow, *(self.constant(c) for c in constants)]
        return self._while([first, *zeros], invariants, proceed, body)[-1]

    def _while(
        self,
        start: Sequence[Value],
        invariants: Sequence[Value],
        proceed: Callable[..., Value],
        body: Callable[..., Any],
    ) -> list[Value]:
        """Write a v1 loop; `proceed` and `body` take the variables, then the invariants."""
        frame = f"loop_{len(self._back_edges)}"
        with aexec.name_scope(frame):
            of_frame = {"frame_name": frame, "parallel_iterations": 10}
            entered = [ops.enter(value, **of_frame) for value in start]
            constant = [ops.enter(value, is_constant=True, **of_frame) for value in invariants]
            # Each Merge has its start as both inputs until `close_loops`.
            merged = [ops.merge([value, value])[0] for value in entered]
            goes_on = ops.loop_cond(proceed(*merged, *constant))
            switched = [ops.switch(value, goes_on) for value in merged]
            inside = [ops.identity(into) for _, into in switched]
            self._pivot = [inside[0]]
            after = [ops.next_iteration(v) for v in body(*inside, *constant)]
            self._pivot = []
            for value, following in zip(merged, after, strict=True):
                self._back_edges[value.node.name] = following.node.name
            return [ops.exit(out) for out, _ in switched]

    def best_boxes(
        self, boxes: Value, scores: Value, classes: int, keep: int, overlap: float, threshold: float
    ) -> tuple[Value, Value, Value]:
        """Return the best boxes of `boxes` [n, 4] with `scores` [n, classes], by non-maximum suppression per class."""
        found: list[tuple[Value, Value, Value]] = []
        for number, of_class in enumerate(ops.unpack(scores, num=classes, axis=1)):
            chosen = ops.non_max_suppression_v3(
                boxes, of_class, np.int32(keep), np.float32(overlap), np.float32(threshold)
            )
            kept = ops.gather_v2(of_class, chosen, np.int32(0))
            label = ops.fill(ops.shape(kept), np.int32(number))
            found.append((ops.gather_v2(boxes, chosen, np.int32(0)), kept, label))
        of_boxes, of_scores, of_labels = (ops.concat_v2(list(v), np.int32(0)) for v in zip(*found, strict=True))
        best, at = ops.top_kv2(of_scores, ops.minimum(np.int32(keep), ops.size(of_scores)))
        return ops.gather_v2(of_boxes, at, np.int32(0)), best, ops.gather_v2(of_labels, at, np.int32(0))


def gru_cell(w: ModelWriter, x: Value, state: Sequence[Value], weights: Sequence[Value]) -> list[Value]:
    """Write one GRU cell as TensorFlow's GRUCell does; `weights` are values, in the order of `Recurrence`."""
    (h,), (gates, gates_bias, candidate, candidate_bias) = state, weights
    both = w.unary("Sigmoid", w.dense(w.concat([x, h], 1), gates, gates_bias))
    reset, update = w.split(both, 2, 1)
    new = w.unary("Tanh", w.dense(w.concat([x, w.binary("Mul", reset, h)], 1), candidate, candidate_bias))
    # u * h + (1 - u) * new
    return [w.binary("Add", w.binary("Mul", update, w.binary("Sub", h, new)), new)]


def lstm_cell(w: ModelWriter, x: Value, state: Sequence[Value], weights: Sequence[Value]) -> list[Value]:
    """Write one LSTM cell; the forget gate's bias is part of the weights."""
    (c, h), (gates, bias) = state, weights
    i, new, forget, out = w.split(w.dense(w.concat([x, h], 1), gates, bias), 4, 1)
    kept = w.binary("Mul", w.unary("Sigmoid", forget), c)
    c = w.binary("Add", kept, w.binary("Mul", w.unary("Sigmoid", i), w.unary("Tanh", new)))
    return [c, w.binary("Mul", w.unary("Sigmoid", out), w.unary("Tanh", c))]


def write_graph_def(write: Callable[[ModelWriter], None]) -> bytes:
    """Return the serialized GraphDef that `write` describes."""
    writer = GraphDefWriter()
    with aexec.Graph() as graph:
        write(writer)
    graph_def = graph.to_graph_def()
    writer.close_loops(graph_def)
    return bytes(graph_def.SerializeToString())


def write_onnx(write: Callable[[ModelWriter], None]) -> bytes:
    """Return the serialized ONNX model that `write` describes."""
    writer = OnnxWriter()
    write(writer)
    return writer.serialized()


class OnnxWriter:
    """Writes an ONNX model; needs the `onnx` package.  Values are names."""

    OPSET = 17
    IR_VERSION = 9

    def __init__(self) -> None:
        from onnx import TensorProto, helper, numpy_helper

        self._types = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}
        self._helper, self._from_array = helper, numpy_helper.from_array
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: list[Any] = []

    def serialized(self) -> bytes:
        """Return the model that has been written."""
        graph = self._helper.make_graph(self._nodes, "model", self._inputs, self._outputs, self._constants)
        model = self._helper.make_model(graph, opset_imports=[self._helper.make_opsetid("", self.OPSET)])
        model.ir_version = self.IR_VERSION
        return bytes(model.SerializeToString())

    def _node(self, op: str, inputs: Sequence[Value], outputs: int = 1, **attrs: Any) -> Any:
        given = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        names = [f"v{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(self._helper.make_node(op, given, names, **attrs))
        return names[0] if outputs == 1 else names

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        self._inputs.append(self._helper.make_tensor_value_info(name, self._types[dtype], list(shape)))
        return name

    def image(self, name: str, shape: Sequence[int]) -> Value:
        return self.transpose(self.input(name, shape), [0, 3, 1, 2])

    def output(self, name: str, value: Value) -> None:
        self._nodes.append(self._helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._helper.make_empty_tensor_value_info(name))

    def constant(self, array: Any) -> Value:
        name = f"k{len(self._constants)}"
        self._constants.append(self._from_array(np.asarray(array), name))
        return name

    def conv(self, x: Value, filters: Array, stride: int = 1, padding: str = "SAME") -> Value:
        return self._convolve(x, filters.transpose(3, 2, 0, 1), stride, padding, group=1)

    def depthwise(self, x: Value, filters: Array, stride: int = 1, padding: str = "SAME") -> Value:
        return self._convolve(x, filters.transpose(2, 3, 0, 1), stride, padding, group=filters.shape[2])

    def _convolve(self, x: Value, filters: Array, stride: int, padding: str, group: int) -> Value:
        auto_pad = {"SAME": "SAME_UPPER", "VALID": "VALID"}[padding]
        weights = self.constant(np.ascontiguousarray(filters))
        return self._node("Conv", [x, weights], auto_pad=auto_pad, strides=[stride, stride], group=group)

    def batch_norm(self, x: Value, scale: Array, offset: Array, mean: Array, variance: Array) -> Value:
        return self._node("BatchNormalization", [x, scale, offset, mean, variance], epsilon=1e-4)

    def bias(self, x: Value, bias: Array) -> Value:
        return self._node("Add", [x, bias.reshape(1, -1, 1, 1)])

    def pad_map(self, x: Value, before: int, after: int) -> Value:
        return self._node("Pad", [x, np.int64([0, 0, before, before, 0, 0, after, after])])

    def max_pool(self, x: Value, size: int, stride: int) -> Value:
        return self._node("MaxPool", [x], kernel_shape=[size, size], strides=[stride, stride])

    def map_mean(self, x: Value) -> Value:
        return self._node("ReduceMean", [x], axes=[2, 3], keepdims=0)

    def map_rows(self, x: Value, shape: Sequence[int]) -> Value:
        return self.reshape(self.transpose(x, [0, 2, 3, 1]), shape)

    def unary(self, op: str, x: Value) -> Value:
        if op == "Relu6":
            return self._node("Clip", [x, np.float32(0), np.float32(6)])
        if op == "Rsqrt":
            return self._node("Reciprocal", [self._node("Sqrt", [x])])
        if op == "Square":
            return self._node("Mul", [x, x])
        return self._node(op, [x])

    def binary(self, op: str, x: Value, y: Value) -> Value:
        return self._node({"Maximum": "Max", "Minimum": "Min"}.get(op, op), [x, y])

    def add_n(self, values: Sequence[Value]) -> Value:
        return self._node("Sum", values)

    def dense(self, x: Value, weights: Value, bias: Value) -> Value:
        return self._node("Gemm", [x, weights, bias])

    def batch_product(self, x: Value, y: Value, transpose_y: bool = False) -> Value:
        return self._node("MatMul", [x, self.transpose(y, [0, 1, 3, 2]) if transpose_y else y])

    def row_mean(self, x: Value) -> Value:
        return self._node("ReduceMean", [x], axes=[-1], keepdims=1)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return self._node("Reshape", [x, np.int64(shape)])

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        return self._node("Transpose", [x], perm=list(order))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return self._node("Concat", values, axis=axis)

    def split(self, x: Value, count: int, axis: int) -> list[Value]:
        return list(self._node("Split", [x], outputs=count, axis=axis))

    def count_up(self, limit: Value) -> Value:
        """Write the loop as in a GraphDef: the trip count is an input, and a float is carried."""
        make, of = self._helper.make_node, self._helper.make_tensor_value_info
        step = self._helper.make_tensor("step", self._types["float32"], [], [1.0])
        body = self._helper.make_graph(
            [make("Identity", ["goes_on"], ["goes_on_after"]), make("Add", ["a", "step"], ["a_after"])],
            "body",
            [of("i", self._types["int64"], []), of("goes_on", 9, []), of("a", self._types["float32"], [])],
            [of("goes_on_after", 9, []), of("a_after", self._types["float32"], [])],
            [step],
        )
        trips = self._node("Cast", [limit], to=self._types["int64"])
        return self._node("Loop", [trips, np.bool_(True), np.float32(0)], body=body)

    def recurrent(self, x: Value, steps: int, weights: Recurrence) -> Value:
        """Write one GRU or LSTM node; its gates are transposed and in another order, and input and state weights are
        separate.
        """
        units, n = weights.units, weights.inputs
        if weights.candidate is None:
            i, new, forget, out = np.split(weights.gates, 4, 1)
            bi, bnew, bforget, bout = np.split(weights.gates_bias, 4)
            op, matrix, bias = "LSTM", [i, out, forget, new], [bi, bout, bforget, bnew]
        else:
            reset, update = np.split(weights.gates, 2, 1)
            breset, bupdate = np.split(weights.gates_bias, 2)
            op, matrix, bias = "GRU", [update, reset, weights.candidate], [bupdate, breset, weights.candidate_bias]
        both = np.concatenate(matrix, 1).T
        b = np.concatenate([*bias, np.zeros(len(both), np.float32)])
        inputs = [x, *(np.ascontiguousarray(a[None]) for a in (both[:, :n], both[:, n:], b))]
        last = self._node(op, inputs, outputs=2, hidden_size=units)[1]
        return self.reshape(last, [1, units])

    def best_boxes(
        self, boxes: Value, scores: Value, classes: int, keep: int, overlap: float, threshold: float
    ) -> tuple[Value, Value, Value]:
        first, batch = np.int64([0]), self._node("Unsqueeze", [self.transpose(scores, [1, 0]), np.int64([0])])
        limits = [np.int64([keep]), np.float32([overlap]), np.float32([threshold])]
        chosen = self._node("NonMaxSuppression", [self._node("Unsqueeze", [boxes, first]), batch, *limits])
        _, labels, which = self.split(chosen, 3, 1)
        labels, which = (self._node("Squeeze", [v, np.int64([1])]) for v in (labels, which))
        of_scores = self._node("GatherND", [batch, chosen])
        best, at = self._node(
            "TopK", [of_scores, self._node("Min", [np.int64([keep]), self._node("Shape", [of_scores])])], outputs=2
        )
        of_boxes = self._node("Gather", [self._node("Gather", [boxes, which]), at])
        return of_boxes, best, self._node("Cast", [self._node("Gather", [labels, at])], to=self._types["int32"])
