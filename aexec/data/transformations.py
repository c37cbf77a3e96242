"""`Transformations`: transformations that handle elements one by one, with and without a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from aexec import ops
from aexec.control_flow.function import TensorSpec
from aexec.control_flow.function_call import add_call, common_shape
from aexec.data.dataset_base import building
from aexec.data.element_spec import (
    DatasetSpec,
    common_spec,
    flat_shapes,
    flat_types,
    sparse_parts,
    spec_and_tensors,
    tensors_of,
    unbatched,
    value_of,
)
from aexec.data.element_structure import flattened, is_sparse, map_leaves, repacked
from aexec.data.in_memory import InMemory
from aexec.data.options import Options
from aexec.data.seeds import seeds_of
from aexec.data.traced import Traced, single
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.processors import num_processors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["AUTOTUNE", "Transformations", "order_attr"]

AUTOTUNE = -1
"""For a number of calls or elements that is chosen while the graph runs."""

_LARGEST = 2**63 - 1


def order_attr(deterministic: bool | None) -> str:
    """The value of attr `deterministic`."""
    return "default" if deterministic is None else "true" if deterministic else "false"


def _number(value: Any, name: str) -> Tensor:
    return convert_to_tensor(value, dtypes.int64, name)


class Transformations(InMemory):
    """The transformations that handle elements one by one."""

    def apply(self, transformation_func: Callable[[Any], Any]) -> Any:
        """Call a function with this dataset; return the dataset that it returns.

        Raises:
            InvalidArgumentError: the result is not a dataset.
        """
        made = transformation_func(self)
        if not isinstance(made, self.dialect.dataset_class):
            raise errors.InvalidTypeError(f"Dataset.apply: the function must return a dataset, got {made!r:.100}")
        return made

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> Self:
        """Apply a function to each element; the parts of a tuple are separate arguments.

        Args:
            num_parallel_calls: number of concurrent calls, `AUTOTUNE` to let the session choose; by default 1.
            deterministic: ignored; results are always in input order.
            synchronous, use_unbounded_threadpool: ignored.
        """
        with building(self.graph):
            function = self.traced(map_func, "map")
            inputs = {"other_arguments": function.captured}
            attrs = {"f": function.reference}
            if num_parallel_calls is None:
                return self.derived("MapDataset", inputs, function.spec, attrs, [function], name)
            inputs["num_parallel_calls"] = _number(num_parallel_calls, "num_parallel_calls")  # type: ignore[assignment]
            attrs["deterministic"] = order_attr(deterministic)  # type: ignore[assignment]
            return self.derived("ParallelMapDatasetV2", inputs, function.spec, attrs, [function], name)

    def map_with_legacy_function(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        use_unbounded_threadpool: bool = False,
    ) -> Self:
        """The same as `map`."""
        return self.map(map_func, num_parallel_calls, deterministic)

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Self:
        """Keep the elements for which a function returns True."""
        with building(self.graph):
            function = self.traced(predicate, "filter", tensors_of_result=single(dtypes.bool_, "predicate"))
            inputs = {"other_arguments": function.captured}
            return self.derived(
                "FilterDataset", inputs, attrs={"predicate": function.reference}, functions=[function], name=name
            )

    def filter_with_legacy_function(self, predicate: Callable[..., Any]) -> Self:
        """The same as `filter`."""
        return self.filter(predicate)

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Self:
        """Keep the elements before the first one for which a function returns False."""
        with building(self.graph):
            function = self.traced(predicate, "take_while", tensors_of_result=single(dtypes.bool_, "predicate"))
            inputs = {"other_arguments": function.captured}
            return self.derived(
                "TakeWhileDataset", inputs, attrs={"predicate": function.reference}, functions=[function], name=name
            )

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Self:
        """Concatenate the datasets that a function makes of each element."""
        with building(self.graph):
            function = self.making_datasets(map_func, "flat_map")
            inputs = {"other_arguments": function.captured}
            return self.derived(
                "FlatMapDataset", inputs, function.spec.element_spec, {"f": function.reference}, [function], name
            )

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: Any = None,
        block_length: Any = None,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Interleave the datasets that a function makes of each element.

        Args:
            cycle_length: number of datasets to interleave; by default the number of processors.
            block_length: consecutive elements from a dataset; 1 by default.
            num_parallel_calls: number of datasets whose elements are prefetched, `AUTOTUNE` to let the session choose.
            deterministic: ignored; the order is always the same.
        """
        with building(self.graph):
            function = self.making_datasets(map_func, "interleave")
            automatic = cycle_length is None or (isinstance(cycle_length, int) and cycle_length == AUTOTUNE)
            inputs: dict[str, Any] = {
                "other_arguments": function.captured,
                "cycle_length": _number(num_processors() if automatic else cycle_length, "cycle_length"),
                "block_length": _number(1 if block_length is None else block_length, "block_length"),
            }
            attrs: dict[str, Any] = {"f": function.reference}
            op = "InterleaveDataset"
            if num_parallel_calls is not None:
                op = "ParallelInterleaveDatasetV4"
                inputs["buffer_output_elements"] = _number(AUTOTUNE, "buffer_output_elements")
                inputs["prefetch_input_elements"] = _number(AUTOTUNE, "prefetch_input_elements")
                inputs["num_parallel_calls"] = _number(num_parallel_calls, "num_parallel_calls")
                attrs["deterministic"] = order_attr(deterministic)
            return self.derived(op, inputs, function.spec.element_spec, attrs, [function], name)

    def making_datasets(self, function: Callable[..., Any], where: str, spec: Any = None) -> Traced:
        """`traced` for a function that must return a dataset.  Raises InvalidArgumentError if it does not."""
        made = self.traced(function, where, spec)
        if not isinstance(made.spec, DatasetSpec):
            raise errors.InvalidTypeError(f"Dataset.{where}: the function must return a dataset, got {made.spec}")
        return made

    # State from element to element

    def scan(self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None) -> Self:
        """Map elements with a function that also carries a state from element to element.

        Args:
            initial_state: a structure of tensors.
            scan_func: (state, element) → (next state, output element); the state keeps its structure.
        """
        with building(self.graph):
            spec, state = spec_and_tensors(initial_state)
            function = self._with_state(scan_func, spec, "scan", lambda result: result[0])
            _, output = function.spec
            inputs = {"initial_state": state, "other_arguments": function.captured}
            attrs = {"f": function.reference, "preserve_cardinality": True}
            return self.derived("ScanDataset", inputs, output, attrs, [function], name)

    def reduce(self, initial_state: Any, reduce_func: Callable[..., Any], name: str | None = None) -> Any:
        """Reduce all elements to a state with a function (state, element) → next state.

        Returns:
            The final state: tensors in the structure of `initial_state`.  Each run makes one pass through the dataset.
        """
        with building(self.graph):
            spec, state = spec_and_tensors(initial_state)
            function = self._with_state(reduce_func, spec, "reduce", lambda result: result)
            inputs = {"input_dataset": self.variant, "initial_state": state, "other_arguments": function.captured}
            attrs = {
                "f": function.reference,
                "output_types": flat_types(function.spec),
                "output_shapes": flat_shapes(function.spec),
            }
            node = add_call("ReduceDataset", [function.graph], inputs, attrs, name or "ReduceDataset")
            return value_of(function.spec, node.outputs, self.dialect)

    def _with_state(
        self, function: Callable[..., Any], spec: Any, where: str, state_of: Callable[[Any], Any]
    ) -> Traced:
        """Trace a function of state and element, with state shapes relaxed until they also hold for the next state.

        Args:
            spec: the spec of the initial state.
            state_of: extracts the next state from the function's result.
        """

        def tensors(result: Any) -> tuple[Any, list[Tensor]]:
            if where == "scan" and not (isinstance(result, tuple) and len(result) == 2):
                raise errors.InvalidTypeError(f"scan_func must return a pair of state and output, got {result!r:.200}")
            given = tensors_of(map_leaves(_of_any_shape, spec), state_of(result), f"The state that {where} gives")
            state = repacked(spec, [_spec_after(leaf, one) for leaf, one in zip(flattened(spec), given, strict=True)])
            if where == "reduce":
                return state, given
            output, others = spec_and_tensors(result[1])
            return (state, output), [*given, *others]

        while True:
            made = self.traced(function, where, (spec, self.spec_here), tensors_of_result=tensors)
            wider = _widened(spec, state_of(made.spec))
            if wider == spec:
                return made
            spec = wider

    # Without a function

    def take(self, count: Any, name: str | None = None) -> Self:
        """The first `count` elements; all for -1."""
        return self.derived("TakeDataset", {"count": count}, name=name)

    def skip(self, count: Any, name: str | None = None) -> Self:
        """All elements but the first `count`; none for -1."""
        return self.derived("SkipDataset", {"count": count}, name=name)

    def repeat(self, count: Any = None, name: str | None = None) -> Self:
        """The elements `count` times; infinitely often by default, or for -1."""
        return self.derived("RepeatDataset", {"count": -1 if count is None else count}, name=name)

    def shard(self, num_shards: Any, index: Any, name: str | None = None) -> Self:
        """Every `num_shards`-th element, starting with element `index`."""
        return self.derived("ShardDataset", {"num_shards": num_shards, "index": index}, name=name)

    def prefetch(self, buffer_size: Any, name: str | None = None) -> Self:
        """Compute elements ahead of time, into a buffer.

        Args:
            buffer_size: greatest number of elements in the buffer, `AUTOTUNE` to let the session choose.
        """
        return self.derived(
            "PrefetchDataset", {"buffer_size": AUTOTUNE if buffer_size is None else buffer_size}, name=name
        )

    def cache(self, filename: Any = "", name: str | None = None) -> Self:
        """Keep the elements of the first pass for later passes: in memory, or in files named by `filename`."""
        return self.derived("CacheDataset", {"filename": filename}, name=name)

    def shuffle(
        self,
        buffer_size: Any,
        seed: Any = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> Self:
        """Put the elements in random order: each is drawn from a buffer of the next `buffer_size` elements.

        Args:
            seed: an int or an int64 scalar; see `aexec.set_random_seed`.
            reshuffle_each_iteration: True to use another order in each repetition.
        """
        with building(self.graph):
            first, second = seeds_of(seed)
            inputs = {"buffer_size": buffer_size, "seed": first, "seed2": second}
            attrs = {"reshuffle_each_iteration": reshuffle_each_iteration is not False}
            return self.derived("ShuffleDataset", inputs, attrs=attrs, name=name)

    def shuffle_and_repeat(self, buffer_size: Any, count: Any = None, seed: Any = None) -> Self:
        """`shuffle`, then `repeat`; the buffer takes elements of the next repetition before the current one ends."""
        with building(self.graph):
            first, second = seeds_of(seed)
            inputs = {"buffer_size": buffer_size, "seed": first, "seed2": second}
            return self.derived("ShuffleAndRepeatDataset", {**inputs, "count": -1 if count is None else count})

    def concatenate(self, dataset: Any, name: str | None = None) -> Self:
        """The elements of this dataset, then those of another one with the same structure and types."""
        spec = common_spec([self.spec_here, dataset.spec_here], "Two datasets that are concatenated")
        return self.derived("ConcatenateDataset", {"another_dataset": dataset.variant}, spec, name=name)

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> Self:
        """Combine the i-th elements of several datasets into one; ends with the shortest dataset.

        Args:
            args: datasets, or one structure of datasets; an element has the same structure.
            datasets: the structure as a keyword.
        """
        if bool(args) == (datasets is not None):
            raise errors.InvalidTypeError("Dataset.zip: give either datasets one by one, or `datasets`")
        structure = datasets if datasets is not None else args[0] if len(args) == 1 else args
        given = flattened(structure)
        for one in given:
            if not isinstance(one, cls.dialect.dataset_class):
                raise errors.InvalidTypeError(f"Dataset.zip: expected a structure of datasets, got {one!r:.100}")
        with building(given[0].graph):
            spec = repacked(structure, [one.spec_here for one in given])
            return cls.made("ZipDataset", {"input_datasets": [one.variant for one in given]}, spec, name=name)

    def enumerate(self, start: Any = 0, name: str | None = None) -> Self:
        """Pairs of index and element; the first index is `start`."""
        with building(self.graph):
            return self.zip((type(self).range(start, _LARGEST, name=name), self), name=name)

    def unbatch(self, name: str | None = None) -> Self:
        """The rows of each element, one by one."""
        with building(self.graph):
            source = self._cuttable()
            return source.derived("UnbatchDataset", {}, unbatched(self.spec_here), name=name)

    def _cuttable(self) -> Self:
        """This dataset, with sparse tensors in the serialised form that `unbatch` can split into rows."""
        if _is_plain(self.spec_here):
            return self
        from_rows = self.traced(lambda *parts: parts, "unbatch", tensors_of_result=_in_rows)
        inputs = {"other_arguments": from_rows.captured}
        return self.derived("MapDataset", inputs, self.spec_here, {"f": from_rows.reference}, [from_rows])

    def unique(self, name: str | None = None) -> Self:
        """The elements without repetitions."""
        return self.derived("UniqueDataset", {}, name=name)

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Self:
        """Skip the elements whose computation fails."""
        return self.derived("IgnoreErrorsDataset", {}, attrs={"log_warning": log_warning}, name=name)

    def assert_cardinality(self, expected_cardinality: Any) -> Self:
        """The same elements; a pass fails if their number is not `expected_cardinality`."""
        return self.derived("AssertCardinalityDataset", {"cardinality": expected_cardinality})

    def with_options(self, options: Options, name: str | None = None) -> Self:
        """The same dataset with options, which are merged with those that it has."""
        made: Self = self.dialect.dataset(self.variant, self.spec_here)
        made._options = self._options.merge(options)
        return made

    def options(self) -> Options:
        """The options of this dataset, with those of the datasets that it is made from."""
        return self._options

    def get_single_element(self, name: str | None = None) -> Any:
        """The only element of this dataset; a run fails unless there is exactly one."""
        with building(self.graph):
            types, shapes = flat_types(self.spec_here), flat_shapes(self.spec_here)
            found = ops.dataset_to_single_element(self.variant, types, shapes, name=name)
            return value_of(self.spec_here, list(found), self.dialect)


def _is_plain(spec: Any) -> bool:
    return all(isinstance(leaf, TensorSpec) for leaf in flattened(spec))


def _of_any_shape(leaf: Any) -> Any:
    return replace(leaf, shape=PartialTensorShape(None)) if isinstance(leaf, TensorSpec) else leaf


def _spec_after(leaf: Any, tensor: Tensor) -> Any:
    return replace(leaf, shape=tensor.static_shape) if isinstance(leaf, TensorSpec) else leaf


def _in_rows(parts: Any) -> tuple[Any, list[Tensor]]:
    """A value for `tensors_of_result`: tensors in the form that can be split into rows."""
    tensors = []
    for leaf in flattened(parts):
        cut = ops.serialize_many_sparse(*sparse_parts(leaf), out_type=dtypes.variant) if is_sparse(leaf) else leaf
        tensors.append(convert_to_tensor(cut))
    return None, tensors


def _widened(spec: Any, after: Any) -> Any:
    """The most specific spec that includes both specs of a state."""
    pairs = zip(flattened(spec), flattened(after), strict=True)
    return repacked(
        spec,
        [
            replace(one, shape=common_shape([one.shape, two.shape])) if isinstance(one, TensorSpec) else one
            for one, two in pairs
        ],
    )
