"""The order of variables' reads and updates in a step.

A read must come before an update of the same variable, unless it depends on the update or edges order them otherwise.
A fetched reference is read after all updates.  The graph's edges do not say so, and TensorFlow leaves the order to
chance; here it is fixed when a plan is made, by *order edges*.  The node at the end of an order edge starts when the
node at its beginning is done, whether that ran or was dead; the edge carries neither a value nor deadness.

* From outside, a loop counts as one node: an order edge into it ends at its Enters, one out of it begins at its Exits.
  Within a loop the order holds in each iteration, and a loop that updates a variable runs its iterations one by one.
* An order edge must not make a step wait for itself.  So there is none if the read comes after a node that may wait
  (for a queue, for example) and the update comes before a node that may end this wait.
* If two pairs contradict each other, the one whose read was built first wins.
* A read that may depend on an update follows it: it depends through a Merge, which may run without that input.  So does
  a read that other order edges put after an update.

Next to read: `variable_uses.py` for the nodes that read and update; `aexec/runtime/plans/plan_builder.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.long_work import go_on, steadily
from aexec.graph.nodes import control_flow
from aexec.graph.nodes.control_flow import ENTER, EXIT, MERGE, NEXT_ITERATION, FrameInfo
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.traversal import producers_first, waits_for
from aexec.graph.ordering.variable_uses import FunctionEffects, VariableUses, find_uses

__all__ = ["UNORDERED", "StepOrder", "step_order"]


class StepOrder(NamedTuple):
    """The order edges of a graph.

    Attributes:
        after: id of an updating node, or of an Enter → ids of the nodes that must be done or dead before it starts.
        late: the same for reads that follow updates.
        fetched: fetched endpoint → ids of the nodes that must be done or dead before its value is taken.
        contradictions: (read, update) ids of pairs whose order would contradict other order edges.
        serial: ids of the Enters of loops that update a variable, so that each iteration starts when the one before is
            done.
    """

    after: Mapping[int, tuple[int, ...]]
    late: Mapping[int, tuple[int, ...]]
    fetched: Mapping[Endpoint, tuple[int, ...]]
    contradictions: tuple[tuple[int, int], ...] = ()
    serial: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.after or self.late or self.fetched)

    @property
    def edges(self) -> Mapping[int, tuple[int, ...]]:
        """Both `after` and `late`: id of a node → ids of the nodes that it follows."""
        if not (self.after and self.late):
            return self.after or self.late
        both = [*self.after, *(i for i in self.late if i not in self.after)]
        return {i: (*self.after.get(i, ()), *self.late.get(i, ())) for i in both}


UNORDERED = StepOrder({}, {}, {})


def step_order(
    nodes: Mapping[int, Node],
    fed: Collection[Endpoint],
    fetches: Collection[Endpoint],
    functions: FunctionEffects,
    made_of: Callable[[int], int] = lambda node_id: node_id,
    *,
    in_parts: bool = False,
) -> StepOrder:
    """Return the order edges for the reads and updates of a step.

    Args:
        nodes: the nodes that run, by id.
        fed, fetches: endpoints.
        functions: effects of the functions that nodes call.
        made_of: returns the id of the original node that a pass made a node from; smaller ids win contradictions.
        in_parts: feeds arrive during the step (a partial run): no node may wait for a feed that it does not need.

    Raises:
        InvalidArgumentError: the graph has malformed loop frames.
    """
    uses = find_uses(nodes.values(), fed, functions)
    if uses is None:
        return UNORDERED
    return _Orderer(nodes, fed, fetches, uses, functions, made_of, in_parts=in_parts).order()


# Estimated bytes of an unordered pair until it is decided; memory is announced for so many pairs at once.
_PAIR_BYTES = 400
_ANNOUNCED = 1000

# Exit and NextIteration read their input when the loop's predicate is known, so their reads are not ordered.
_READ_BY_LOOP = EXIT | NEXT_ITERATION


class _Pair(NamedTuple):
    """A read, an update, and the ends of the order edges between them: these nodes, or Enters and Exits of loops."""

    read: int
    update: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]


class _Orderer:
    def __init__(
        self,
        nodes: Mapping[int, Node],
        fed: Collection[Endpoint],
        fetches: Collection[Endpoint],
        uses: VariableUses,
        functions: FunctionEffects,
        made_of: Callable[[int], int],
        *,
        in_parts: bool,
    ) -> None:
        self.nodes = nodes
        self.fed = frozenset(fed)
        self.fetches = fetches
        self.uses = uses
        self.may_wait = functions.may_wait
        self.made_of = made_of
        self.in_parts = in_parts
        self.sorted = producers_first(nodes.values(), nodes.__getitem__)
        self.position = {node.id: i for i, node in enumerate(self.sorted)}
        self.frames = _Frames(nodes, self.fed)
        updates = {i for ids in uses.updates.values() for i in ids}
        # Each updating node has one bit in the bit sets below.
        self.bits = {node.id: 1 << k for k, node in enumerate(n for n in self.sorted if n.id in updates)}
        self.updates = list(self.bits)
        self.in_frame = self._updates_by_frame()
        # Bit sets by node id, empty ones left out: the updates that a node may depend on, and those that are certainly
        # done when it runs, in both cases with its own.
        self.before: dict[int, int] = {}
        self.surely: dict[int, int] = {}
        self._find_updates_before()

    def order(self) -> StepOrder:
        late: list[_Pair] = []
        pairs = self._unordered(self._pairs(late))
        if pairs or late:
            pairs, late = self._without_waiting(pairs, late)
        return _Decision(self).edges(pairs, late)._replace(fetched=self._fetched(), serial=self._serial())

    # Paths: which updates come before which nodes

    def _producers(self, node: Node) -> list[int]:
        """Return the ids of the nodes that a node waits for in its own iteration, without fed ones."""
        nodes = self.nodes
        if node.op_def.name in MERGE:
            sources = waits_for(node, nodes.__getitem__)
            fed = [e[0] for e in node.in_edges if e in self.fed]
            return [i for i in sources if i in nodes and i not in fed]
        sources = [e[0] for e in node.in_edges if e not in self.fed] if self.fed else [i for i, _ in node.in_edges]
        return [*sources, *node.control_edges] if node.control_edges else sources

    def _updates_by_frame(self) -> dict[int, int]:
        """Return the updates inside each loop and the loops in it, as bit sets."""
        found: defaultdict[int, int] = defaultdict(int)
        for node_id, bit in steadily(self.bits.items()):
            for loop in self.frames.loops_around(node_id):
                found[id(loop)] |= bit
        return found

    def updates_in_loop(self, enter: int) -> int:
        """Return the updates in the loop that an Enter leads into, as a bit set."""
        return self.in_frame.get(id(self.frames.started_by(enter)), 0)

    def _find_updates_before(self) -> None:
        before, surely = self.before, self.surely
        # A loop's Exits stand for all updates in it; in the sorted order they may come before these.
        ends = (exit_ for loop in self.in_frame for exit_ in self.frames.exits(loop))
        first = min(self.position[i] for i in (*self.updates, *ends) if i in self.position)
        for node in steadily(self.sorted[first:]):
            own = self.bits.get(node.id, 0)
            if node.op_def.name in EXIT:
                own |= self.in_frame.get(id(self.frames.of(node.id)), 0)
            sources = self._producers(node)
            bits = reduce(or_, [before[i] for i in sources if i in before], own)
            if bits:
                announce_scratch(2 * bits.bit_length() // 8)
                before[node.id] = bits
                taken = self._one_of(node, sources)
                surely[node.id] = own | reduce(or_, [surely.get(i, 0) for i in sources if i not in taken], 0)
                surely[node.id] |= reduce(and_, [surely.get(i, 0) for i in taken]) if taken else 0

    def _one_of(self, node: Node, sources: Sequence[int]) -> Collection[int]:
        """Return the ids of a Merge's inputs, any one of which lets it run; empty for other nodes."""
        if node.op_def.name not in MERGE:
            return ()
        data = {i for i, _ in node.in_edges}
        found = [i for i in sources if i in data]
        return found if len(found) > 1 else ()

    # Pairs of a read and an update

    def _pairs(self, late: list[_Pair]) -> Iterator[_Pair]:
        """Yield each read with each update that it does not depend on; add it to `late` if it may depend on it."""
        seen: set[tuple[int, int]] = set()
        for variable, reads in self.uses.reads.items():
            for update in self.uses.updates.get(variable, ()):
                bit = self.bits.get(update, 0)
                for read in steadily(reads):
                    if read == update or self.surely.get(read, 0) & bit or (read, update) in seen:
                        continue
                    if bit and read in self.position and self.nodes[read].op not in _READ_BY_LOOP:
                        seen.add((read, update))
                        if len(seen) % _ANNOUNCED == 0:
                            announce_scratch(_PAIR_BYTES * _ANNOUNCED)
                        if self.before.get(read, 0) & bit:
                            late += self.behind(read, update)
                        else:
                            yield from self._pair(read, update)

    def _pair(self, read: int, update: int) -> Iterator[_Pair]:
        begins, ends = self.frames.between(read, update)
        if begins and ends and not any(self.before.get(i, 0) & self.bits[update] for i in begins):
            yield _Pair(read, update, begins, ends)

    def behind(self, read: int, update: int) -> Iterator[_Pair]:
        """Yield the pair with the read after the update; none for a Merge, which reads an input when it arrives."""
        begins, ends = self.frames.between(update, read)
        if begins and ends and self.nodes[read].op not in MERGE:
            yield _Pair(read, update, begins, ends)

    def _unordered(self, pairs: Iterable[_Pair]) -> list[_Pair]:
        """Return the pairs whose read is not certainly done before the update runs."""
        found = list(pairs)
        if not found:
            return found
        # The updates that certainly run after a node, as bit sets.
        leads_to = {pair.update: self.bits[pair.update] for pair in found}
        first = min(self.position[pair.read] for pair in found)
        last = max(self.position[i] for i in leads_to)
        for node in steadily(reversed(self.sorted[first : last + 1])):
            bits = leads_to.get(node.id, 0)
            if bits:
                sources = self._producers(node)
                if node.op_def.name in MERGE:
                    taken = self._one_of(node, sources)
                    sources = [i for i in sources if i not in taken]
                for source in sources:
                    known = leads_to.get(source, 0)
                    if known != bits:
                        leads_to[source] = known | bits
        return [pair for pair in found if not leads_to.get(pair.read, 0) & self.bits[pair.update]]

    def _without_waiting(self, pairs: list[_Pair], late: list[_Pair]) -> tuple[list[_Pair], list[_Pair]]:
        """Return the pairs whose order cannot make the step wait for itself."""
        waiting = [node.id for node in self.sorted if self.may_wait(node)]
        ending = reduce(or_, (self.before.get(i, 0) for i in waiting), 0)
        held = {pair.update for pair in pairs if self.in_parts or ending & self.bits[pair.update]}
        if not (held or (late and (waiting or self.in_parts))):
            return pairs, late
        waits = self._waits(frozenset(waiting))
        nothing = frozenset[object]()

        def is_free(pair: _Pair) -> bool:
            before = nothing.union(*(waits.get(i, nothing) for i in pair.begins))
            return before <= nothing.union(*(waits.get(i, nothing) for i in pair.ends))

        free = [pair for pair in pairs if pair.update not in held or is_free(pair)]
        return free, [pair for pair in late if is_free(pair)]

    def _waits(self, waiting: frozenset[int]) -> dict[int, frozenset[object]]:
        """Return what each node may have to wait for: nodes that may wait, and in a partial run the feeds."""
        waits: dict[int, frozenset[object]] = {}
        nothing = frozenset[object]()
        for node in steadily(self.sorted):
            sets = {waits.get(i, nothing) for i in self._producers(node)}
            found = sets.pop() if len(sets) == 1 else nothing.union(*sets)
            if node.id in waiting:
                found |= {node.id}
            if self.in_parts:
                found = found.union(e for e in node.in_edges if e in self.fed)
            if found:
                waits[node.id] = found
        return waits

    # Fetches

    def _fetched(self) -> dict[Endpoint, tuple[int, ...]]:
        """Return for each fetched reference the updates of its variables, which it is read after."""
        found: dict[Endpoint, tuple[int, ...]] = {}
        same: dict[tuple[int, ...], tuple[int, ...]] = {}
        for endpoint in dict.fromkeys(self.fetches):
            variables = self.uses.carried.get(endpoint, ())
            if endpoint in self.fed or endpoint[0] not in self.position or not self._is_cell(endpoint):
                continue
            source = self.nodes[endpoint[0]]
            updates = {i for variable in variables for i in self.uses.updates.get(variable, ()) if i in self.bits}
            after = dict.fromkeys(e for i in sorted(updates) for e in self.frames.before_outputs(i, source))
            if after:
                ids = tuple(after)
                found[endpoint] = same.setdefault(ids, ids)
        return self._in_parts(found) if self.in_parts else found

    def _serial(self) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for loop in self.in_frame:
            found.update(dict.fromkeys(self.frames.enters(loop)))
        return tuple(found)

    def _is_cell(self, endpoint: Endpoint) -> bool:
        node = self.nodes[endpoint[0]]
        while node.op == "Identity":
            if node.in_edges[0] in self.fed:
                return False
            endpoint = node.in_edges[0]
            node = self.nodes[endpoint[0]]
        return node.output_types[endpoint[1]].is_ref

    def _in_parts(self, found: dict[Endpoint, tuple[int, ...]]) -> dict[Endpoint, tuple[int, ...]]:
        """Return the same without updates that need feeds which the fetched node does not need."""
        waits = self._waits(frozenset())
        nothing = frozenset[object]()
        kept = {
            endpoint: tuple(i for i in after if waits.get(i, nothing) <= waits.get(endpoint[0], nothing))
            for endpoint, after in found.items()
        }
        return {endpoint: after for endpoint, after in kept.items() if after}


class _Frames:
    """The loop frames of a graph; a graph without loops is not analysed."""

    def __init__(self, nodes: Mapping[int, Node], fed: Collection[Endpoint]) -> None:
        self._analysis: control_flow.Frames | None = None
        self._enters: defaultdict[int, list[int]] = defaultdict(list)
        self._exits: defaultdict[int, list[int]] = defaultdict(list)
        self._nodes = nodes
        if any(node.op_def.name in ENTER for node in nodes.values()):
            self._analyse(fed)

    def _analyse(self, fed: Collection[Endpoint]) -> None:
        nodes = self._nodes

        def producers(node: Node) -> list[Node]:
            sources = [e[0] for e in node.in_edges if e not in fed] + [*node.control_edges]
            return [nodes[i] for i in sources if i in nodes]

        consumers = {node.id for node in nodes.values() if any(e in fed for e in node.in_edges)}
        self._analysis = analysis = control_flow.analyze(nodes.values(), producers, consumers)
        for node_id, frame in analysis.started_by.items():
            self._enters[id(frame)].append(node_id)
        for node in nodes.values():
            if node.op in EXIT and node.id in analysis.of:
                self._exits[id(analysis.of[node.id])].append(node.id)

    def of(self, node_id: int) -> FrameInfo | None:
        """Return the frame that a node runs in; None in a graph without loops, and for nodes that never run."""
        return None if self._analysis is None else self._analysis.of.get(node_id)

    def started_by(self, enter: int) -> FrameInfo | None:
        """Return the loop that an Enter leads into."""
        return None if self._analysis is None else self._analysis.started_by.get(enter)

    def enters(self, loop: int) -> Sequence[int]:
        """Return the ids of the Enters of the loop whose `id()` is given."""
        return self._enters.get(loop, ())

    def exits(self, loop: int) -> Sequence[int]:
        """Return the ids of the Exits of the loop whose `id()` is given."""
        return self._exits.get(loop, ())

    def loops_around(self, node_id: int) -> list[FrameInfo]:
        """Return the loops that a node is in, the innermost first."""
        return _loops(self.of(node_id))

    def between(self, first: int, second: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ends of an edge between two nodes: these, or the Exits and Enters of loops that only one is in."""
        ours, theirs = self.loops_around(first), self.loops_around(second)
        while ours and theirs and ours[-1] is theirs[-1]:
            ours.pop()
            theirs.pop()
        begins = tuple(self._exits[id(ours[-1])]) if ours else (first,)
        return begins, tuple(self._enters[id(theirs[-1])]) if theirs else (second,)

    def before_outputs(self, update: int, node: Node) -> tuple[int, ...]:
        """Return the ids of nodes that are done when an update is done, seen from the frame of a node's outputs."""
        if self._analysis is None:
            return (update,)
        ours, around = self.loops_around(update), _loops(self._analysis.of_outputs(node))
        while ours and around and ours[-1] is around[-1]:
            ours.pop()
            around.pop()
        if around:
            return ()
        return tuple(self._exits[id(ours[-1])]) if ours else (update,)


def _loops(frame: FrameInfo | None) -> list[FrameInfo]:
    """Return a frame and those around it, without the root."""
    found = []
    while frame is not None and frame.parent is not None:
        found.append(frame)
        frame = frame.parent
    return found


def _sorted(pairs: Iterable[_Pair], made_of: Callable[[int], int]) -> Iterator[_Pair]:
    """Yield the pairs by the id of the read's original node; each group is sorted by itself, as pairs may be many."""
    of_read: defaultdict[int, list[_Pair]] = defaultdict(list)
    for pair in steadily(pairs):
        of_read[made_of(pair.read)].append(pair)
    for read in sorted(of_read):
        yield from sorted(of_read[read], key=lambda pair: (made_of(pair.update), pair.read, pair.update))


def _edges_of(pairs: Iterable[_Pair]) -> dict[int, tuple[int, ...]]:
    found: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for pair in steadily(pairs):
        for end in pair.ends:
            found[end].update(dict.fromkeys(pair.begins))
    return {i: tuple(ids) for i, ids in found.items()}


class _Decision:
    """Decides which pairs get order edges: those whose order does not contradict the pairs before.

    An order edge ends at an update, at a loop with updates, or at a read that is already after its update.  So it is
    enough to know which updates come before which to find all cycles.
    """

    def __init__(self, orderer: _Orderer) -> None:
        self._orderer = orderer
        self._bits = orderer.bits
        # For each update a bit set of those before it, by edges of the graph and by order edges.
        self._preceding = {i: orderer.before[i] & ~bit for i, bit in self._bits.items()}

    def edges(self, pairs: Iterable[_Pair], late: list[_Pair]) -> StepOrder:
        """Return the order edges of the pairs, and of the `late` ones whose read comes after the update."""
        made_of = self._orderer.made_of
        added: list[_Pair] = []
        contradicting: list[_Pair] = []
        for pair in steadily(_sorted(pairs, made_of)):
            (added if self._add(pair) else contradicting).append(pair)
        for pair in steadily(contradicting):
            late += self._orderer.behind(pair.read, pair.update)
        contradictions = tuple((pair.read, pair.update) for pair in contradicting)
        return StepOrder(_edges_of(added), _edges_of(late), {}, contradictions)

    def _add(self, pair: _Pair) -> bool:
        """Put an update after a read; return False if the read is after the update already."""
        orderer = self._orderer
        go_on()  # a long loop over all other updates follows
        held = self._bits[pair.update]
        if pair.ends != (pair.update,):
            held |= orderer.updates_in_loop(pair.ends[0])
        earlier = self._closed(reduce(or_, [orderer.before.get(i, 0) for i in pair.begins], 0))
        if earlier & held:
            return False
        if earlier:
            for update, bit in self._bits.items():
                if (self._preceding[update] | bit) & held:
                    self._preceding[update] |= earlier
        return True

    def _closed(self, bits: int) -> int:
        """Return these updates with all that come before them."""
        if not bits:
            return 0
        return reduce(or_, [self._preceding[i] for i, bit in self._bits.items() if bit & bits], bits)
