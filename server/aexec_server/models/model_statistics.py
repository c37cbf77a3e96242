"""`ModelStatistics`: how many requests a model's version has answered, and how long each part of them took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ModelStatistics"]


@dataclass(slots=True)
class _Duration:
    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns

    def describe(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.ns}


_PARTS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


@dataclass(slots=True)
class ModelStatistics:
    """Numbers and durations of the requests that one version of a model has answered, by part.

    The names are those of the inference protocol's statistics extension.

    Attributes:
        inference_count: rows of all requests that succeeded, 1 for one without a batch dimension.
        execution_count: steps that were run for them.
        last_inference: when the last of them ended, in milliseconds since 1970; 0 if there is none.
        success, fail: whole requests.
        batched: `count_batch` is told of the steps.
        queue, compute_input, compute_infer, compute_output: of those that succeeded, how long they waited to be begun,
            were read and decoded, computed, and written.
    """

    inference_count: int = 0
    execution_count: int = 0
    last_inference: int = 0
    success: _Duration = field(default_factory=_Duration)
    fail: _Duration = field(default_factory=_Duration)
    queue: _Duration = field(default_factory=_Duration)
    compute_input: _Duration = field(default_factory=_Duration)
    compute_infer: _Duration = field(default_factory=_Duration)
    compute_output: _Duration = field(default_factory=_Duration)
    batched: bool = False
    _batches: dict[int, _Duration] = field(default_factory=dict)

    def count_success(self, began: int, read: int, ran: int, rows: int, queued: int) -> None:
        """A request was answered.

        Args:
            began, read, ran: when it came, was decoded, and had its results, in nanoseconds of the monotonic clock.
            queued: nanoseconds of this that it stood in line for its turn.
        """
        now = time.monotonic_ns()
        self.inference_count += rows
        if not self.batched:
            self.execution_count += 1
        self.last_inference = time.time_ns() // 1_000_000
        self.success.add(now - began)
        self.queue.add(queued)
        self.compute_input.add(read - began)
        self.compute_infer.add(ran - read - queued)
        self.compute_output.add(now - ran)

    def count_batch(self, rows: int, ns: int) -> None:
        """A step of so many rows was run."""
        self.execution_count += 1
        self._batches.setdefault(rows, _Duration()).add(ns)

    def count_failure(self, began: int) -> None:
        self.fail.add(time.monotonic_ns() - began)

    def describe(self) -> dict[str, Any]:
        """As the inference protocol has it."""
        parts = {name: getattr(self, name) for name in _PARTS}
        return {
            "last_inference": self.last_inference,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {name: part.describe() for name, part in parts.items()},
            "batch_stats": [
                {"batch_size": rows, "compute_infer": part.describe()} for rows, part in sorted(self._batches.items())
            ],
        }
