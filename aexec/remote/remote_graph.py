"""`RemoteGraph`: the graph of a session in a server, and which of its nodes the server does not have yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.graph.forms.graph_export import node_to_proto
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature, TensorInfo, choose_signature, graph_signature
from aexec.remote.descriptions import default_signature, read_signatures
from aexec.remote.service import Service, SessionWishes
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread
from aexec.sources import load

__all__ = ["RemoteGraph"]


class RemoteGraph:
    """A program's view of the graph of a session in a server.

    Args:
        service: the server.

    Attributes:
        local: the graph that the session was made from; None if the program opened an existing session.
        signatures: signatures of the model, by name; empty for a plain graph.
    """

    def __init__(self, service: Service) -> None:
        self.local: Graph | None = None
        self.signatures: Mapping[str, Signature] = {}
        self._service = service
        self._whole: Signature | None = None
        self._version = 0
        self._sent_nodes = 0
        self._extending = asyncio.Lock()

    async def create(self, source: Any, wishes: SessionWishes) -> str:
        """Load the graph, create a session from it in the server, and return the session's handle.

        Args:
            source: as `aexec.Session` takes it.
            wishes: what the session is to be.

        Raises:
            InvalidArgumentError: the source has variables.
        """
        loaded = source
        if not isinstance(loaded, Graph | MetaGraph):
            loaded = await run_in_thread(lambda: load(source), on_cancel=OnCancel.WAIT)
        if isinstance(loaded, MetaGraph):
            self.signatures, loaded = loaded.public_signatures, loaded.graph
        if not isinstance(loaded, Graph):
            raise errors.InvalidArgumentError(
                f"{loaded!r} has variables, which a graph alone does not: make one graph of it with "
                "aexec.saved_model.freeze, or let the server load it"
            )
        graph = self.local = loaded
        self._sent_nodes = len(graph)
        answer = await self._service.create(graph, wishes)
        self._version = answer.graph_version
        return answer.session_handle

    def read(self, document: Mapping[str, Any]) -> None:
        """Read the version and the signatures from the server's description of the session."""
        self._version = document["graph_version"]
        self.signatures = read_signatures(document)
        self._whole = default_signature(document)

    @property
    def made_of(self) -> Graph:
        """The graph that the session was made from.

        Raises:
            FailedPreconditionError: the program opened an existing session.
        """
        if self.local is None:
            raise errors.FailedPreconditionError("The graph is in the server: await fetch_graph()")
        return self.local

    @property
    def names(self) -> Graph:
        """The graph in which names are looked up; an empty one if the program opened an existing session."""
        return self.local or Graph()

    def signature(self, name: str | None = None) -> Signature:
        """Return one of `signatures`, or the signature of a plain graph.

        Raises:
            NotFoundError: there is no signature of that name, or no default.
        """
        if name is not None or self.signatures:
            return choose_signature(self.signatures, name)
        if self._whole is None:
            self._whole = graph_signature(self.made_of)
        return self._whole

    def known(self, feeds: Iterable[str]) -> dict[str, TensorInfo]:
        """Return the known types of tensors, by the names under which they are fed."""
        infos = {name: self._info(name) for name in feeds}
        return {name: info for name, info in infos.items() if info is not None}

    def _info(self, name: str) -> TensorInfo | None:
        tensor = name if ":" in name else f"{name}:0"
        if self.local is not None:
            try:
                return TensorInfo.of(self.local.tensor(tensor))
            except errors.OpError:
                return None  # a node of another client's extension, or an error that the server will report
        signatures = [*self.signatures.values(), *([self._whole] if self._whole else ())]
        infos = (info for signature in signatures for info in signature.inputs.values())
        return next((info for info in infos if info.name == tensor), None)

    async def extend(self, handle: str, added: proto.GraphDef) -> None:
        """Add nodes to the graph of this session in the server.

        Raises:
            FailedPreconditionError: another client has extended it meanwhile.
        """
        async with self._extending:
            await self._extend(handle, added)

    async def send_new_nodes(self, handle: str) -> None:
        """Send the nodes that were added to the local graph since it was sent to this session."""
        graph = self.local
        if graph is None or len(graph) == self._sent_nodes:
            return
        async with self._extending:
            count = len(graph)
            if count == self._sent_nodes:
                return
            added = proto.GraphDef(node=[node_to_proto(node) for node in graph.nodes[self._sent_nodes : count]])
            added.versions.CopyFrom(graph.versions)
            if len(graph.library):
                added.library.CopyFrom(graph.library.to_proto())
            await self._extend(handle, added)
            self._sent_nodes, self._whole = count, None

    async def _extend(self, handle: str, added: proto.GraphDef) -> None:
        self._version = await self._service.extend(handle, added, self._version)
