"""`Drawing`: a graph as boxes and arrows, in the DOT language and, by the program `dot` of Graphviz, as a picture.

The boxes are nodes and folded name scopes (`scope_tree.py`), frames are open scopes.  Arrows are tensors, with type and
shape; dashed ones say what runs after what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aexec.framework import errors
from aexec.graph.forms.scope_tree import NameScope, ScopeTree
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.prune import PLACEHOLDERS
from aexec.io.files import write_atomically

__all__ = ["SUFFIXES", "Drawing"]

_TEXT = (".dot", ".gv")
# Of files that a drawing can be written to.
SUFFIXES = (".svg", ".png", ".pdf", *_TEXT)

# A name's ends say most; a megabyte of it says no more.
_MAX_LABEL = 60
# Names of what a drawn scope is joined to.
_MAX_OUTSIDE = 30

_HEAD = (
    "digraph {",
    # Without `newrank`, dot fails on frames in frames whose nodes have arrows backwards.
    "  graph [newrank=true, rankdir=TB, bgcolor=white, fontname=Helvetica, fontsize=11, color=gray70, style=rounded]",
    "  node [shape=box, style=filled, fillcolor=white, fontname=Helvetica, fontsize=10, height=0.3, margin=0.08]",
    "  edge [fontname=Helvetica, fontsize=8, fontcolor=gray40, arrowsize=0.6]",
)
_FOLDED = 'shape=box3d, fillcolor="#e8eef7"'
_INPUT = 'shape=ellipse, fillcolor="#e5f4e3"'
_CONSTANT = "shape=plaintext, fillcolor=none"
_VARIABLE = 'shape=cylinder, fillcolor="#fdf1da"'
_OUTSIDE = "shape=plaintext, fillcolor=none, fontcolor=gray50"


class Drawing:
    """A picture of a graph as it is now.  Notebooks show it; `save` writes it to a file.

    Args:
        graph: what is drawn.
        scope: draw only what lies in this name scope, and the names of what it is joined to.
        depth: how many name scopes to open at most; None for as many as there is room for.
        max_boxes: of nodes, folded scopes and open ones; scopes stay folded where there would be more.

    Raises:
        InvalidArgumentError: nothing lies in the scope, or more boxes even with all scopes folded.

    Attributes:
        dot: the drawing in the DOT language.
        num_boxes: nodes and folded scopes that are drawn.
    """

    def __init__(self, graph: NodeTable, scope: str = "", depth: int | None = None, max_boxes: int = 100) -> None:
        scope = scope.rstrip("/")
        tree = ScopeTree(graph.nodes, scope, max_boxes, depth)
        if scope and not tree.root.size:
            raise errors.InvalidArgumentError(f"no node lies in a name scope '{scope}'")
        if tree.num_boxes > max_boxes:
            where = f"the scope '{scope}'" if scope else "the graph"
            raise errors.InvalidArgumentError(
                f"{where} has {tree.num_boxes} boxes with all of its name scopes folded, and a drawing may have "
                f"{max_boxes}: name a scope in it, or allow more"
            )
        self.num_boxes = tree.num_boxes
        self.dot = "\n".join([*_HEAD, *_Writer(graph, tree).lines(), "}\n"])

    def render(self, format: str = "svg") -> bytes:
        """The drawing as the program `dot` makes it: svg, png or pdf.

        Raises:
            UnimplementedError: the package or the program is missing.
            UnknownError: the program failed.
        """
        try:
            import graphviz
        except ImportError:
            raise errors.UnimplementedError(
                "drawing needs the package graphviz: pip install 'aexec[graphviz]'"
            ) from None
        try:
            picture: bytes = graphviz.Source(self.dot).pipe(format=format)
        except graphviz.ExecutableNotFound:
            raise errors.UnimplementedError(
                "drawing needs the program 'dot' of Graphviz, which is not on the PATH: install Graphviz "
                "(https://graphviz.org/download), or write the drawing as .dot, which needs nothing"
            ) from None
        except graphviz.CalledProcessError as error:
            said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr
            raise errors.UnknownError(f"the program 'dot' failed: {said or error}") from None
        return picture

    def save(self, path: str | Path) -> None:
        """Write it to a file, as the file's suffix says: .dot and .gv as text, .svg, .png and .pdf as `render` does.

        Raises:
            InvalidArgumentError: another suffix.
            OpError: as `render` does, and of the class that an error of the system stands for.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise errors.InvalidArgumentError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
        data = self.dot.encode() if suffix in _TEXT else self.render(suffix[1:])
        with write_atomically(str(path)) as file:
            file.write(data)

    def _repr_svg_(self) -> str:
        return self.render("svg").decode()

    def __repr__(self) -> str:
        return f"<Drawing of {self.num_boxes} boxes: notebooks show it, save('graph.svg') writes it>"


class _Writer:
    """Writes the lines of a drawing."""

    def __init__(self, graph: NodeTable, tree: ScopeTree) -> None:
        self._graph = graph
        self._tree = tree
        self._places = tree.places()
        self._ids: dict[object, str] = {}

    def lines(self) -> Iterator[str]:
        yield from self._boxes()
        outside: dict[str, None] = {}
        arrows = list(self._arrows(outside))
        for name in outside:
            yield f"  {self._id(name)} [label={_quoted(name)}, tooltip={_quoted(name)}, {_OUTSIDE}]"
        yield from arrows

    def _boxes(self) -> Iterator[str]:
        """Frames and what is in them; what is in a frame is written before what follows it."""
        waiting: list[NameScope | str] = [self._tree.root]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                yield item
                continue
            indent = "  " * (item.depth + 1)
            if item is not self._tree.root:
                yield f"{indent[2:]}subgraph cluster_{self._id(item)} {{"
                yield f"{indent}label={_quoted(_last(item.name))}"
                waiting.append(f"{indent[2:]}}}")
            for node in item.nodes:
                yield f"{indent}{self._id(node)} [{_look(node)}]"
            for scope in item.scopes.values():
                if not self._tree.is_open(scope):
                    label = f"{_last(scope.name)}\n{scope.size} node{'s' if scope.size > 1 else ''}"
                    tooltip = _quoted(scope.name)
                    yield f"{indent}{self._id(scope)} [label={_quoted(label)}, tooltip={tooltip}, {_FOLDED}]"
            waiting += [scope for scope in reversed(item.scopes.values()) if self._tree.is_open(scope)]

    def _arrows(self, outside: dict[str, None]) -> Iterator[str]:
        """An arrow for each pair of boxes and kind; names of what lies outside of what is drawn go to `outside`."""
        tensors: dict[tuple[str, str], list[Tensor]] = {}
        orders: dict[tuple[str, str], None] = {}
        for node in self._graph.nodes:
            for source, slot in node.in_edges:
                pair = self._pair(self._graph.nodes[source], node, outside)
                if pair is not None:
                    tensors.setdefault(pair, []).append(self._graph.nodes[source].output(slot))
            for source in node.control_edges:
                pair = self._pair(self._graph.nodes[source], node, outside)
                if pair is not None:
                    orders[pair] = None
        backwards = {self._id(node) for node in self._places.values() if isinstance(node, Node) and _goes_back(node)}
        for (start, end), carried in tensors.items():
            extra = ", constraint=false" if start in backwards else ""
            yield f"  {start} -> {end} [label={_quoted(_carried(carried))}{extra}]"
        for start, end in orders:
            if (start, end) not in tensors:
                yield f"  {start} -> {end} [style=dashed]"

    def _pair(self, start: Node, end: Node, outside: dict[str, None]) -> tuple[str, str] | None:
        """The ids of the boxes that two nodes are drawn as; None if there is nothing between."""
        boxes = [self._places.get(node.id) for node in (start, end)]
        if boxes[0] is boxes[1]:
            return None  # in one folded scope, or both outside
        ids = []
        for node, box in zip((start, end), boxes, strict=True):
            ids.append(self._id(self._outside(node, outside) if box is None else box))
        return ids[0], ids[1]

    def _outside(self, node: Node, outside: dict[str, None]) -> str:
        """What stands for a node that is not drawn: its name, or that of the outermost scope that both are not in."""
        name = _beside(node.name, self._tree.root.name)
        if name not in outside and len(outside) >= _MAX_OUTSIDE:
            name = "others"
        outside[name] = None
        return name

    def _id(self, box: object) -> str:
        return self._ids.setdefault(box, f"n{len(self._ids)}")


def _look(node: Node) -> str:
    """The attributes of a node's box."""
    name = _last(node.name)
    label = name if name.lower() == node.op.lower() else f"{name}\n{node.op}"
    kind = ""
    if node.op in PLACEHOLDERS:
        kind = f", {_INPUT}"
    elif node.op == "Const":
        kind, label = f", {_CONSTANT}", name
    elif node.op.startswith("Var"):
        kind = f", {_VARIABLE}"
    where = f" on {node.device}" if node.device else ""
    return f"label={_quoted(label)}, tooltip={_quoted(f'{node.name}: {node.op}{where}')}{kind}"


def _carried(tensors: Sequence[Tensor]) -> str:
    """What an arrow says: the type and shape of its tensor, or how many there are."""
    if len({(tensor.node.id, tensor.index) for tensor in tensors}) > 1:
        return f"{len(tensors)} tensors"
    return f"{tensors[0].dtype}{tensors[0].static_shape}"


def _beside(name: str, scope: str) -> str:
    """A node's name up to the first part that is not one of the scope's; with `/` if it goes on."""
    parts, around = name.split("/"), scope.split("/")
    same = 0
    while same < min(len(parts) - 1, len(around)) and parts[same] == around[same]:
        same += 1
    return "/".join(parts[: same + 1]) + ("/" if len(parts) > same + 1 else "")


def _goes_back(node: Node) -> bool:
    """Does a loop go on with its output?"""
    return node.op in ("NextIteration", "RefNextIteration")


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _quoted(text: str) -> str:
    """Text as DOT has it in quotes, without the middle of long lines."""
    return '"' + "\\n".join(map(_escaped, _shortened(text.split("\n")))) + '"'


def _shortened(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        half = _MAX_LABEL // 2
        yield line if len(line) <= _MAX_LABEL else f"{line[:half]}…{line[1 - half :]}"


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"', '\\"')
