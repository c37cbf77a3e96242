"""Which worker each task of a job is."""

from __future__ import annotations

from typing import Any

import pytest

from aexec import errors
from aexec.distributed.cluster_spec import ClusterSpec, task_name, task_of

WORKERS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        (None, {"worker": ["a", "b", "c"]}),
        ({"ps": 1, "worker": 2}, {"ps": ["a"], "worker": ["b", "c"]}),
        ({"worker": 2, "ps": ["b"]}, {"worker": ["a", "c"], "ps": ["b"]}),
    ],
)
def test_tasks_take_workers(jobs: Any, expected: dict[str, list[str]]) -> None:
    wanted = {task_name(job, i): address for job, tasks in expected.items() for i, address in enumerate(tasks)}
    assert ClusterSpec(jobs).resolve(WORKERS) == wanted


def test_invalid_cluster_specs_are_refused() -> None:
    for jobs in ({"ps": 0}, {"ps": "a"}, {"ps": -1}, {"ps": []}):
        with pytest.raises(errors.InvalidArgumentError, match="job 'ps' must have a number of tasks"):
            ClusterSpec(jobs)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError):
        ClusterSpec({"no job": 1})
    with pytest.raises(errors.InvalidArgumentError, match="a: a worker can be one task only"):
        ClusterSpec({"ps": ["a"], "worker": ["b", "a"]})
    with pytest.raises(errors.UnavailableError, match="no worker z; there are a, b, c"):
        ClusterSpec({"ps": ["z"]}).resolve(WORKERS)
    with pytest.raises(errors.UnavailableError, match="too few"):
        ClusterSpec({"worker": 4}).resolve(WORKERS)


def test_task_of_a_device() -> None:
    assert task_of("/job:ps/replica:0/task:3/device:GPU:1") == task_name("ps", 3)
