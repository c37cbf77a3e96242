"""Versions: whether this program can read some data.  The scheme of TensorFlow's core/public/version.h.

Data has the version of its producer, the lowest consumer version that can read it, and consumer versions known to read
it wrongly.  GraphDefs have other version numbers than checkpoints: TensorFlow 2.21 writes graphs of producer 2474.
"""

from __future__ import annotations

from aexec import proto
from aexec.framework import errors

__all__ = ["GRAPH_DEF_VERSION", "GRAPH_DEF_VERSION_MIN_PRODUCER", "TENSOR_BUNDLE_VERSION", "check", "merge"]

# The version of graphs that we write, and the oldest that we can read.
GRAPH_DEF_VERSION = 2474
GRAPH_DEF_VERSION_MIN_PRODUCER = 0

TENSOR_BUNDLE_VERSION = 1


def check(
    versions: proto.VersionDef,
    consumer: int = GRAPH_DEF_VERSION,
    min_producer: int = GRAPH_DEF_VERSION_MIN_PRODUCER,
    kind: str = "GraphDef",
    noun: str = "graph",
) -> None:
    """Check that data of these versions can be read.

    Args:
        versions: of the data.
        consumer: our own version.
        min_producer: the oldest producer that we can read.
        kind, noun: what the data is, for errors.

    Raises:
        InvalidArgumentError: the producer is too old, the data too new, or our version blacklisted.
    """
    if versions.producer < min_producer:
        raise errors.InvalidArgumentError(
            f"{kind} producer version {versions.producer} below min producer {min_producer} supported by aexec.  "
            f"Please regenerate your {noun}."
        )
    if versions.min_consumer > consumer:
        raise errors.InvalidArgumentError(
            f"{kind} min consumer version {versions.min_consumer} above current version {consumer} of aexec.  "
            "Please upgrade aexec."
        )
    if consumer in versions.bad_consumers:
        raise errors.InvalidArgumentError(
            f"{kind} disallows consumer version {consumer}.  Please upgrade aexec: this version is likely buggy."
        )


def merge(first: proto.VersionDef, second: proto.VersionDef) -> proto.VersionDef:
    """The versions of data from two sources: the older producer, and the requirements of both."""
    return proto.VersionDef(
        producer=min(first.producer, second.producer),
        min_consumer=max(first.min_consumer, second.min_consumer),
        bad_consumers=sorted({*first.bad_consumers, *second.bad_consumers}),
    )
