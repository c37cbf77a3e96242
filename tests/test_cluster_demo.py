"""`scripts/cluster-demo`: its training over a cluster in memory, a worker of which dies; and the whole, as a soak."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from aexec.distributed.memory_engine import MemoryCluster

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
demo: Any = importlib.import_module("cluster_demo")
sys.path.remove(str(ROOT / "scripts"))


async def test_replicas_in_rounds_have_the_losses_of_one_process_although_one_dies(tmp_path: Path) -> None:
    """Four replicas and two parameter servers; the checkpoint has a part of each server."""
    said: list[str] = []
    async with MemoryCluster("demo", 7, lease=60) as cluster:
        training = demo.ClusterTraining("memory://demo", 14, 32, cluster.kill, 12, said.append)
        await training.run(str(tmp_path))
    assert training.sessions == 2
    assert any("worker/replica:0/task:3 at worker-5 was killed" in line for line in said)
    assert any("goes on from the checkpoint of round 10" in line for line in said)
    assert not np.isnan(training.losses[:-1]).any()
    expected = await demo.losses_of_one_process(14, 32)
    assert training.compared(expected) < 1e-5
    assert expected[-1] < expected[0] / 2


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_demo_runs_on_a_cluster_of_processes(protocol: str, tmp_path: Path) -> None:
    command = [sys.executable, "scripts/cluster_demo.py", "--steps", "30"]
    if protocol == "tls":
        command += certified(tmp_path)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was killed" in done.stdout and "a new session goes on" in done.stdout
    assert f"Dask's scheduler is {protocol}://127.0.0.1:" in done.stdout


def certified(folder: Path) -> list[str]:
    """The demo's flags for TLS."""
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    ca, cert, key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
    authority.cert_pem.write_to_path(ca)
    leaf.cert_chain_pems[0].write_to_path(cert)
    leaf.private_key_pem.write_to_path(key)
    return [f"--ca={ca}", f"--cert={cert}", f"--key={key}"]
