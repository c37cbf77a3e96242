"""`EstimateReport`: reports the learned cost of a node's calls.

Next to read: `aexec/framework/kernel_contract/node_estimate.py`, for the states.
"""

from __future__ import annotations

from aexec.framework.late_dataclass import dataclass
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan

__all__ = ["EstimateReport", "report_estimates"]


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """What measured calls have shown of the kernel's own estimate of a node.

    Attributes:
        name, op: the node.
        state: `unmeasured`, `measured`, `suspected`, `heavy` or `suspected again`.
        scale: measured time / estimated time, averaged over calls; 1 if no call was measured.
    """

    name: str
    op: str
    state: str
    scale: float

    def __str__(self) -> str:
        """Such as `measured 0.8x`."""
        return self.state if self.state == "unmeasured" else f"{self.state} {self.scale:.2g}x"


def report_estimates(plan: Plan | PartitionedPlan) -> list[EstimateReport]:
    """The estimates of the nodes that are asked for theirs; others always run on the event loop."""
    parts = plan.plans if isinstance(plan, PartitionedPlan) else (plan,)
    return [
        EstimateReport(node.name, node.op, node.estimate.state.value, node.estimate.scale)
        for part in parts
        for node in part.nodes
        if node.check
    ]
