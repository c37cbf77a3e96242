"""Helpers of decoders: sample from a step's outputs, and choose the inputs of the next step.

Next to read: `decoding.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import nn, ops
from aexec.client.random_ops import random_uniform
from aexec.client.random_seed import get_seed
from aexec.control_flow.cond import cond
from aexec.control_flow.structure import leaves_of, pack
from aexec.control_flow.tensor_array import TensorArray
from aexec.framework import dtypes, errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.recurrent_networks import chosen_examples

__all__ = [
    "CustomHelper",
    "GreedyEmbeddingHelper",
    "Helper",
    "InferenceHelper",
    "SampleEmbeddingHelper",
    "ScheduledEmbeddingTrainingHelper",
    "TrainingHelper",
    "embedding_of",
]


def embedding_of(embedding: Any) -> Callable[[Any], Tensor]:
    """Return a function from ids to embeddings: the given function, or a lookup in the given matrix."""
    return embedding if callable(embedding) else lambda ids: nn.embedding_lookup(embedding, ids)


def _likeliest(outputs: Any) -> Tensor:
    return ops.arg_max(outputs, -1, output_type=dtypes.int32)


def _drawn(logits: Any, seed: int | None) -> Tensor:
    """Draw a class per example from logits [batch, classes]; returns [batch], int32."""
    first, second = get_seed(seed)
    return ops.cast(ops.multinomial(logits, 1, seed=first, seed2=second), DstT=dtypes.int32)[:, 0]


class Helper:
    """`tf.contrib.seq2seq.Helper`: the base of helpers.  A subclass sets `batch_size` and overrides the methods.

    Attributes:
        batch_size: the number of examples.
        sample_ids_shape: the shape of one example's sample.
        sample_ids_dtype: the dtype of samples.
    """

    batch_size: Any
    sample_ids_shape: Any = ()
    sample_ids_dtype: Any = dtypes.int32

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Return which examples have finished, [batch], bool; and the first inputs."""
        raise NotImplementedError

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Sample from the outputs of a step: ids, [batch, *sample_ids_shape]."""
        raise NotImplementedError

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        """Return which examples have finished, [batch], bool; the next inputs; and the next state."""
        raise NotImplementedError


class CustomHelper(Helper):
    """`tf.contrib.seq2seq.CustomHelper`: a helper whose three methods are given as functions."""

    def __init__(
        self,
        initialize_fn: Callable[..., Any],
        sample_fn: Callable[..., Any],
        next_inputs_fn: Callable[..., Any],
        sample_ids_shape: Any = None,
        sample_ids_dtype: Any = None,
    ) -> None:
        self._initialize_fn = initialize_fn
        self._sample_fn = sample_fn
        self._next_inputs_fn = next_inputs_fn
        self.sample_ids_shape = sample_ids_shape or ()
        self.sample_ids_dtype = dtypes.as_dtype(sample_ids_dtype or dtypes.int32)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        finished, inputs = self._initialize_fn()
        self.batch_size = ops.size(finished)
        return finished, inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        found: tuple[Any, Any, Any] = self._next_inputs_fn(
            time=time, outputs=outputs, state=state, sample_ids=sample_ids
        )
        return found


class TrainingHelper(Helper):
    """`tf.contrib.seq2seq.TrainingHelper`: feeds given inputs; samples are the argmax of the outputs.

    Args:
        inputs: [batch, time, …], or a structure of such tensors; [time, batch, …] if `time_major`.
        sequence_length: length of each example, [batch], an integer.

    Raises:
        ValueError: `sequence_length` is not a vector, or the rank of an input is unknown.
    """

    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None) -> None:
        self.sequence_length = convert_to_tensor(sequence_length, None, "sequence_length")
        if self.sequence_length.static_shape.rank not in (None, 1):
            raise errors.InvalidValueError(
                f"Expected sequence_length to be a vector, but received shape: {self.sequence_length.static_shape}"
            )
        given = [convert_to_tensor(leaf) for leaf in leaves_of(inputs)]
        by_time = given if time_major else [_swapped(leaf) for leaf in given]
        self._structure = inputs
        self._steps = ops.shape(by_time[0])[0]
        self._arrays = [
            TensorArray(leaf.dtype.base, self._steps, clear_after_read=False).unstack(leaf) for leaf in by_time
        ]
        self._shapes = [list(leaf.static_shape)[1:] for leaf in by_time]
        self._empty = [ops.zeros_like(ops.sum(leaf, [0])) for leaf in by_time]
        self.batch_size = ops.size(self.sequence_length)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        finished = ops.less_equal(self.sequence_length, ops.zeros_like(self.sequence_length))
        if_any = cond(
            ops.greater(self._steps, 0),
            lambda: [array.read(0) for array in self._arrays],
            lambda: list(self._empty),
        )
        return finished, self._packed(if_any)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return _likeliest(outputs)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        later = time + 1
        finished = ops.greater_equal(ops.cast(later, DstT=self.sequence_length.dtype.base), self.sequence_length)
        # The last step still needs inputs for a next one, which nobody uses: read the last again.
        at = ops.minimum(later, self._steps - 1)
        return finished, self._packed([array.read(at) for array in self._arrays]), state

    def _packed(self, values: Any) -> Any:
        known = [
            ops.ensure_shape(leaf, shape=shape) for leaf, shape in zip(leaves_of(values), self._shapes, strict=True)
        ]
        return pack(self._structure, known)


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """`tf.contrib.seq2seq.ScheduledEmbeddingTrainingHelper`: scheduled sampling, Bengio et al. 2015.

    For each example and step, the next input is with `sampling_probability` the embedding of a sampled id, otherwise
    the given input; the sample is then -1.

    Args:
        embedding: a matrix, or a function from ids to inputs.
        sampling_probability: a scalar or [batch], in [0, 1].
        seed, scheduling_seed: seeds of the samples, and of the choices between sample and input.

    Other arguments, and errors, are those of `TrainingHelper`.
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(inputs, sequence_length, time_major, name)
        self._embed = embedding_of(embedding)
        self._probability = sampling_probability
        self._seeds = seed, scheduling_seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        ids = _drawn(outputs, self._seeds[0])
        takes = ops.less(random_uniform(ops.shape(ids), seed=self._seeds[1]), self._probability)
        return ops.select_v2(takes, ids, ops.fill(ops.shape(ids), -1))

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        finished, given, _ = super().next_inputs(time, outputs, state, sample_ids)
        written = self._embed(ops.maximum(sample_ids, 0))
        return finished, chosen_examples(ops.greater_equal(sample_ids, 0), written, given), state


class GreedyEmbeddingHelper(Helper):
    """`tf.contrib.seq2seq.GreedyEmbeddingHelper`: feeds the embedding of the most probable id.

    Args:
        embedding: a matrix, or a function from ids to inputs.
        start_tokens: the first ids, [batch], int32.
        end_token: the id that ends a sequence, an int32 scalar.

    Raises:
        ValueError: `start_tokens` is not a vector, or `end_token` is not a scalar.
    """

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embed = embedding_of(embedding)
        self._start = convert_to_tensor(start_tokens, dtypes.int32, "start_tokens")
        self._end = convert_to_tensor(end_token, dtypes.int32, "end_token")
        if self._start.static_shape.rank not in (None, 1):
            raise errors.InvalidValueError("start_tokens must be a vector")
        if self._end.static_shape.rank not in (None, 0):
            raise errors.InvalidValueError("end_token must be a scalar")
        self.batch_size = ops.size(self._start)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        return ops.fill(ops.shape(self._start), False), self._embed(self._start)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        if not isinstance(outputs, Tensor):
            raise errors.InvalidTypeError(f"Expected outputs to be a single Tensor, got: {type(outputs)}")
        return _likeliest(outputs)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        return ops.equal(sample_ids, self._end), self._embed(sample_ids), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """`tf.contrib.seq2seq.SampleEmbeddingHelper`: feeds the embedding of a sampled id.

    Args:
        softmax_temperature: positive; divides the logits before sampling.  None for 1.
        seed: seed of the samples.

    Other arguments, and errors, are those of `GreedyEmbeddingHelper`.
    """

    def __init__(
        self,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        softmax_temperature: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._temperature = softmax_temperature
        self._seed = seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return _drawn(outputs if self._temperature is None else outputs / self._temperature, self._seed)


class InferenceHelper(Helper):
    """`tf.contrib.seq2seq.InferenceHelper`: samples, ends and next inputs come from functions.

    Args:
        sample_fn: outputs of a step → sample.
        sample_shape, sample_dtype: shape of one example's sample, and dtype of samples.
        start_inputs: the first inputs, [batch, …].
        end_fn: sample → which examples have finished, [batch], bool.
        next_inputs_fn: sample → next inputs; by default the sample itself.
    """

    def __init__(
        self,
        sample_fn: Callable[[Any], Any],
        sample_shape: Any,
        sample_dtype: Any,
        start_inputs: Any,
        end_fn: Callable[[Any], Any],
        next_inputs_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        self._sample_fn = sample_fn
        self._end_fn = end_fn
        self._next_inputs_fn = next_inputs_fn
        self.sample_ids_shape = sample_shape
        self.sample_ids_dtype = dtypes.as_dtype(sample_dtype)
        self._start = convert_to_tensor(start_inputs, None, "start_inputs")
        self.batch_size = ops.shape(self._start)[0]

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        return ops.fill(ops.pack([self.batch_size]), False), self._start

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return self._sample_fn(outputs)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> tuple[Any, Any, Any]:
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state


def _swapped(value: Tensor) -> Tensor:
    """Exchange the first two axes.  Raises ValueError if the rank is unknown."""
    if value.static_shape.rank is None:
        raise errors.InvalidValueError(f"the rank of '{value.name}' must be known")
    return ops.transpose(value, [1, 0, *range(2, value.static_shape.rank)])
