"""Shape functions of `candidate_sampling_ops.py`."""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import InferenceContext


def candidate_sampler(c: InferenceContext) -> None:
    """Sampled candidates, and expected counts of true and of sampled ones."""
    sampled, true = c.attr("num_sampled"), c.attr("num_true")
    if sampled < 1:
        raise errors.InvalidArgumentError("num_sampled must be >=1")
    if true < 1:
        raise errors.InvalidArgumentError("num_true must be >=1")
    classes = c.with_rank(c.input(0), 2)
    c.set_output(0, c.vector(sampled))
    c.set_output(1, c.matrix(c.dim(classes, 0), true))
    c.set_output(2, c.vector(sampled))


def accidental_hits(c: InferenceContext) -> None:
    """Three vectors of one unknown length."""
    classes = c.with_rank(c.input(0), 2)
    c.with_value(c.dim(classes, 1), c.attr("num_true"))
    c.with_rank(c.input(1), 1)
    hits = c.vector(None)
    for index in range(3):
        c.set_output(index, hits)
