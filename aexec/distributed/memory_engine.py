"""An engine in memory: tasks that are objects of this process, and a network between them that can fail on purpose.

    async with MemoryCluster("test", 3):
        async with aexec.Session(graph, target="memory://test") as session: ...

The network counts messages.  `NetworkFaults` determine, by a seed, which of them are dropped, late, duplicated or out
of order, during which of them some tasks are cut off, and at which one a task dies; the same seed does the same again.
Tasks share nothing but messages, which are copied.  `NetworkCosts` say how long messages take, so that on a virtual
clock a cluster larger than the machine can be simulated.  Next to read: `worker.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import field

from aexec.distributed.cluster_messages import Message
from aexec.distributed.engine import DeliveringEngine, Envelope, Handler
from aexec.distributed.worker import Worker
from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass

__all__ = ["CutOff", "MemoryCluster", "MemoryEngine", "MemoryNetwork", "NetworkCosts", "NetworkFaults"]

LEASE = 1.0


@dataclass(frozen=True, slots=True)
class CutOff:
    """From message `first` to `last`, these addresses and all others cannot reach each other."""

    first: int
    last: int
    cut_off: Collection[str]


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """The faults, by numbers of messages; the first is 1, answers count too.

    Attributes:
        seed: of all random choices.
        drop, double: fraction of the messages that are lost, or arrive twice.
        delay: most seconds that a message takes; each takes another time, so that they overtake each other.
        partitions: when which addresses are cut off.
        kill: number of a message → address of the task that dies when it is sent.
        silent: True if no connection breaks when a task dies, so that only its lease tells.
    """

    seed: int = 0
    drop: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    partitions: Sequence[CutOff] = ()
    kill: Mapping[int, str] = field(default_factory=dict)
    silent: bool = False


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """The times that messages take.  An end handles one message at a time, sent and received ones together.

    Attributes:
        message: seconds that each end works on a message.
        byte: seconds that each end works on a byte of its frames.
        latency: seconds between the ends.
    """

    message: float = 0.0
    byte: float = 0.0
    latency: float = 0.0


class MemoryNetwork:
    """The engines of a process that reach each other.

    Attributes:
        engines: by address.
        sent: messages sent so far.
        sent_bytes: bytes of their frames.
        on_kill: called with the address of a task that dies.
    """

    def __init__(
        self, faults: NetworkFaults | None = None, *, lease: float = LEASE, costs: NetworkCosts | None = None
    ) -> None:
        self.faults = faults or NetworkFaults()
        self.costs = costs
        # Address → the time until which it works on messages.
        self._at_work: dict[str, float] = {}
        self.lease = lease
        self.engines: dict[str, MemoryEngine] = {}
        self.sent = self.sent_bytes = 0
        self.on_kill: Callable[[str], object] = lambda address: None
        self._random = random.Random(self.faults.seed)

    def send(self, source: str, destination: str, message: Message, deliver: Callable[[], object]) -> None:
        """Deliver a message, unless a fault prevents it."""
        self.sent += 1
        self.sent_bytes += sum(memoryview(frame).nbytes for frame in message.frames)
        number, faults, draw = self.sent, self.faults, self._random
        if number in faults.kill:
            self.kill(faults.kill[number])
        dropped, doubled = draw.random() < faults.drop, draw.random() < faults.double
        times = [draw.random() * faults.delay for _ in range(2 if doubled else 1)]
        if dropped or self._is_cut(number, source, destination) or source not in self.engines:
            return
        loop = asyncio.get_running_loop()
        for time in times:
            if self.costs is not None:
                leaves = self._worked_on(source, message, self.costs)
                loop.call_at(leaves + self.costs.latency + time, self._come, destination, message, deliver)
            elif faults.delay:
                loop.call_later(time, self._arrive, destination, deliver)
            else:
                loop.call_soon(self._arrive, destination, deliver)

    def _worked_on(self, address: str, message: Message, costs: NetworkCosts) -> float:
        """The time at which an end will have finished a message."""
        begins = max(asyncio.get_running_loop().time(), self._at_work.get(address, 0.0))
        size = sum(memoryview(frame).nbytes for frame in message.frames)
        self._at_work[address] = ends = begins + costs.message + size * costs.byte
        return ends

    def _come(self, destination: str, message: Message, deliver: Callable[[], object]) -> None:
        assert self.costs is not None
        ends = self._worked_on(destination, message, self.costs)
        asyncio.get_running_loop().call_at(ends, self._arrive, destination, deliver)

    def _arrive(self, destination: str, deliver: Callable[[], object]) -> None:
        if destination in self.engines:
            deliver()

    def _is_cut(self, number: int, source: str, destination: str) -> bool:
        return any(
            cut.first <= number <= cut.last and (source in cut.cut_off) != (destination in cut.cut_off)
            for cut in self.faults.partitions
        )

    def kill(self, address: str) -> None:
        """Kill a task: messages that it has sent arrive, but it sends and gets no more."""
        dead = self.engines.pop(address, None)
        if dead is None:
            return
        self.on_kill(address)
        if not self.faults.silent:
            for engine in list(self.engines.values()):
                engine.lose(address, "its connection was closed")


class MemoryEngine(DeliveringEngine):
    """An end of a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, address: str, handler: Handler | None) -> None:
        super().__init__(address, handler, lease=network.lease, retry=network.lease / 5)
        self._network = network
        self._exchanges: set[asyncio.Task[None]] = set()
        network.engines[address] = self

    async def workers(self) -> Sequence[str]:
        """Like `Engine.workers`: all but clients, sorted."""
        return sorted(address for address in self._network.engines if not address.startswith("client"))

    async def exchange(self, address: str, envelope: Envelope) -> Message:
        """Like `DeliveringEngine.exchange`."""
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        *head, message = envelope
        sent = (*head, _copied(message))

        def arrive() -> None:
            other = self._network.engines[address]
            other._keep(asyncio.get_running_loop().create_task(answer(other)))

        async def answer(other: MemoryEngine) -> None:
            made = _copied(await other.receive(sent))  # type: ignore[arg-type]
            self._network.send(address, self.address, made, lambda: _answer(answered, made))

        self._network.send(self.address, address, message, arrive)
        return await answered

    def _keep(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    async def close(self) -> None:
        """Like `Engine.close`."""
        self._network.engines.pop(self.address, None)
        await super().close()
        left = [task for task in self._exchanges if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def _answer(answered: asyncio.Future[Message], made: Message) -> None:
    if not answered.done():
        answered.set_result(made)


def _copied(message: Message) -> Message:
    """A copy, as if it had been serialised: it shares no memory."""
    return Message(deepcopy(message.fields), [bytes(frame) for frame in message.frames])


_clusters: dict[str, MemoryCluster] = {}


class MemoryCluster:
    """Workers in this process, `worker-0` and on, to which sessions with target `memory://NAME` connect.

    Args:
        name: in the target.
        workers: their number.
        faults: the network's faults.
        costs: how long messages take; no time by default.
        lease: seconds without an answer after which an end is lost.

    Attributes:
        network: connects them.
        workers: by address, without those that died.

    It is an asynchronous context manager, to be left after its sessions are closed.

    Raises:
        AlreadyExistsError: there is a cluster of this name.
    """

    def __init__(
        self,
        name: str,
        workers: int = 1,
        faults: NetworkFaults | None = None,
        *,
        lease: float = LEASE,
        costs: NetworkCosts | None = None,
    ) -> None:
        if name in _clusters:
            raise errors.AlreadyExistsError(f"There is a cluster memory://{name} already")
        self.name = name
        self.network = MemoryNetwork(faults, lease=lease, costs=costs)
        self.network.on_kill = self._killed
        self.workers: dict[str, Worker] = {}
        self._dying: list[asyncio.Task[None]] = []
        self._numbers = iter(range(1 << 30))
        self._clients = iter(range(1 << 30))
        for _ in range(workers):
            self.add_worker()
        _clusters[name] = self

    @staticmethod
    def of(name: str) -> MemoryCluster:
        """The cluster of a name.  Raises NotFoundError if there is none."""
        found = _clusters.get(name)
        if found is None:
            known = ", ".join(f"memory://{each}" for each in sorted(_clusters)) or "none"
            raise errors.NotFoundError(f"There is no cluster memory://{name} in this process; there are {known}")
        return found

    def add_worker(self, address: str = "") -> str:
        """Start one more worker, or restart a dead one; return its address."""
        address = address or f"worker-{next(self._numbers)}"
        worker = self.workers[address] = Worker()
        worker.connect(MemoryEngine(self.network, address, worker.handle))
        return address

    def client(self, handler: Handler) -> MemoryEngine:
        """An end for a session."""
        return MemoryEngine(self.network, f"client-{next(self._clients)}", handler)

    def kill(self, address: str) -> None:
        """Kill a worker."""
        self.network.kill(address)

    def _killed(self, address: str) -> None:
        worker = self.workers.pop(address, None)
        if worker is not None:
            self._dying.append(asyncio.get_running_loop().create_task(worker.close(), name=f"{address} dies"))

    async def __aenter__(self) -> MemoryCluster:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        del _clusters[self.name]
        for worker in list(self.workers.values()):
            await worker.close()
        if self._dying:
            await asyncio.wait(self._dying)
