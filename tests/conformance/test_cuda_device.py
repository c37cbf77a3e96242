"""Conformance cases give the same with a GPU, of which a stand-in for CuPy takes the place.

Every node runs there that has a kernel for it.  Here a sample runs each time, and with `--soak` all, a family a test.
"""

from __future__ import annotations

import pytest

import aexec
from aexec import errors
from aexec.devices import device_registry
from aexec.framework.types import DEVICE_GPU
from aexec.runtime.config import SessionConfig
from aexec.runtime.planning import captured
from tests.conformance import cases
from tests.conformance.test_passes import check, check_family
from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory

EVERY = 67
# Cases that are not the same question any more, with the reason.
OTHER = {"extra_errors.create.no_kernel": "the message lists the device types that there are"}


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions have a GPU, which is preferred."""
    monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, gpu_factory(fake_cupy())))


@pytest.fixture
def captured_regions_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = SessionConfig.__post_init__

    def capturing(self: SessionConfig) -> None:
        object.__setattr__(self, "capture_graphs", self.device_count.get("GPU") != 0)
        checked(self)

    monkeypatch.setattr(SessionConfig, "__post_init__", capturing)
    monkeypatch.setattr(captured, "is_worth_it", lambda region: True)


def test_sample() -> None:
    check(EVERY, other=OTHER)


def test_second_sample_with_captured_regions(captured_regions_of_any_size: None) -> None:
    check(EVERY, EVERY // 2, OTHER)


@pytest.mark.soak
@pytest.mark.parametrize("family", cases.families())
def test_all(family: str) -> None:
    check_family(family, OTHER)


@pytest.mark.soak
@pytest.mark.parametrize("family", cases.families())
def test_every_family_with_captured_regions(captured_regions_of_any_size: None, family: str) -> None:
    check_family(family, OTHER)


async def test_node_without_a_kernel_there_is_refused_with_its_op_and_types() -> None:
    with aexec.Graph() as graph, aexec.device("/device:GPU:0"):
        x = aexec.placeholder("float64", [2])
        aexec.ops.list_diff(x, x, name="y")
    with pytest.raises(errors.InvalidArgumentError) as refused:
        async with aexec.Session(graph, config=aexec.SessionConfig(allow_soft_placement=False)):
            pass
    for part in ("no supported kernel for GPU devices", "Op: ListDiff", "T=DT_DOUBLE", "device='CPU'"):
        assert part in refused.value.message
