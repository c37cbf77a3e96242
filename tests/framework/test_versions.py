from __future__ import annotations

import pytest

from aexec import proto
from aexec.framework import errors, versions


def of(producer=0, min_consumer=0, bad_consumers=()):
    return proto.VersionDef(producer=producer, min_consumer=min_consumer, bad_consumers=bad_consumers)


@pytest.mark.parametrize("data", [of(0), of(10, 2474), of(99999), of(24, 0, [1, 2473])])
def test_compatible_versions_pass(data):
    versions.check(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (of(-1), "GraphDef producer version -1 below min producer 0 supported by"),
        (of(10, 99999), "GraphDef min consumer version 99999 above current version 2474"),
        (of(10, 0, [2474]), "GraphDef disallows consumer version 2474.  Please upgrade"),
        (of(5, 2475, [2474]), "min consumer version 2475 above current version 2474"),
    ],
)
def test_incompatible_versions_are_refused(data, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        versions.check(data)
    assert message in caught.value.message


def test_other_kinds_of_data_have_versions_of_their_own():
    with pytest.raises(errors.InvalidArgumentError, match="Checkpoint min consumer version 2 above current version 1"):
        versions.check(of(1, 2), versions.TENSOR_BUNDLE_VERSION, 0, "Checkpoint", "checkpoint")


def test_merging_keeps_the_older_producer_and_all_demands():
    assert versions.merge(of(20, 5, [3, 1]), of(10, 7, [2, 3])) == of(10, 7, [1, 2, 3])
