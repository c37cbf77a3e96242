"""`tf.train.ClusterSpec`: the jobs of a cluster, with the addresses of their tasks.

Next to read: docs/distributed.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec import proto
from aexec.framework import errors

__all__ = [
    "ClusterSpec",
    "Server",
]


class ClusterSpec:
    """`tf.train.ClusterSpec`.

    Args:
        cluster: job → list of addresses, or job → {task index: address}; a ClusterSpec; or a ClusterDef message.
    """

    def __init__(self, cluster: Any) -> None:
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.as_dict()
        jobs = {job.name: dict(job.tasks) for job in cluster.job} if hasattr(cluster, "job") else dict(cluster)
        self._jobs: dict[str, dict[int, str]] = {
            job: dict(tasks) if isinstance(tasks, Mapping) else dict(enumerate(tasks)) for job, tasks in jobs.items()
        }

    @property
    def jobs(self) -> list[str]:
        """Names of the jobs."""
        return list(self._jobs)

    def _of(self, job_name: str) -> dict[int, str]:
        if job_name not in self._jobs:
            raise errors.InvalidValueError(f"No such job in cluster: {job_name!r}")
        return self._jobs[job_name]

    def num_tasks(self, job_name: str) -> int:
        """The number of tasks of a job.  Raises ValueError if there is no such job."""
        return len(self._of(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The sorted task indices of a job.  Raises ValueError if there is no such job."""
        return sorted(self._of(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of a task.  Raises ValueError if there is no such job or task."""
        if task_index not in self._of(job_name):
            raise errors.InvalidValueError(f"No task with index {task_index!r} in job {job_name!r}")
        return self._of(job_name)[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job's tasks by index, None for missing indices.  Raises ValueError as `num_tasks`."""
        tasks = self._of(job_name)
        return [tasks.get(index) for index in range(max(tasks, default=-1) + 1)]

    def as_dict(self) -> dict[str, Any]:
        """Job → list of addresses, or {task index: address} if indices are missing."""
        whole = {job: sorted(tasks) == list(range(len(tasks))) for job, tasks in self._jobs.items()}
        return {job: self.job_tasks(job) if whole[job] else dict(tasks) for job, tasks in self._jobs.items()}

    def as_cluster_def(self) -> Any:
        """The cluster as a ClusterDef message."""
        made = proto.ClusterDef()
        for job, tasks in sorted(self._jobs.items()):
            made.job.add(name=job).tasks.update(tasks)
        return made

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    __hash__ = None  # type: ignore[assignment]


class Server:
    """`tf.train.Server`: always raises UnimplementedError; the command `aexec serve` runs a task."""

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        raise errors.UnsupportedError(
            "tf.train.Server: a process becomes a task of a cluster by `aexec serve --cluster`: docs/distributed.md"
        )
