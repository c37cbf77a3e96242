"""`aexec graph`: draws a graph, with its name scopes folded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import aexec
from aexec.commands.answer import check_output
from aexec.commands.request import add_graph_argument, load_graph_argument
from aexec.commands.terminal import progress
from aexec.commands.usage import FILE, add_command, positive, wrong
from aexec.graph.forms.drawing import SUFFIXES

__all__ = ["add_graph"]

_STDOUT = "-"


def add_graph(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        "graph",
        help="draw a graph with its name scopes folded",
        description="Draw a graph.  Boxes are nodes and folded name scopes; frames are open scopes.  Pictures need the"
        "\npackage graphviz (aexec[graphviz]) and the program dot of Graphviz; text in the DOT language and pages"
        "\n(.html) need neither.",
    )
    add_graph_argument(command)
    out = command.add_argument(
        "--out",
        metavar="FILE",
        default=_STDOUT,
        help=f"file to write, which ends in {', '.join(SUFFIXES)}; - is stdout, in the DOT language "
        "(default: %(default)s)",
    )
    out.complete = FILE  # type: ignore[attr-defined]
    command.add_argument(
        "--scope", default="", metavar="NAME", help="draw only the nodes in this name scope (default: all)"
    )
    command.add_argument(
        "--depth", type=_depth, metavar="N", help="open at most N levels of scopes (at least 0; default: no limit)"
    )
    command.add_argument(
        "--max-boxes",
        type=positive,
        default=100,
        metavar="N",
        help="keep scopes folded if the drawing would have more than N boxes (at least 1; default: %(default)s)",
    )
    command.set_defaults(command=_graph)


def _depth(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, got {text!r}")
    return int(text)


def _graph(arguments: argparse.Namespace) -> int:
    out: str = arguments.out
    if out != _STDOUT:
        if Path(out).suffix.lower() not in SUFFIXES:
            wrong(f"--out {out}: expected a name that ends in {', '.join(SUFFIXES)}, or -")
        check_output("--out", out)
    loaded = load_graph_argument(arguments)
    graph = loaded if isinstance(loaded, aexec.Graph) else loaded.graph
    drawing = graph.show(arguments.scope, depth=arguments.depth, max_boxes=arguments.max_boxes)
    if out == _STDOUT:
        sys.stdout.write(drawing.dot)
    else:
        with progress(f"drawing {out}"):
            drawing.save(out)
    return 0
