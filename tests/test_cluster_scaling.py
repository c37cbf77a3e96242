"""`scripts/cluster-scaling` simulates steps: with few tasks they take what their messages and kernels do."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from aexec.distributed.memory_engine import NetworkCosts

SCRIPTS = str(Path(__file__).parents[1] / "scripts")
sys.path.insert(0, SCRIPTS)
scaling: Any = importlib.import_module("cluster_scaling")
sys.path.remove(SCRIPTS)


def test_step_takes_what_its_kernel_and_messages_take() -> None:
    row = scaling.scaled(1, NetworkCosts())
    assert row.fan_out == row.training == row.apart == pytest.approx(scaling.KERNEL_SECONDS)
    # Told to run, and that it has ended: by the answer, or a message of its own.
    row = scaling.scaled(1, NetworkCosts(latency=1.0))
    assert row.fan_out == pytest.approx(2 + scaling.KERNEL_SECONDS, abs=0.01)


def test_client_is_at_work_on_all_messages_of_one_graph() -> None:
    costs = NetworkCosts(message=1e-3)
    one, many = scaling.scaled(1, costs), scaling.scaled(16, costs)
    assert many.fan_out - one.fan_out == pytest.approx(15e-3 * 2, rel=0.3)
    assert many.training > many.fan_out
    # Replicas with a session each wait for their parameter server alone.
    assert many.apart < many.training
