"""`ModelStatistics`: counts and durations of the requests that a version of a model has answered."""

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
    """Counts and durations of the requests that one version of a model has answered, by phase.

    The names are those of the inference protocol's statistics extension.

    Attributes:
        inference_count: rows of all successful requests; a request without a batch dimension counts as 1.
        execution_count: steps run for them.
        last_inference: when the last of them ended, in milliseconds since 1970; 0 if there is none.
        success, fail: durations of whole requests.
        batched: True if steps are counted by `count_batch`, not by `count_success`.
        queue, compute_input, compute_infer, compute_output: durations of the phases of successful requests: waiting for
            a slot, reading and decoding, computing, writing.
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
        """Count a request that was answered.

        Args:
            began, read, ran: when it came, was decoded, and had its results, in nanoseconds of the monotonic clock.
            rows: of its batch dimension.
            queued: nanoseconds between `read` and `ran` for which it waited for a slot.
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
        """Count a step that ran a batch of `rows` rows."""
        self.execution_count += 1
        self._batches.setdefault(rows, _Duration()).add(ns)

    def count_failure(self, began: int) -> None:
        self.fail.add(time.monotonic_ns() - began)

    def describe(self) -> dict[str, Any]:
        """Return the statistics as the inference protocol describes them."""
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
