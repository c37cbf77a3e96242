"""Padding into convolutions: a Pad with zeros before a convolution becomes the convolution's explicit padding.

The kernel pads as it goes, a block at a time, and does the same arithmetic.
"""

from __future__ import annotations

from typing import Any

from aexec.graph.node import Node
from aexec.graph.passes.uses import Uses, constant_value
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["pad_in_convolutions"]

_CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative"})
_PADS = frozenset({"Pad", "PadV2"})


def pad_in_convolutions(working: WorkingGraph) -> None:
    """Let convolutions of a padded image pad it themselves."""
    pads = [node for node in working.producers_first() if node.op in _PADS]
    if not pads:
        return
    uses = Uses(working)
    for pad in pads:
        conv = uses.then(pad)
        if conv is None or conv.op not in _CONVOLUTIONS or conv.inputs[0] != (pad.id, 0):
            continue
        paddings = _paddings(pad, conv, working)
        if paddings is not None:
            attrs = {**conv.attrs, "padding": b"EXPLICIT", "explicit_paddings": paddings}
            uses.join([pad, conv], conv.op, attrs, (pad.inputs[0], conv.inputs[1]))


def _paddings(pad: Node, conv: Node, working: WorkingGraph) -> list[int] | None:
    """The explicit paddings that the convolution gets, or None if it cannot do what the pad does."""
    if conv.attrs["data_format"] != b"NHWC" or conv.attrs["padding"] not in (b"VALID", b"EXPLICIT"):
        return None
    if pad.shapes is None or pad.shapes[0].rank != 4 or _taps(conv, working) < 2:
        return None
    if pad.op == "PadV2":
        value = constant_value(working, pad.inputs[2])
        if value is None or value.ndim or value != 0:
            return None
    paddings = constant_value(working, pad.inputs[1])
    if paddings is None or paddings.shape != (4, 2) or paddings.min() < 0 or paddings[[0, 3]].any():
        return None
    added: list[int] = paddings.reshape(-1).tolist()
    own = conv.attrs.get("explicit_paddings") or [0] * 8
    return [a + b for a, b in zip(added, own, strict=True)]


def _taps(conv: Node, working: WorkingGraph) -> Any:
    """Pixels of a window, or 0 if not known.  A window of one is a plain product, which padding would not leave one."""
    source, slot = conv.inputs[1]
    node = working.nodes[source]
    shape = None if node.shapes is None or (source, slot) in working.fed else node.shapes[slot]
    if shape is None or shape.rank != 4 or shape.dims[0] is None or shape.dims[1] is None:
        return 0
    return shape.dims[0] * shape.dims[1]
