"""`aexec ops`, `aexec kernels` and `aexec devices`: list the registered ops and kernels, and the devices."""

from __future__ import annotations

import argparse
import collections
from typing import Any

from aexec import errors
from aexec.commands.usage import add_command

__all__ = ["add_listings"]


def add_listings(commands: Any) -> None:
    ops = add_command(commands, "ops", help="list the registered ops, or describe one")
    ops.add_argument("op", nargs="?", help="op to describe (default: list all)")
    ops.set_defaults(command=_ops)
    kernels = add_command(
        commands, "kernels", help="list kernels with op, device and types, and whether CuPy can run them"
    )
    kernels.add_argument("op", nargs="?", help="list only kernels of this op (default: all)")
    kernels.set_defaults(command=_kernels)
    devices = add_command(commands, "devices", help="list devices and worker threads")
    devices.set_defaults(command=_devices)


def _ops(arguments: argparse.Namespace) -> int:
    from aexec.framework.op_contract.op_registry import global_registry
    from aexec.graph import op_functions

    if arguments.op is None:
        print("\n".join(global_registry.ops()))
        return 0
    op_def = global_registry.lookup(arguments.op).op_def
    print(op_def)
    print(f"in Python: aexec.ops.{op_functions.snake_case(op_def.name)}{op_functions.signature_of(op_def)}")
    return _kernels(arguments)


def _kernels(arguments: argparse.Namespace) -> int:
    from aexec.framework.kernel_contract.kernel_registry import global_registry
    from aexec.kernels.common import portable

    if arguments.op is not None and not global_registry.kernels_of(arguments.op):
        raise errors.NotFoundError(f"no kernel is registered for op '{arguments.op}'")
    counts: collections.Counter[str] = collections.Counter()
    for op in [arguments.op] if arguments.op is not None else global_registry.ops():
        marks = set()
        for kernel in global_registry.kernels_of(op):
            mark = portable.mark(kernel)
            marks.add(mark)
            print(f"{op}: {kernel}" + (f"; {mark}" if mark else ""))
        counts.update(["ops", max(marks)])
        counts["kernels"] += len(global_registry.kernels_of(op))
    if arguments.op is None:
        marked = counts["xp"] + counts["xp, reads back"]
        print(
            f"{counts['ops']} ops, {counts['kernels']} kernels; xp: {marked} ops whose kernels any array module "
            f"runs, {counts['xp, reads back']} of them read values back to the host"
        )
    return 0


def _devices(arguments: argparse.Namespace) -> int:
    from aexec import native
    from aexec.blas import blas_libraries
    from aexec.devices.device_registry import make_devices
    from aexec.runtime.threads.worker_pool import WorkerPool

    for device in make_devices({}):
        facts = [f"{device.xp.__name__} {device.xp.__version__}"]
        if device.description:
            facts.append(device.description)
        if device.memory_limit:
            facts.append(f"{device.memory_limit / (1 << 30):.1f} GiB")
        print(f"{device.name}  {', '.join(facts)}")
    pool = WorkerPool().statistics()
    print(f"{pool.workers} worker threads for heavy kernels, {pool.intra_op_threads} threads with those that help them")
    for library in blas_libraries():
        kernels = f"kernels for {library.architecture}" if library.architecture else "kernels unknown"
        print(f"BLAS: {library.name} {library.version}, {kernels}, {library.threads} threads")
    print(f"Loops in C: {native.loops.INSTRUCTIONS if native.loops else 'none, NumPy does their work'}")
    return 0
