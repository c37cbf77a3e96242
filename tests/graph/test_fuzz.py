"""Graphs spoilt at random: whatever comes of them, it is an OpError or an answer, soon, and in bounded memory.

The seeds are conformance cases of many kinds; `tests/support/programs/mutations.py` spoils them.
The quick tests always try the same examples; the soak has many more (`tests/support/programs/seeds.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from tests.conformance.cases import Case, decode
from tests.support import time_limit
from tests.support.foreign_errors import check_ours
from tests.support.programs.mutations import MUTATIONS, mutate_bytes
from tests.support.programs.seeds import Seeds

# A step may take so many seconds, and so many more of the loop's time; an example so many altogether, before it is
# taken for one that hangs; and so much memory on top of what is used.
DEADLINE = 0.1
HELD = 0.1
HANG = 20
MEMORY = 2**30

SEEDS = [
    ("controlflow_v1", "controlflow_v1.while_counter.p32"),
    ("controlflow_v1", "controlflow_v1.while_nested.p10"),
    ("controlflow_v1", "controlflow_v1.while_cond_inside"),
    ("controlflow_v1", "controlflow_v1.cond_dead_branch_error"),
    ("controlflow_v1", "controlflow_v1.ta_gather_scatter"),
    ("controlflow_v1", "controlflow_v1.ref_switch_merge"),
    ("controlflow_v1", "controlflow_v1.while_variable_in_body"),
    ("controlflow_v2", "controlflow_v2.raw_if"),
    ("controlflow_v2", "controlflow_v2.raw_case"),
    ("controlflow_v2", "controlflow_v2.raw_for"),
    ("controlflow_v2", "controlflow_v2.while_op.functional"),
    ("controlflow_v2", "controlflow_v2.nested_functional"),
    ("controlflow_v2", "controlflow_v2.function_gradient"),
    ("peer_loops", "loops.while_loop_with_ta_write"),
    ("peer_cond", "cond.cond_in_while_loop-fn"),
    ("tensor_list", "tensor_list.copy_on_write"),
    ("variables_ref", "variables_ref.assign_and_read"),
    ("variables_resource", "variables_resource.sharing"),
    ("gradients", "gradients.of.sigmoid_xent"),
    ("gradients", "gradients.indexed_slices"),
    ("ops_array", "Pad.int32"),
    ("ops_string", "AsString.int64"),
    ("ops_nn", "Conv2D.same_s2.float"),
    ("session", "session.round_trip.float32"),
    ("peer_keras_layers", "keras.conv1d"),
]


@cache
def seed_graph(index: int) -> tuple[bytes, dict[str, Any]]:
    """A seed's GraphDef and the feeds of its first step."""
    case = Case.load(*SEEDS[index])
    given_feeds = case.steps[0].get("feeds", ()) if case.steps else ()
    feeds = {f["name"]: decode(case.feeds, f["key"], f["dtype"]) for f in given_feeds if "key" in f}
    return case.read("graph.pb"), feeds


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """A hang is an error that says where, and a huge allocation a MemoryError."""
    with time_limit.limited_time(HANG, "this example"), memory_limit():
        yield


@contextlib.contextmanager
def memory_limit() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def random_feed(tensor: aexec.Tensor, rng: random.Random) -> Any:
    """Something that may or may not fit a placeholder; None for types that nothing can be made of."""
    dtype = tensor.dtype.base
    declared = tensor.op.attrs.get("shape")
    dims = getattr(declared, "dims", None)
    if dims is None:
        dims = [None] * rng.randrange(4)
    shape = [rng.randrange(4) if d is None else min(d, 10) for d in dims]
    if len(shape) > 8:
        shape = [1]
    size = int(np.prod(shape))
    if dtype is dtypes.string:
        values = [rng.choice([b"", b"abc", b"1.5", b"\xff"]) for _ in range(size)]
        return np.array(values, object).reshape(shape)
    if dtype.np.kind == "O":
        return None
    return np.array([rng.choice([0, 1, 2, 3, -1, 100]) for _ in range(size)]).astype(dtype.np).reshape(shape)


async def exercise(
    data: bytes, feeds: dict[str, Any], rng: random.Random, odd_feeds: float, timeout: float | None, held: list[float]
) -> int:
    """Import, make a session, and run whatever nothing consumes, at once and one by one.

    Args:
        odd_feeds: how likely a placeholder is fed anything instead of what is in `feeds`.
        timeout: the deadline of each step, in seconds; None for none.
        held: gets the processor's time that the loop took for each run, in seconds.

    Returns:
        How many runs gave an answer.
    """
    try:
        graph = aexec.Graph.from_bytes(data)
        session = aexec.Session(graph, config=aexec.SessionConfig(check_feed_shapes=rng.random() < 0.5))
    except errors.OpError as error:
        check_ours(error)
        return 0
    used = {endpoint for node in graph for endpoint in node.inputs}
    values = {}
    for node in graph:
        if node.op in ("Placeholder", "PlaceholderWithDefault", "PlaceholderV2"):
            value = feeds.get(f"{node.name}:0") if rng.random() >= odd_feeds else None
            value = random_feed(node.output(0), rng) if value is None else value
            if value is not None:
                values[f"{node.name}:0"] = value
    # A Merge's index is nearly always unused, and in a loop it has no one value.
    ends = [t for n in graph for t in n.outputs if t.endpoint not in used and not (n.op == "Merge" and t.index)]
    # The last ones, as what a loop yields stands behind what is only for within it.
    fetches = [t.name for t in ends if t.name not in values][-4:]
    targets = [n.name for n in graph if not n.num_outputs][:4]
    answered = 0
    async with session:
        # What the targets assign is there for the reads only in the next step.
        for one, also in [([], targets), (fetches, targets), *(([name], []) for name in fetches)]:
            began = time.thread_time()
            try:
                await session.run(one, values, also, options=aexec.RunOptions(timeout=timeout))
                answered += 1
            except errors.OpError as error:
                check_ours(error)
            held.append(time.thread_time() - began)
    return answered


def check(
    data: bytes, feeds: dict[str, Any], seed: int, odd_feeds: float = 0.2, timeout: float | None = DEADLINE
) -> int:
    held: list[float] = []

    def run() -> int:
        held.clear()
        with limits():
            return asyncio.run(exercise(data, feeds, random.Random(seed), odd_feeds, timeout, held))

    answered = run()
    if timeout is not None and max(held, default=0) > timeout + HELD:  # was it what a first run imports?
        answered = run()
        assert max(held, default=0) < timeout + HELD
    return answered


QUICK = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
seeds = st.integers(0, len(SEEDS) - 1)
numbers = st.integers(0, 2**32)
steps = st.lists(st.tuples(st.sampled_from(MUTATIONS), numbers), min_size=1, max_size=3)


def with_changed_bytes(index: int, number: int) -> None:
    data, feeds = seed_graph(index)
    check(mutate_bytes(data, random.Random(number)), feeds, number)


def with_changed_nodes(index: int, mutations: list[tuple[Any, int]]) -> None:
    data, feeds = seed_graph(index)
    graph_def = proto.GraphDef.FromString(data)
    for mutate, number in mutations:
        mutate(graph_def, random.Random(number))
    check(graph_def.SerializeToString(), feeds, mutations[0][1])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(100)


@pytest.mark.parametrize("index", range(len(SEEDS)), ids=[name for _, name in SEEDS])
def test_seeds_themselves_run(index: int) -> None:
    data, feeds = seed_graph(index)
    # No deadline: the first step that needs them imports the kernels, which a busy machine may take long over.
    assert check(data, feeds, 0, odd_feeds=0, timeout=None) > 0


@given(seeds, numbers)
@settings(QUICK, max_examples=400)
def test_bytes(index: int, number: int) -> None:
    with_changed_bytes(index, number)


@given(seeds, steps)
@settings(QUICK, max_examples=150)
def test_nodes(index: int, mutations: list[tuple[Any, int]]) -> None:
    with_changed_nodes(index, mutations)


@pytest.mark.soak
def test_further_mutated_graphs_are_handled() -> None:
    """Some with changed bytes, most with changed nodes."""
    more = Seeds(100_000)
    for seed in more:
        with more.trying(seed):
            mutant(seed)
    more.check()


def mutant(seed: int) -> None:
    rng = random.Random(seed)
    index = rng.randrange(len(SEEDS))
    if seed % 4 == 0:
        with_changed_bytes(index, seed)
    else:
        with_changed_nodes(index, [(rng.choice(MUTATIONS), rng.getrandbits(32)) for _ in range(rng.randint(1, 3))])


@pytest.mark.parametrize("seed", [621_898, 629_167])
def test_loops_in_which_an_input_comes_twice_and_another_one_never(seed: int) -> None:
    mutant(seed)
