"""`RegionTrial` as a table of times."""

from __future__ import annotations

import numpy as np
import pytest

from aexec.runtime.planning.region_trial import RegionTrial


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ([9.0, 1.0, 2.0, 1.0, 2.0], False),
        ([9.0, 3.0, 2.0, 3.0, 2.0], True),
        ([9.0, 2.4, 2.0, 9.0, 9.0], False),  # not clearly
        ([0.1, 3.0, 2.0, 3.0, 9.0], True),  # the delegate's first call does not count
    ],
)
def test_trial_chooses_by_the_least_times(times: list[float], chosen: bool) -> None:
    trial, asked = RegionTrial(), []
    for seconds in times:
        assert not trial.ended
        asked.append(trial.delegate_is_next)
        trial.took(seconds)
    assert trial.ended and asked == [True, True, False, True, False]
    assert trial.nodes_are_faster is chosen


def test_trial_is_about_calls_with_the_shapes_of_the_first() -> None:
    trial = RegionTrial()
    assert trial.is_about([np.zeros([2, 3]), np.zeros([])])
    assert not trial.is_about([np.zeros([2, 4]), np.zeros([])])
    assert trial.is_about([np.ones([2, 3]), np.ones([])])
