"""Padding in convolutions: replaces a Pad with zeros before a Conv2D by the convolution's explicit padding.

The kernel pads block by block, with the same arithmetic.  Depthwise convolutions keep their Pad: `fusion.py` has no
fused op for them with explicit padding, and both forms take the same time.
"""

from __future__ import annotations

from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Node
from aexec.graph.passes.uses import Uses
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["pad_in_convolutions"]

_PADS = frozenset({"Pad", "PadV2"})


def pad_in_convolutions(working: WorkingGraph) -> None:
    """Replace Pads before convolutions by explicit padding."""
    pads = [node for node in working.producers_first() if node.op in _PADS]
    if not pads:
        return
    uses = Uses(working)
    for pad in steadily(pads):
        conv = uses.then(pad)
        if conv is None or conv.op != "Conv2D" or conv.in_edges[0] != (pad.id, 0):
            continue
        paddings = _paddings(pad, conv, working)
        if paddings is not None:
            attrs = {**conv.attrs, "padding": b"EXPLICIT", "explicit_paddings": paddings}
            uses.join([pad, conv], conv.op, attrs, (pad.in_edges[0], conv.in_edges[1]))


def _paddings(pad: Node, conv: Node, working: WorkingGraph) -> list[int] | None:
    """Return the convolution's new explicit paddings, or None if it cannot do what the Pad does."""
    if conv.attrs["data_format"] != b"NHWC" or conv.attrs["padding"] not in (b"VALID", b"EXPLICIT"):
        return None
    if working.shape((pad.id, 0)).rank != 4 or _taps(conv, working) < 2:
        return None
    if pad.op == "PadV2":
        value = working.constant(pad.in_edges[2])
        if value is None or value.ndim or value != 0:
            return None
    paddings = working.constant(pad.in_edges[1])
    if paddings is None or paddings.shape != (4, 2) or paddings.min() < 0 or paddings[[0, 3]].any():
        return None
    added: list[int] = paddings.reshape(-1).tolist()
    own = conv.attrs.get("explicit_paddings") or [0] * 8
    return [a + b for a, b in zip(added, own, strict=True)]


def _taps(conv: Node, working: WorkingGraph) -> int:
    """Return the number of pixels in a window, 0 if unknown.

    A window of one pixel keeps its Pad: without padding the convolution is a plain matrix product.
    """
    dims = working.shape(conv.in_edges[1]).dims
    if dims is None or len(dims) != 4 or dims[0] is None or dims[1] is None:
        return 0
    return dims[0] * dims[1]
