"""`KeptGraph`: the graph of a session, while it is open and afterwards."""

from __future__ import annotations

from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.runtime.planning.planner import Planner
from aexec.runtime.session.unused_graphs import remember_graph

__all__ = ["KeptGraph"]


class KeptGraph:
    """The graph of a session: the planner's while the session is open, afterwards the part that is kept.

    Args:
        session_id: the session's number, for errors.
        planner: has the graph while the session is open.

    Attributes:
        is_own: True if the session alone has the graph: it is then freed when the session closes, unless something else
            refers to it by then.
    """

    def __init__(self, session_id: int, planner: Planner) -> None:
        self.is_own = False
        self._session_id = session_id
        self._planner = planner
        # Set when the session closes: the number of nodes; and the graph, unless it was freed.
        self._num_nodes: int | None = None
        self._left: Graph | None = None

    @property
    def graph(self) -> Graph:
        """The graph as it is now.  Raises FailedPreconditionError if it was freed."""
        if self._num_nodes is None:
            return self._planner.graph
        if self._left is None:
            raise errors.FailedPreconditionError(
                f"Session {self._session_id} has been closed, and its graph was freed: take session.graph while it is "
                "open"
            )
        return self._left

    @property
    def num_nodes(self) -> int:
        """The number of nodes, as it was at the session's end if it is closed."""
        return len(self._planner.graph) if self._num_nodes is None else self._num_nodes

    def release(self) -> None:
        """Called when the session has closed: keep the graph, unless nothing but the session refers to it."""
        graph = self._planner.graph
        remember_graph(graph)
        self._planner.release_graph()
        self._num_nodes = len(graph)
        self._left = None if self.is_own else graph
