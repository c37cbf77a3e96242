"""`aexec cluster status`: the workers of a cluster, their sessions, steps and memory."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from aexec.commands.answer import print_json
from aexec.commands.usage import add_command

__all__ = ["add_cluster"]


def add_cluster(commands: Any) -> None:
    cluster = add_command(commands, "cluster", help="show the state of a cluster that runs sessions")
    verbs = cluster.add_subparsers(metavar="COMMAND", required=True)
    status = add_command(verbs, "status", help="list the workers with their sessions, steps and memory")
    status.add_argument(
        "target", help="cluster, as sessions name it: dask://HOST:PORT is the address of a Dask scheduler"
    )
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(command=_status)


def _status(arguments: argparse.Namespace) -> int:
    found = asyncio.run(_asked(arguments.target))
    if arguments.json:
        print_json(found)
    else:
        print("\n".join(_lines(found["workers"])))
    return 0


async def _asked(target: str) -> dict[str, Any]:
    from aexec.distributed.cluster_status import cluster_status
    from aexec.distributed.opening_cluster_session import connect_to_cluster

    connection = await connect_to_cluster(target)
    try:
        return await cluster_status(connection.engine)
    finally:
        await connection.close()


def _lines(workers: list[dict[str, Any]]) -> list[str]:
    handles = {session["session"] for worker in workers for session in worker.get("sessions", ())}
    lines = [f"{len(workers)} workers, {len(handles)} sessions"]
    for worker in workers:
        if "error" in worker:
            lines.append(f"{worker['address']}: {worker['error']}")
            continue
        memory = "" if worker["bytes"] is None else f", {worker['bytes'] / (1 << 20):.0f} MiB"
        lines.append(f"{worker['address']}: process {worker['pid']}{memory}")
        lines += [f"  {_session(session)}" for session in worker["sessions"]]
    return lines


def _session(session: dict[str, Any]) -> str:
    steps = session["steps"]
    longest = f", the longest for {max(step['seconds'] for step in steps):.1f} s" if steps else ""
    return (
        f"session {session['session']} of {session['client']}: {session['task']}, {len(steps)} steps{longest}, "
        f"{session['graphs']} graphs, {session['resources']} resources"
    )
