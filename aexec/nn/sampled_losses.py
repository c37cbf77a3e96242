"""Losses over a sample of many classes: sampled softmax, and noise-contrastive estimation.

Next to read: `candidate_samplers.py`, which samples; `embeddings.py`, which looks up the rows of classes.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import dtypes
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.nn.candidate_samplers import Samples, compute_accidental_hits, log_uniform_candidate_sampler
from aexec.nn.cross_entropies import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits
from aexec.nn.embeddings import embedding_lookup

__all__ = ["nce_loss", "sampled_softmax_loss"]


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Samples | None = None,
    *,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Noise-contrastive estimation: Gutmann and Hyvärinen 2010.

    Args:
        weights: [num_classes, dim], or a list of parts; see `embedding_lookup`.
        biases: [num_classes], or a list of parts.
        labels: true classes, [batch, num_true], int64.
        inputs: [batch, dim].
        sampled_values: by default those of `log_uniform_candidate_sampler`, without repetitions.
        remove_accidental_hits: sampled classes that are true ones do not count.

    Returns:
        [batch].
    """
    with name_scope(name or "nce_loss"):
        logits, wanted = _sampled_logits(
            weights,
            biases,
            labels,
            inputs,
            num_sampled,
            num_classes,
            num_true,
            sampled_values,
            remove_accidental_hits,
            partition_strategy,
            seed,
        )
        return ops.sum(sigmoid_cross_entropy_with_logits(wanted, logits), [1])


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Samples | None = None,
    *,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Softmax over the true and the sampled classes: Jean et al. 2015.  Arguments as for `nce_loss`."""
    with name_scope(name or "sampled_softmax_loss"):
        logits, wanted = _sampled_logits(
            weights,
            biases,
            labels,
            inputs,
            num_sampled,
            num_classes,
            num_true,
            sampled_values,
            remove_accidental_hits,
            partition_strategy,
            seed,
        )
        return softmax_cross_entropy_with_logits(ops.stop_gradient(wanted), logits)


def _sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled: Samples | None,
    remove_accidental_hits: bool,
    partition_strategy: str,
    seed: int | None,
) -> tuple[Tensor, Tensor]:
    """Logits of the true and the sampled classes, minus the logarithms of their expected counts, and their labels."""
    true = ops.cast(convert_to_tensor(labels), DstT=dtypes.int64)
    x = convert_to_tensor(inputs)
    if sampled is None:
        sampled = log_uniform_candidate_sampler(true, num_true, num_sampled, True, num_classes, seed)
    candidates, true_expected, sampled_expected = [ops.stop_gradient(tensor) for tensor in sampled]
    flat = ops.reshape(true, [-1])
    rows = ops.concat_v2([flat, candidates], 0)
    count = ops.shape(flat)[0]
    w = embedding_lookup(weights, rows, partition_strategy)
    b = embedding_lookup(biases, rows, partition_strategy)
    of_true = ops.reshape(w[:count], ops.pack([-1, num_true, ops.shape(w)[1]]))
    true_logits = ops.sum(ops.expand_dims(x, 1) * of_true, [2]) + ops.reshape(b[:count], [-1, num_true])
    sampled_logits = ops.mat_mul(x, w[count:], transpose_b=True) + b[count:]
    if remove_accidental_hits:
        sampled_logits = sampled_logits + _accidental(true, candidates, num_true, sampled_logits)
    logits = ops.concat_v2([true_logits - ops.log(true_expected), sampled_logits - ops.log(sampled_expected)], 1)
    wanted = ops.concat_v2([ops.ones_like(true_logits) / float(num_true), ops.zeros_like(sampled_logits)], 1)
    return logits, wanted


def _accidental(true: Tensor, candidates: Tensor, num_true: int, logits: Tensor) -> Tensor:
    """A number to add to the logits: so low for sampled classes that are true ones that they do not count."""
    examples, places, weights = compute_accidental_hits(true, candidates, num_true)
    indices = ops.pack([ops.cast(examples, DstT=dtypes.int64), places], axis=1)
    shape = ops.cast(ops.shape(logits), DstT=dtypes.int64)
    return ops.scatter_nd(indices, ops.cast(weights, DstT=logits.dtype.base), shape)
