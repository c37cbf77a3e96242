"""Conformance cases give the same with a GPU, of which a stand-in for CuPy takes the place.

Every node runs there that has a kernel for it.  Here a sample runs each time, and all with `--soak`.
"""

from __future__ import annotations

import pytest

from aexec.devices import device_registry
from aexec.devices.cuda_device import CudaDevice
from aexec.framework.types import DEVICE_GPU
from tests.conformance.test_conformance import NOT_YET, UNDETERMINED, outcome
from tests.conformance.test_passes import complete_cases
from tests.support.fake_cupy import fake_cupy

EVERY = 11
# Cases that are not the same question any more, or not answered yet, with the reason.
OTHER = {
    "extra_errors.create.no_kernel": "the message lists the device types that there are",
    "controlflow_v2.call_stateful_variable": "a function that is not inlined runs on the host, and changes a variable "
    "that a node on the GPU has set; placement does not look into functions for the variables that they use",
}


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions have a GPU, which is preferred."""
    cupy = fake_cupy()

    def devices(task: str, count: int | None) -> list[CudaDevice]:
        return [] if count == 0 else [CudaDevice(f"{task}/device:GPU:0", cupy=cupy)]

    monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, devices))


def check(every: int) -> None:
    known = {*NOT_YET, *UNDETERMINED, *OTHER}
    failures = {
        name: why
        for family, name in list(complete_cases())[::every]
        if name not in known and (why := outcome(family, name)) is not None
    }
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


def test_a_sample() -> None:
    check(EVERY)


@pytest.mark.soak
def test_all() -> None:
    check(1)
