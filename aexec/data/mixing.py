"""`Mixing`: choose elements from several datasets, or resample one dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import numpy as np

from aexec import ops
from aexec.client.random_ops import random_uniform
from aexec.control_flow.function import TensorSpec
from aexec.data.dataset_base import building
from aexec.data.element_spec import common_spec
from aexec.data.grouping import Grouping
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["Mixing"]

# `rejection_resample` updates its estimate after this many elements, and starts from this count per class.
_COUNTED_AT_ONCE, _ASSUMED = 32, 10


class Mixing(Grouping):
    """The transformations that choose elements."""

    @classmethod
    def choose_from_datasets(
        cls, datasets: Sequence[Any], choice_dataset: Any, stop_on_empty_dataset: bool = True
    ) -> Self:
        """Take each element from the dataset whose index another dataset gives.

        Args:
            choice_dataset: a dataset of int64 scalars.
            stop_on_empty_dataset: True to end when a chosen dataset has ended, False to skip that choice.

        Raises:
            InvalidArgumentError: `datasets` is empty, or the specs of their elements differ.
        """
        if not datasets:
            raise errors.InvalidValueError("Invalid `datasets`. `datasets` should not be empty.")
        if choice_dataset.spec_here != TensorSpec(PartialTensorShape([]), dtypes.int64):
            raise errors.InvalidTypeError(
                f"choice_dataset must have int64 scalars as elements, and has {choice_dataset.element_spec!r}"
            )
        return cls._interleaved(choice_dataset, datasets, stop_on_empty_dataset)

    @classmethod
    def _interleaved(cls, choices: Any, datasets: Sequence[Any], stops: bool) -> Self:
        spec = common_spec([one.spec_here for one in datasets], "The datasets to choose from")
        inputs = {"selector_input_dataset": choices.variant, "data_input_datasets": [one.variant for one in datasets]}
        with building(choices.graph):
            return cls.made("DirectedInterleaveDataset", inputs, spec, {"stop_on_empty_dataset": stops})

    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Sequence[Any],
        weights: Any = None,
        seed: Any = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Self:
        """Take each element from a dataset that is chosen at random.

        Args:
            weights: probabilities of the datasets: a list, a float vector, or a dataset of such vectors.  Equal by
                default.
            stop_on_empty_dataset: True to end when a chosen dataset has ended, False to skip that choice.

        Raises:
            InvalidArgumentError: `datasets` is empty, or there is not a weight for each.
        """
        if not datasets:
            raise errors.InvalidValueError("Invalid `datasets`. `datasets` should not be empty.")
        with building(datasets[0].graph):
            if isinstance(weights, cls.dialect.dataset_class):
                return cls._sampled_by(weights, datasets, seed, stop_on_empty_dataset, rerandomize_each_iteration)
            chosen, logits = _logits(list(datasets), weights)
            if len(chosen) == 1:
                return cast(Self, chosen[0])
            pairs = cls.random(seed, rerandomize_each_iteration).batch(2)
            return cls._interleaved(pairs.map(lambda pair: _drawn(logits, pair)), chosen, stop_on_empty_dataset)

    @classmethod
    def _sampled_by(
        cls, weights: Any, datasets: Sequence[Any], seed: Any, stops: bool, rerandomizes: bool | None
    ) -> Self:
        logits = weights.map(lambda *parts: ops.log(ops.pack(list(parts))))
        pairs = cls.zip((logits, cls.random(seed, rerandomizes).batch(2)))
        return cls._interleaved(pairs.map(_drawn), datasets, stops)

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Self:
        """Drop elements at random so that classes have a given distribution; yields pairs (class, element).

        Args:
            class_func: element → class, an int32 scalar.
            target_dist: the desired fraction of each class, a float vector.
            initial_dist: the fraction of each class in this dataset; by default estimated during the pass.
        """
        with building(self.graph):
            target = ops.cast(convert_to_tensor(target_dist, name="target_dist"), DstT=dtypes.float32)
            if initial_dist is None:
                shares = _counted(self.map(class_func), target)
                mixes = shares.map(lambda share: _acceptance(share, target))
                accepted, kept = mixes.map(lambda accept, _: accept), mixes.map(lambda _, keep: keep)
                always = None
            else:
                share = ops.cast(convert_to_tensor(initial_dist, name="initial_dist"), DstT=dtypes.float32)
                accepted, kept = (self.from_tensors(one).repeat() for one in _acceptance(share, target))
                always = _known_share(initial_dist, target_dist)
            with_class = self.map(lambda *parts: _with_class(class_func, parts))
            if always == 1:
                return with_class
            filtered = self._accepted(class_func, accepted, seed).prefetch(3)
            if always == 0:
                return cast(Self, filtered)
            weights = kept.map(lambda keep: ops.pack([keep, 1.0 - keep]))
            mixed: Self = self.sample_from_datasets([with_class, filtered], weights, seed, stop_on_empty_dataset=True)
            return mixed

    def _accepted(self, class_func: Callable[..., Any], accepted: Any, seed: int | None) -> Any:
        """Keep each (class, element) pair with the acceptance probability of its class."""

        def with_probability(probabilities: Tensor, data: Any) -> Any:
            kind = class_func(*data) if isinstance(data, tuple) else class_func(data)
            return kind, ops.gather_v2(probabilities, kind, 0), data

        drawn = self.zip((accepted, self)).map(with_probability)
        kept = drawn.filter(lambda _kind, p, _data: ops.less(random_uniform([], dtype=p.dtype, seed=seed), p))
        return kept.map(lambda kind, _p, data: (kind, data))


def _logits(datasets: list[Any], weights: Any) -> tuple[list[Any], Any]:
    """The datasets whose weight is not 0, and the logs of their weights, [1, n]."""
    if weights is None:
        return datasets, np.ones([1, len(datasets)], np.float32)
    if not isinstance(weights, Tensor):
        if len(weights) != len(datasets):
            raise errors.InvalidValueError(
                "Invalid `weights`. `weights` should have the same length as `datasets` but got "
                f"`len(weights)={len(weights)}` vs. `len(datasets)={len(datasets)}`."
            )
        pairs = [(one, weight) for one, weight in zip(datasets, weights, strict=True) if weight > 0]
        datasets, weights = (
            ([one for one, _ in pairs], [w for _, w in pairs]) if pairs else ([datasets[0].take(0)], [1.0])
        )
    tensor = convert_to_tensor(weights, name="weights")
    if tensor.dtype.base not in (dtypes.float32, dtypes.float64):
        raise errors.InvalidTypeError(f"weights must be of type float32 or float64, got {tensor.dtype}")
    return datasets, ops.expand_dims(ops.log(tensor), 0)


def _drawn(logits: Any, pair: Tensor) -> Tensor:
    """Draw the index of a dataset, with a pair of random numbers as the seed."""
    return ops.squeeze(ops.stateless_multinomial(logits, 1, pair), squeeze_dims=[0, 1])


def _with_class(class_func: Callable[..., Any], parts: Any) -> Any:
    return class_func(*parts), parts[0] if len(parts) == 1 else parts


def _counted(classes: Any, target: Tensor) -> Any:
    """For each element, the estimated fraction of each class among the elements so far."""
    number = target.static_shape[0] if target.static_shape.rank == 1 else None
    size = number if number is not None else ops.shape(target)[0]
    start = ops.fill(ops.pack([size]), np.int64(_ASSUMED))

    def count(seen: Tensor, some: Tensor) -> Any:
        new = ops.sum(ops.one_hot(some, size, np.int64(1), np.int64(0)), [0])
        now = ops.add_v2(seen, new)
        total = ops.cast(ops.sum(now, [0]), DstT=dtypes.float64)
        share = ops.cast(ops.cast(now, DstT=dtypes.float64) / total, DstT=dtypes.float32)
        return now, ops.tile(ops.expand_dims(share, 0), [_COUNTED_AT_ONCE, 1])

    return classes.batch(_COUNTED_AT_ONCE).scan(start, count).unbatch()


def _acceptance(share: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The acceptance probability of each class, and the probability of taking an element without a test."""
    ratio = target / (share + np.float32(np.finfo(np.float32).tiny))
    largest, least = ops.max(ratio, [0]), ops.min(ratio, [0])
    return (ratio - least) / (largest - least), least


def _known_share(initial: Any, target: Any) -> float | None:
    """The probability of taking an element without a test, if it is known while the graph is built."""
    if isinstance(initial, Tensor) or isinstance(target, Tensor):
        return None
    return float(np.min(np.asarray(target, np.float32) / np.asarray(initial, np.float32)))
