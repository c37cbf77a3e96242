"""What gRPC needs is imported where it is asked for, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import aexec
from aexec_server import ServerConfig, make_app
from aexec_server.rpc.opening import rpc_server_of

async def main():
    assert rpc_server_of(make_app()) is None
    print([name for name in sys.modules if name.partition(".")[0].startswith("grpc")])
    sys.modules["grpc"] = None
    try:
        rpc_server_of(make_app(ServerConfig(grpc_port=0)))
    except aexec.errors.FailedPreconditionError as error:
        print(error)

import asyncio
asyncio.run(main())
"""


def test_grpc_is_imported_where_it_is_asked_for_and_its_extra_is_named() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    modules, words = ran.stdout.splitlines()
    assert modules == "[]"
    assert words == "grpc_port needs the package grpc, which is not installed: pip install 'aexec[grpc]'"
