"""`PaddingFIFOQueue`: a FIFO queue whose components may vary in size; batches are padded."""

from __future__ import annotations

from collections.abc import Iterable

from aexec.framework import errors
from aexec.framework.shape import PartialTensorShape
from aexec.queues import batching
from aexec.queues.batching import Element, Zeros
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.queue_base import QueueSpec
from aexec.queues.queue_registry import register_queue_kind

__all__ = ["PaddingFIFOQueue"]


@register_queue_kind
class PaddingFIFOQueue(FIFOQueue):
    """First in, first out.  Shapes are required; they may leave dimensions open, but not the rank."""

    kind = "PaddingFIFOQueue"

    def __init__(self, name: str, spec: QueueSpec) -> None:
        super().__init__(name, spec)
        if len(spec.shapes) != len(spec.types):
            raise errors.InvalidArgumentError(
                f"Shapes must be provided for all components, but received {len(spec.types)} dtypes and "
                f"{len(spec.shapes)} shapes."
            )

    def check_shapes(self, shapes: Iterable[PartialTensorShape]) -> None:
        for position, shape in enumerate(shapes):
            if shape.dims is None:
                raise errors.InvalidArgumentError(
                    f"shape {shape} must have known rank.  It is that of component {position}"
                )

    def join(self, elements: list[Element], zeros: Zeros | None = None) -> Element:
        if not elements:
            return batching.empty_batch(self.spec.types, self.spec.shapes)
        return batching.join_padded(elements, self.spec.types, self.spec.shapes, zeros)

    def same_shapes(self, shapes: tuple[PartialTensorShape, ...]) -> bool:
        pairs = zip(shapes, self.spec.shapes, strict=True)
        return len(shapes) == len(self.spec.shapes) and all(theirs.is_compatible_with(ours) for theirs, ours in pairs)
