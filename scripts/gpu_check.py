"""Everything that needs a GPU, in one command: the device suite, the conformance cases, and benchmarks.

Each figure stands beside raw CuPy's in the same process, by turns, as medians: machines differ.  With `--stand-in`
a stand-in for CuPy takes the GPU's place, in small sizes, which shows that all of this runs and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from model_benchmarks import facts
from models import zoo

import aexec
from aexec.devices.check_device import CHECKS
from aexec.devices.cuda_device import CudaDevice
from aexec.devices.cuda_signals import SIGNALS
from aexec.devices.device_registry import register_device_factory, unregister_device_factory
from aexec.framework import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.types import DEVICE_GPU

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
PARTS = ("suite", "calls", "conformance", "signals", "kernels", "captured", "products", "copies", "cancel", "models")
MODELS = ("mobilenet", "resnet", "transformer")


@dataclass(frozen=True)
class Row:
    """A line of the table: a figure, its baseline, and the aim."""

    what: str
    figure: str
    baseline: str = ""
    ratio: str = ""
    aim: str = ""
    reached: bool | None = None


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmarks, for the GPU or for its stand-in."""

    operations: int = 200
    small: int = 1 << 10
    large: int = 1 << 24
    product: int = 4096
    copied: int = 1 << 26
    copies: int = 8
    queued_seconds: float = 1.0
    repeats: int = 9
    every_case: int = 1


STAND_IN = Sizes(
    operations=5,
    small=16,
    large=64,
    product=8,
    copied=1 << 10,
    copies=3,
    queued_seconds=0.02,
    repeats=2,
    every_case=20,
)


class Bench:
    """What all parts share: CuPy, sizes, the table, and timing of two things by turns."""

    def __init__(self, cupy: Any, sizes: Sizes) -> None:
        self.cupy = cupy
        self.sizes = sizes
        self.rows: list[Row] = []
        self.part = ""
        self.held: dict[str, float] = {}

    def add(self, what: str, mine: float, raw: float, aim: float, unit: float = 1e3, name: str = "ms") -> None:
        ratio = mine / raw if raw else float("inf")
        self.rows.append(
            Row(what, f"{mine * unit:.3f} {name}", f"{raw * unit:.3f} {name}", f"{ratio:.2f}", f"≤ {aim}", ratio <= aim)
        )

    async def by_turns(self, mine: Callable[[], Awaitable[Any]], raw: Callable[[], Any]) -> tuple[float, float]:
        """Return the median seconds of both, after two rounds that do not count.

        In the second of them the holds of the loop are measured: the first round imports parts of CuPy; and raw CuPy,
        which holds the loop, is timed without this watcher too.
        """
        times: tuple[list[float], list[float]] = ([], [])
        await mine()
        raw()
        async with self.watched():
            await mine()
        raw()
        for _ in range(self.sizes.repeats):
            began = time.perf_counter()
            await mine()
            between = time.perf_counter()
            raw()
            times[0].append(between - began)
            times[1].append(time.perf_counter() - between)
            await asyncio.sleep(0)
        return statistics.median(times[0]), statistics.median(times[1])

    def synchronised(self, work: Callable[[], Any]) -> Callable[[], None]:
        stream = self.cupy.cuda.Stream(non_blocking=True)

        def run() -> None:
            with stream:
                work()
            end = self.cupy.cuda.Event()
            end.record(stream)
            end.synchronize()

        return run

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Context manager: measure for how long the loop is held inside."""

        async def tick() -> None:
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0)
                now = time.perf_counter()
                self.held[self.part] = max(self.held.get(self.part, 0.0), now - last)
                last = now

        ticking = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticking.cancel()


# Correctness


async def suite(bench: Bench) -> None:
    """Run the device suite."""
    numbers = itertools.count()

    def make() -> CudaDevice:
        return CudaDevice(f"{GPU[:-1]}{next(numbers)}", cupy=bench.cupy)

    for check in CHECKS:
        try:
            await check(make)
        except Exception as error:
            print(f"{check.__name__}: {error!r}", file=sys.stderr)
            bench.rows.append(Row(f"suite: {check.__name__}", "failed", aim="passes", reached=False))
    bench.rows.append(Row("device suite", f"{len(CHECKS)} checks", aim="pass", reached=_all_reached(bench, "suite")))


def _all_reached(bench: Bench, prefix: str) -> bool:
    return not any(row.what.startswith(prefix) and row.reached is False for row in bench.rows)


# Kernels with more than one right result, with the reason.
NOT_ONE_RESULT = {
    "InplaceUpdate": "rows are written in no order",
    "SparseToDense": "values for one place are written in no order",
    **dict.fromkeys(
        ("BatchSelfAdjointEig", "BatchSelfAdjointEigV2", "SelfAdjointEig", "SelfAdjointEigV2"),
        "eigenvectors have any sign",
    ),
}


async def calls(bench: Bench) -> None:
    """Compare a sample of calls of each GPU kernel with NumPy."""
    device = CudaDevice(GPU, cupy=bench.cupy)
    failures = await asyncio.to_thread(_failed_calls, device, bench.sizes.every_case)
    await device.close()
    for why in failures.values():
        print(why, file=sys.stderr)
    row = Row("calls of kernels as NumPy's", f"{len(failures)} ops differ", aim="none", reached=not failures)
    bench.rows.append(row)


def _failed_calls(device: CudaDevice, every: int) -> dict[str, str]:
    from tests.kernels import kernel_calls

    found: dict[str, str] = {}
    with device.cupy.cuda.Device(device.number), np.errstate(all="ignore"):
        for call in kernel_calls.load()[::every]:
            if call.op in NOT_ONE_RESULT:
                continue
            try:
                _check_call(device, call)
            except (Exception, AssertionError) as error:
                inputs = ", ".join(f"{x.dtype}{list(x.shape)}" for x in call.inputs)
                found[call.op] = f"{call.op}({inputs}): {type(error).__name__}: {error}"
    return found


def _check_call(device: CudaDevice, call: Any) -> None:
    """Compare a call of the CPU's kernel with the GPU's, if the GPU has one that uses its memory."""
    from tests.kernels.kernel_calls import check_alike, in_host_memory, outputs_of

    c = call.construction(device.xp)
    try:
        kernel = kernel_registry.global_registry.lookup(call.op, device.type, c.attrs, node="n")
    except errors.OpError:
        return
    c.host_memory = kernel.host_memory
    of_inputs, of_outputs = in_host_memory(c)
    built = kernel.build(c)
    if all((*of_inputs, *of_outputs)) or built.variables or built.wants_context:
        return
    try:
        want = outputs_of(call.of_numpy(), call.inputs)
    except errors.OpError:
        return  # it read a file that no longer exists
    inputs = [x if on_host else device.xp.asarray(x) for x, on_host in zip(call.inputs, of_inputs, strict=True)]
    for one, other, on_host in zip(outputs_of(built, inputs), want, of_outputs, strict=True):
        if not isinstance(one, device.xp.ndarray):
            assert on_host, f"the result is {type(one)}, no array on the GPU"
            check_alike(one, other)
        else:
            check_alike(one.get(), other)


# Cases in which a GPU gives another result, with the reason.
OTHER_ON_GPUS = {"NextAfter.float": "CuPy's kernels take numbers below the smallest normal one for zero"}


async def conformance(bench: Bench) -> None:
    """Run all conformance cases, with every node on the GPU that has a kernel for it."""
    from tests.conformance import cases
    from tests.conformance.runner import run_case
    from tests.conformance.test_conformance import NOT_YET, UNDETERMINED
    from tests.conformance.test_cuda_device import OTHER

    passed, failures = 0, {}
    every = [(family, name) for family in cases.families() for name in cases.names(family)]
    for family, name in every[:: bench.sizes.every_case]:
        try:
            with tempfile.TemporaryDirectory() as folder:
                await asyncio.wait_for(run_case(cases.Case.load(family, name), Path(folder)), 60)
            passed += 1
        except (Exception, AssertionError) as error:
            failures[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    for name, why in failures.items():
        print(f"{name}: {why}", file=sys.stderr)
    total = passed + len(failures)
    others = {*NOT_YET, *UNDETERMINED, *OTHER, *OTHER_ON_GPUS}
    right = all(name in others for name in failures)
    aim = f"all but {len(others)} that are known" if bench.sizes.every_case == 1 else "all"
    bench.rows.append(Row("conformance cases on GPU:0", f"{passed} of {total}", aim=aim, reached=right))


# Figures


async def signals(bench: Bench) -> None:
    """Measure how soon the host knows that a kernel has ended, for each way of signalling."""
    x = np.ones(bench.sizes.small, np.float32)
    for name in SIGNALS:
        device = CudaDevice(GPU, signals=name, cupy=bench.cupy)
        times = []
        for _ in range(50 * bench.sizes.repeats):
            began = time.perf_counter()
            await asyncio.wrap_future(device.copy_out(device.copy_in(x, node="x"), node="y"))
            times.append(time.perf_counter() - began)
        await device.close()
        bench.rows.append(Row(f"there and back, signals by {name}", f"{statistics.median(times) * 1e6:.0f} µs"))


def _graph(count: int, size: int, *, fan: bool) -> aexec.Graph:
    with aexec.Graph() as graph, aexec.device("/device:GPU:0"):
        x = aexec.ops.fill(aexec.constant([size]), aexec.constant(1.0), name="x")
        y, made = x, []
        for _ in range(count):
            y = aexec.ops.tanh(x if fan else y)
            made.append(y)
        with aexec.control_dependencies(made):
            aexec.ops.no_op(name="last")
    return graph


async def kernels(bench: Bench) -> None:
    """Measure a chain and a fan of elementwise ops."""
    cupy, sizes = bench.cupy, bench.sizes
    config = aexec.SessionConfig(graph_passes=("pruning",))  # otherwise equal nodes of a fan are merged
    for fan, (what, size) in itertools.product((False, True), (("small", sizes.small), ("large", sizes.large))):

        def raw(size: int = size, fan: bool = fan) -> None:
            x = y = cupy.full((size,), 1.0, "float32")
            for _ in range(sizes.operations):
                y = cupy.tanh(x if fan else y)

        async with aexec.Session(_graph(sizes.operations, size, fan=fan), config=config) as session:
            call = session.make_callable([], [], ["last"])
            mine, theirs = await bench.by_turns(call, bench.synchronised(raw))
        shape = "fan" if fan else "chain"
        bench.add(f"{shape} of {sizes.operations} {what} elementwise ops", mine, theirs, 1.15)


def _fed_chain(count: int) -> aexec.Graph:
    with aexec.Graph() as graph:
        y = aexec.placeholder("float32", [None], name="x")
        with aexec.device("/device:GPU:0"):
            for _ in range(count):
                y = aexec.ops.tanh(y)
            aexec.ops.identity(y, name="y")
    return graph


async def captured(bench: Bench) -> None:
    """Measure a chain of small ops as one captured graph, with inputs and outputs in the GPU's memory."""
    cupy, sizes = bench.cupy, bench.sizes
    x = cupy.full((sizes.small,), 1.0, "float32")

    def raw() -> None:
        y = x
        for _ in range(sizes.operations):
            y = cupy.tanh(y)

    config = aexec.SessionConfig(capture_graphs=True)
    async with aexec.Session(_fed_chain(sizes.operations), config=config) as session:
        call = session.make_callable(["y:0"], ["x:0"], fetch_devices={"y:0": "/device:GPU:0"})
        mine, theirs = await bench.by_turns(lambda: call(x), bench.synchronised(raw))
    bench.add(f"{sizes.operations} small ops, captured", mine, theirs, 0.4)


def _products(count: int, size: int, dtype: str) -> aexec.Graph:
    with aexec.Graph() as graph, aexec.device("/device:GPU:0"):
        x = y = aexec.ops.fill(aexec.constant([size, size]), aexec.constant(np.array(0.01, dtype)))
        for _ in range(count):
            y = aexec.ops.mat_mul(y, x)
        with aexec.control_dependencies([y]):
            aexec.ops.no_op(name="last")
        aexec.ops.fill(aexec.constant([8]), aexec.constant(np.array(0.01, dtype)), name="small")
    return graph


async def products(bench: Bench) -> None:
    """Measure products of large matrices."""
    cupy, size, count = bench.cupy, bench.sizes.product, 4
    for dtype in ("float16", "float32"):

        def raw(dtype: str = dtype) -> None:
            x = y = cupy.full((size, size), 0.01, dtype)
            for _ in range(count):
                y = cupy.matmul(y, x)

        async with aexec.Session(_products(count, size, dtype)) as session:
            call = session.make_callable([], [], ["last"])
            mine, theirs = await bench.by_turns(call, bench.synchronised(raw))
        bench.add(f"{count} products {size}³ {dtype}", mine, theirs, round(1 / 0.98, 2))


async def copies(bench: Bench) -> None:
    """Measure copies to the GPU beside products, relative to the longer of the two alone."""
    size, copied, count = bench.sizes.product, bench.sizes.copied, bench.sizes.copies
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        with aexec.device("/device:GPU:0"):
            square = aexec.ops.fill(aexec.constant([size, size]), aexec.constant(0.01))
            with aexec.control_dependencies([aexec.ops.neg(x)]):
                aexec.ops.no_op(name="copied")
            with aexec.control_dependencies([aexec.ops.mat_mul(square, square)]):
                aexec.ops.no_op(name="computed")
    feed = np.ones(copied // 4, np.float32)
    async with aexec.Session(graph) as session, bench.watched():
        copy, compute = session.make_callable([], ["x:0"], ["copied"]), session.make_callable([], [], ["computed"])
        both = session.make_callable([], ["x:0"], ["copied", "computed"])

        async def many(call: Callable[..., Any], *feeds: Any) -> float:
            began = time.perf_counter()
            await asyncio.gather(*[call(*feeds) for _ in range(count)])
            return time.perf_counter() - began

        rounds = [
            (await many(copy, feed), await many(compute), await many(both, feed))
            for _ in range(bench.sizes.repeats + 1)
        ]
    alone = [statistics.median(column) for column in zip(*rounds[1:], strict=True)]
    bench.add(f"{count} copies of {copied >> 20} MiB beside products", alone[2], max(alone[:2]), round(1 / 0.9, 2))


async def cancel(bench: Bench) -> None:
    """Measure how soon a step with a second of queued work ends, and how soon the next step has a small result."""
    size, seconds = bench.sizes.product, bench.sizes.queued_seconds
    square = bench.cupy.full((size, size), 0.01, "float32")
    product = bench.synchronised(lambda: bench.cupy.matmul(square, square))
    product()
    began = time.perf_counter()
    product()
    count = int(seconds / (time.perf_counter() - began)) + 1
    ends, nexts = [], []
    async with aexec.Session(_products(count, size, "float32")) as session, bench.watched():
        await session.run([], targets=["last"])
        await session.run("small:0")
        for _ in range(bench.sizes.repeats):
            step = session.start([], targets=["last"])
            await asyncio.sleep(seconds / 20)
            began = time.perf_counter()
            step.cancel()
            with suppress(errors.CancelledError):
                await step
            ends.append(time.perf_counter() - began)
            await session.run("small:0")
            nexts.append(time.perf_counter() - began - ends[-1])
            for device in session.devices():
                await device.synchronise()  # otherwise this round's work runs beside the next
    # The GPU still executes what was launched, beside the next step, which takes turns with it instead of waiting for
    # its end.
    what = f"with {seconds:g} s of work queued, worst"
    for name, worst, aim in (("cancel to end", max(ends), 5e-3), ("the step after it", max(nexts), seconds / 10)):
        figure = f"{worst * 1e3:.2f} ms"
        bench.rows.append(Row(f"{name}, {what}", figure, aim=f"≤ {aim * 1e3:g} ms", reached=worst <= aim))


async def models(bench: Bench) -> None:
    """Measure whole models on the GPU, by nodes and as captured graphs, and on the CPU."""
    for model in zoo(small=bench.sizes is STAND_IN):
        if not model.name.startswith(MODELS):
            continue
        graph = aexec.Graph.from_bytes(model.graph_def)
        feeds = dict(model.feeds)
        configs = {
            model.title: aexec.SessionConfig(),
            f"{model.title}, captured": aexec.SessionConfig(capture_graphs=True),
            "on the CPU": aexec.SessionConfig(device_count={"GPU": 0}, delegates=()),
        }
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(aexec.Session(graph, config=c)) for c in configs.values()]
            fetches, fed = [f"{name}:0" for name in model.outputs], [f"{name}:0" for name in feeds]
            ways = [session.make_callable(fetches, fed) for session in sessions]
            answers = []
            for call in ways:
                answers.append(await call(*feeds.values()))
                async with bench.watched():
                    await call(*feeds.values())
            for got in answers[:-1]:
                for one, other in zip(got, answers[-1], strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)
            times: list[list[float]] = [[] for _ in ways]
            for _ in range(bench.sizes.repeats + 2):
                for call, into in zip(ways, times, strict=True):
                    began = time.perf_counter()
                    await call(*feeds.values())
                    into.append(time.perf_counter() - began)
        *on_gpu, here = (statistics.median(column[2:]) for column in times)
        for what, seconds in zip(configs, on_gpu, strict=False):
            figures = (f"{seconds * 1e3:.2f} ms", f"{here * 1e3:.2f} ms", f"{seconds / here:.2f}")
            bench.rows.append(Row(f"{what}; the CPU for baseline", *figures))


# The command


def _markdown(bench: Bench, heading: str, machine: dict[str, str]) -> str:
    lines = [
        f"# {heading}",
        "",
        "Made by `scripts/gpu-check`: medians, by turns with the baseline, raw CuPy, in one process.",
    ]
    lines += ["", *[f"- {name}: {value}" for name, value in machine.items()], ""]
    lines += ["| what | aexec | baseline | ratio | aim | |", "|---|---|---|---|---|---|"]
    for row in bench.rows:
        verdict = {None: "", True: "reached", False: "**missed**"}[row.reached]
        lines.append(f"| {row.what} | {row.figure} | {row.baseline} | {row.ratio} | {row.aim} | {verdict} |")
    return "\n".join(lines) + "\n"


async def check(bench: Bench, parts: Sequence[str]) -> None:
    """Run the parts; a part that fails becomes a row of the table."""
    for part in parts:
        print(f"{part} ...", file=sys.stderr, flush=True)
        bench.part = part
        try:
            await globals()[part](bench)
        except Exception as error:
            print(f"{part}: {type(error).__name__}: {error}", file=sys.stderr)
            bench.rows.append(Row(part, f"failed: {type(error).__name__}", reached=False))
        gc.collect()
    for part, held in bench.held.items():
        row = Row(f"event loop held at most: {part}", f"{held * 1e3:.2f} ms", aim="≤ 2 ms", reached=held <= 2e-3)
        bench.rows.append(row)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--markdown", metavar="FILE", help="write the table with machine and versions")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU: small sizes, no figures to keep")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.parts) - {*PARTS}:
        parser.error(f"no part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    if arguments.stand_in:
        from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory

        cupy, sizes = fake_cupy(), STAND_IN
        unregister_device_factory("GPU")
        register_device_factory("GPU", gpu_factory(cupy), priority=DEVICE_GPU.priority)
    else:
        cupy, sizes = None, Sizes()
    try:
        device = CudaDevice(GPU, cupy=cupy)
    except errors.NotFoundError as reason:
        parser.exit(1, f"{parser.prog}: {reason.message}\n")
    bench = Bench(device.cupy, sizes)
    machine = {"GPU": device.description, **facts(0, "asyncio"), "CuPy": device.cupy.__version__}
    asyncio.run(check(bench, arguments.parts or PARTS))
    text = _markdown(bench, f"aexec on {device.description}", machine)
    print(text)
    if arguments.markdown and not arguments.stand_in:
        Path(arguments.markdown).write_text(text)
    return int(any(row.reached is False for row in bench.rows) and not arguments.stand_in)


if __name__ == "__main__":
    sys.exit(main())
