"""Shape functions of the ops in `parsing_ops` that parse SequenceExamples: a context, and lists of features.

All describe their features by groups of attrs (and of inputs) that must agree on how many there are.
"""

from __future__ import annotations

from aexec.framework import errors
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape


def parse_sequence_example(c: InferenceContext) -> None:
    """A vector of examples; the keys are attrs."""
    _check_counts(c, {kind: [f"{kind}_keys"] for kind in ("context_sparse", "context_dense", *_LISTS)})
    _check_features(c, c.attr("Ncontext_dense"))
    examples = c.with_rank(c.input(0), 1)
    c.with_rank(c.input(1), 1)
    _set_features(c, examples)
    c.set_output_named("feature_list_dense_lengths", [examples] * c.attr("Nfeature_list_dense"))


def parse_sequence_example_v2(c: InferenceContext) -> None:
    """A scalar or a vector of examples; the keys are inputs, and features may be ragged."""
    for kind in ("context_ragged", "feature_list_ragged"):
        types = [f"{kind}_value_types", f"{kind}_split_types"]
        _check_same_count(c, kind, len(c.attr(types[0])), types)
    _check_features(c, len(c.attr("Tcontext_dense")))
    examples = c.with_rank_at_most(c.input(0), 1)
    c.with_rank_at_most(c.input(1), 1)
    _set_features(c, examples)
    c.set_output_named("feature_list_dense_lengths", [examples] * c.attr("Nfeature_list_dense"))
    splits = c.vector(c.add(c.dim(examples, 0), 1) if examples.dims else None)
    anything = c.vector(None)
    for name, shape in (
        ("context_ragged_values", anything),
        ("context_ragged_row_splits", splits),
        ("feature_list_ragged_values", anything),
        ("feature_list_ragged_outer_splits", splits),
        ("feature_list_ragged_inner_splits", anything),
    ):
        c.set_output_named(name, [shape] * len(c.output_named(name)))


def parse_single_sequence_example(c: InferenceContext) -> None:
    """A single example, a scalar; the keys are inputs."""
    c.with_rank(c.input(0), 0)
    c.with_rank(c.input(1), 1)
    for kind in ("context_sparse", "context_dense", *_LISTS):
        what = ["Tcontext_dense", "context_dense_shapes"] if kind == "context_dense" else [f"{kind}_types"]
        for attr in what:
            if len(c.attr(attr)) != c.attr(f"N{kind}"):
                name = "context_dense_types" if attr == "Tcontext_dense" else attr
                raise errors.InvalidArgumentError(f"len({kind}_keys) != len({name})")
    _set_features(c, c.scalar())


_LISTS = ("feature_list_sparse", "feature_list_dense")


def _check_same_count(c: InferenceContext, kind: str, count: int, attrs: list[str]) -> None:
    """Raise InvalidArgumentError unless each of these lists has one element per feature of its kind."""
    if any(len(c.attr(attr)) != count for attr in attrs):
        names = ["context_dense_types" if attr == "Tcontext_dense" else attr for attr in attrs]
        sizes = " and ".join(f"{name} ({len(c.attr(attr))})" for name, attr in zip(names, attrs, strict=True))
        raise errors.InvalidArgumentError(f"num_{kind} ({count}) must match the size of {sizes}")


def _check_counts(c: InferenceContext, attrs_of: dict[str, list[str]]) -> None:
    for kind, attrs in attrs_of.items():
        _check_same_count(c, kind, c.attr(f"N{kind}"), attrs)


def _check_features(c: InferenceContext, context_dense: int) -> None:
    _check_counts(c, {"context_sparse": ["context_sparse_types"]})
    _check_same_count(c, "context_dense", context_dense, ["Tcontext_dense", "context_dense_shapes"])
    _check_counts(
        c,
        {
            "feature_list_sparse": ["feature_list_sparse_types"],
            "feature_list_dense": ["feature_list_dense_types", "feature_list_dense_shapes"],
        },
    )


def _set_features(c: InferenceContext, examples: Shape) -> None:
    """The sparse and the dense features of the context, and of the lists, which have one more dimension."""
    rank = None if examples.dims is None else len(examples.dims)
    _set_sparse(c, "context_sparse", None if rank is None else rank + 1)
    _set_sparse(c, "feature_list_sparse", None if rank is None else rank + 2)
    context = [c.concatenate(examples, shape) for shape in _dense_shapes(c, "context_dense_shapes")]
    c.set_output_named("context_dense_values", context)
    rows = c.concatenate(examples, c.vector(None))
    lists = [c.concatenate(rows, shape) for shape in _dense_shapes(c, "feature_list_dense_shapes")]
    # Nothing checks the number of shapes in a single example's lists: missing ones are unknown.
    count = len(c.attr("feature_list_dense_types"))
    c.set_output_named("feature_list_dense_values", (lists + [c.unknown_shape()] * count)[:count])


def _set_sparse(c: InferenceContext, kind: str, rank: int | None) -> None:
    count = c.attr(f"N{kind}")
    c.set_output_named(f"{kind}_indices", [c.matrix(None, rank)] * count)
    c.set_output_named(f"{kind}_values", [c.vector(None)] * count)
    c.set_output_named(f"{kind}_shapes", [c.vector(rank)] * count)


def _dense_shapes(c: InferenceContext, attr: str) -> list[Shape]:
    """The shapes of one example's features; one of unknown rank counts as a scalar.

    Raises:
        InvalidArgumentError: a dimension is not known.
    """
    shapes = []
    for shape in c.attr(attr):
        if shape.dims is not None and None in shape.dims:
            raise errors.InvalidArgumentError(f"Shape {shape} is not fully defined")
        shapes.append(c.make_shape(shape.dims or ()))
    return shapes
