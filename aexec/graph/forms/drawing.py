"""`Drawing`: a graph as boxes and arrows, in the DOT language, or as a picture made by Graphviz's program `dot`.

The boxes are nodes and folded name scopes (`scope_tree.py`); open scopes are drawn as frames.  Arrows are tensors,
labelled with dtype and shape; dashed arrows are control edges.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from aexec import proto
from aexec.framework import errors
from aexec.graph.forms.scope_tree import NameScope, ScopeTree
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.prune import PLACEHOLDERS
from aexec.io.files import write_atomically

__all__ = ["SUFFIXES", "Drawing"]

_TEXT = (".dot", ".gv")
# Suffixes of the files that `save` can write.
SUFFIXES = (".svg", ".png", ".pdf", ".html", *_TEXT)

# Longest label, in characters: longer names are cut in the middle, as their ends say most.
_MAX_LABEL = 60
# Most names of nodes outside a drawn scope that the drawing shows.
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

    Without the program `dot` notebooks show a page that folds, searches and zooms, which `save` writes to .html.

    Args:
        graph: the graph to draw.
        scope: draw only this name scope, and the names of the nodes outside that it is connected with.
        depth: how many nested name scopes are open at most; None for as many as `max_boxes` allows.
        max_boxes: most nodes, folded and open scopes in the drawing; scopes stay folded where there would be more.
        functions: the functions that its nodes call, for the page.

    Raises:
        InvalidArgumentError: the scope is empty, or has more boxes even with all scopes folded.

    Attributes:
        dot: the drawing in the DOT language.
        num_boxes: nodes and folded scopes that are drawn.
    """

    def __init__(
        self,
        graph: NodeTable,
        scope: str = "",
        depth: int | None = None,
        max_boxes: int = 100,
        functions: Iterable[proto.FunctionDef] = (),
    ) -> None:
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
        self._nodes = [node for node in graph.nodes if not scope or node.name.startswith(f"{scope}/")]
        self._functions = functions
        self.dot = "\n".join([*_HEAD, *_Writer(graph, tree).lines(), "}\n"])

    def render(self, format: str = "svg") -> bytes:
        """Return the drawing as a picture made by the program `dot`.

        Args:
            format: svg, png or pdf.

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
        """Write the drawing to a file: as DOT text to .dot and .gv, as a page to .html, else as a picture.

        Raises:
            InvalidArgumentError: the file has another suffix.
            OpError: as `render` raises, or the file could not be written; the class follows from the system's error.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise errors.InvalidArgumentError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
        data = self._as_bytes(suffix)
        with write_atomically(str(path)) as file:
            file.write(data)

    def _as_bytes(self, suffix: str) -> bytes:
        if suffix == ".html":
            return self.page().encode()
        return self.dot.encode() if suffix in _TEXT else self.render(suffix[1:])

    def page(self) -> str:
        """Return the drawing as a page that folds, searches and zooms; it needs neither `dot` nor a server."""
        from aexec.graph.forms.graph_page import graph_page

        return graph_page(self._nodes, self._functions)

    def _repr_svg_(self) -> str | None:
        return self.render("svg").decode() if _has_dot() else None

    def _repr_html_(self) -> str | None:
        """Return the page in a frame, if there is no `dot` that makes a picture."""
        from aexec.graph.forms.graph_page import graph_frame

        return None if _has_dot() else graph_frame(self.page())

    def __repr__(self) -> str:
        return f"<Drawing of {self.num_boxes} boxes: notebooks show it, save('graph.svg') writes it>"


def _has_dot() -> bool:
    """True if `render` finds the package and the program."""
    return find_spec("graphviz") is not None and shutil.which("dot") is not None


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
        """Yield the frames and the boxes in them; each frame is complete before the next one starts."""
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
        """Yield one arrow for each pair of connected boxes and each kind of edge.

        Adds the names of nodes outside of what is drawn to `outside`.
        """
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
        """Return the ids of the boxes of two nodes; None if no arrow is to be drawn between them."""
        boxes = [self._places.get(node.id) for node in (start, end)]
        if boxes[0] is boxes[1]:
            return None  # in one folded scope, or both outside
        ids = []
        for node, box in zip((start, end), boxes, strict=True):
            ids.append(self._id(self._outside(node, outside) if box is None else box))
        return ids[0], ids[1]

    def _outside(self, node: Node, outside: dict[str, None]) -> str:
        """Return the id of the label for a node that is not drawn.

        The label is the node's name, up to the outermost scope that the drawn scope is not in.
        """
        name = _beside(node.name, self._tree.root.name)
        if name not in outside and len(outside) >= _MAX_OUTSIDE:
            name = "others"
        outside[name] = None
        return name

    def _id(self, box: object) -> str:
        return self._ids.setdefault(box, f"n{len(self._ids)}")


def _look(node: Node) -> str:
    """Return the DOT attributes of a node's box."""
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
    """Return an arrow's label: dtype and shape of its one tensor, or the number of tensors."""
    if len({(tensor.node.id, tensor.index) for tensor in tensors}) > 1:
        return f"{len(tensors)} tensors"
    return f"{tensors[0].dtype}{tensors[0].static_shape}"


def _beside(name: str, scope: str) -> str:
    """Return a node's name up to the first part that differs from the scope's; ends with `/` if it was cut."""
    parts, around = name.split("/"), scope.split("/")
    same = 0
    while same < min(len(parts) - 1, len(around)) and parts[same] == around[same]:
        same += 1
    return "/".join(parts[: same + 1]) + ("/" if len(parts) > same + 1 else "")


def _goes_back(node: Node) -> bool:
    """True if the node's output goes to the loop's next iteration."""
    return node.op in ("NextIteration", "RefNextIteration")


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _quoted(text: str) -> str:
    """Return text as a quoted DOT string; long lines lose their middle."""
    return '"' + "\\n".join(map(_escaped, _shortened(text.split("\n")))) + '"'


def _shortened(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        half = _MAX_LABEL // 2
        yield line if len(line) <= _MAX_LABEL else f"{line[:half]}…{line[1 - half :]}"


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"', '\\"')
