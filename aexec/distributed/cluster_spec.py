"""`ClusterSpec`: the jobs of a cluster, and the worker of each task.

A task is named `/job:worker/replica:0/task:1`, which begins the names of its devices.  A job is given as a number of
tasks, which are assigned to the workers in order, or as the workers' addresses. After TensorFlow's
tf.train.ClusterSpec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aexec.framework import errors
from aexec.framework.device_contract.device_name import DeviceName

__all__ = ["ClusterSpec", "task_name", "task_of"]


def task_name(job: str, index: int, replica: int = 0) -> str:
    """The name of a task, which begins the names of its devices."""
    return f"/job:{job}/replica:{replica}/task:{index}"


def task_of(device: str) -> str:
    """The name of the task that has a device, given its full name."""
    return str(DeviceName.parse(device).without_device())


class ClusterSpec:
    """The jobs of a cluster, and the worker's address for each task of a job.

    Args:
        jobs: name → number of tasks, or the addresses of their workers; None is one job `worker` of all workers.

    Raises:
        InvalidArgumentError: a job without tasks, an invalid name of a job, or one worker for two tasks.
    """

    def __init__(self, jobs: Mapping[str, int | Sequence[str]] | None = None) -> None:
        self._jobs = None if jobs is None else dict(jobs)
        for job, tasks in (self._jobs or {}).items():
            DeviceName.parse(task_name(job, 0))
            if not tasks or isinstance(tasks, str) or (isinstance(tasks, int) and tasks < 0):
                raise errors.InvalidArgumentError(
                    f"job '{job}' must have a number of tasks, or a list of addresses, got {tasks!r}"
                )

        named = [address for tasks in (self._jobs or {}).values() if not isinstance(tasks, int) for address in tasks]
        if twice := sorted({address for address in named if named.count(address) > 1}):
            raise errors.InvalidArgumentError(f"{', '.join(twice)}: a worker can be one task only")

    def resolve(self, workers: Sequence[str]) -> dict[str, str]:
        """Task name → address of its worker.

        Args:
            workers: addresses of the present workers.

        Raises:
            UnavailableError: there are too few workers, or a named one is missing.
        """
        if self._jobs is None:
            return {task_name("worker", index): address for index, address in enumerate(workers)}
        named = {address for tasks in self._jobs.values() if not isinstance(tasks, int) for address in tasks}
        if missing := sorted(named - set(workers)):
            raise errors.UnavailableError(f"There is no worker {', '.join(missing)}; there are {', '.join(workers)}")
        free = iter([address for address in workers if address not in named])
        found: dict[str, str] = {}
        for job, tasks in self._jobs.items():
            for index in range(tasks if isinstance(tasks, int) else len(tasks)):
                address = next(free, None) if isinstance(tasks, int) else tasks[index]
                if address is None:
                    raise errors.UnavailableError(
                        f"The cluster has {len(workers)} workers, too few for {self!r}: none is left for "
                        f"{task_name(job, index)}"
                    )
                found[task_name(job, index)] = address
        return found

    def replacement(self, task: str, address: str, free: Sequence[str]) -> str | None:
        """The worker that can replace a lost task: the free one at its address, or else any free one.

        Args:
            task: its name.
            address: where it was.
            free: addresses of the workers that are no task.

        Returns:
            None if there is none; a task that is given by its address cannot be anywhere else.
        """
        if address in free:
            return address
        job = DeviceName.parse(task).job or ""
        is_named = self._jobs is not None and not isinstance(self._jobs.get(job, 0), int)
        return None if is_named else next(iter(free), None)

    def __repr__(self) -> str:
        return f"ClusterSpec({self._jobs!r})"
