"""A transport of values through a socket, from this process to itself, as an example of one between machines.

    async with SocketTransport() as transport:
        config = aexec.SessionConfig(device_count={"CPU": 2}, transport=transport)

The receiver asks over the socket, by step and key; the other end waits in the step's rendezvous for the value, and
writes to the socket whether it is dead or an error, and the tensor as TensorProto.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.device_contract.rendezvous import Received, Rendezvous, parse_key
from aexec.framework.wire import tensor_codec

__all__ = ["SocketTransport"]

_LENGTHS = struct.Struct("!II")
Done = Callable[[Received | errors.OpError], object]


class SocketTransport:
    """The transports of all steps; `num_bytes` and `keys` count what went through the socket."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.num_bytes = 0
        self._steps: dict[int, Rendezvous] = {}
        self._waiting: dict[int, tuple[int, Done]] = {}
        self._numbers = itertools.count()

    async def __aenter__(self) -> SocketTransport:
        self._loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        reader, self._asking = await asyncio.open_connection(sock=here)
        self._reading = [self._loop.create_task(self._read(reader, self._answered))]
        reader, self._answering = await asyncio.open_connection(sock=there)
        self._reading.append(self._loop.create_task(self._read(reader, self._asked)))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.wait(self._reading)
        for writer in (self._asking, self._answering):
            writer.close()
            await writer.wait_closed()
        assert not self._steps and not self._waiting

    def __call__(self, step_id: int, rendezvous: Rendezvous) -> StepTransport:
        self._steps[step_id] = rendezvous
        return StepTransport(self, step_id)

    # The end that receives

    def ask(self, step_id: int, key: str, done: Done) -> None:
        number = next(self._numbers)
        self._waiting[number] = (step_id, done)
        self._loop.call_soon_threadsafe(self._write, self._asking, {"step": step_id, "key": key, "number": number})

    def _answered(self, header: dict[str, Any], body: bytes) -> None:
        _, done = self._waiting.pop(header["number"], (0, None))
        if done is None:
            return  # the step has ended
        if "code" in header:
            done(errors.from_code(errors.Code(header["code"]), header["message"]))
        else:
            value = None if header["dead"] else tensor_codec.from_proto(proto.TensorProto.FromString(body))
            done(Received(value, header["dead"]))

    def forget(self, step_id: int) -> None:
        del self._steps[step_id]
        for number in [number for number, (step, _) in self._waiting.items() if step == step_id]:
            del self._waiting[number]

    # The end that sends

    def _asked(self, header: dict[str, Any], body: bytes) -> None:
        self.keys.append(header["key"])
        rendezvous = self._steps.get(header["step"])
        if rendezvous is not None:
            rendezvous.recv_local(header["key"], partial(self._answer, header["number"]))

    def _answer(self, number: int, outcome: Received | errors.OpError) -> None:
        """Called on the thread that sends."""
        if isinstance(outcome, Received) and outcome.send_args is not None and not outcome.is_dead:
            copy: Future[Any] = outcome.send_args.copy_out(outcome.value, node="transport")
            copy.add_done_callback(lambda copied: self._answer(number, Received(copied.result())))
            return
        header: dict[str, Any] = {"number": number}
        body = b""
        if isinstance(outcome, errors.OpError):
            header |= {"code": int(outcome.code), "message": outcome.message}
        else:
            header["dead"] = outcome.is_dead
            if not outcome.is_dead:
                array = np.asarray(outcome.value)
                body = tensor_codec.to_proto(array, dtypes.from_numpy(array.dtype)).SerializeToString()
        self._loop.call_soon_threadsafe(self._write, self._answering, header, body)

    # The socket

    def _write(self, writer: asyncio.StreamWriter, header: dict[str, Any], body: bytes = b"") -> None:
        text = json.dumps(header).encode()
        writer.write(_LENGTHS.pack(len(text), len(body)) + text + body)
        self.num_bytes += len(body)

    async def _read(self, reader: asyncio.StreamReader, handle: Callable[[dict[str, Any], bytes], None]) -> None:
        while True:
            lengths = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
            header = json.loads(await reader.readexactly(lengths[0]))
            handle(header, await reader.readexactly(lengths[1]))


@dataclass(frozen=True)
class StepTransport:
    """The transport of one step."""

    owner: SocketTransport
    step_id: int

    def brings(self, key: str) -> bool:
        """True for values that go to another device; those that stay on one do not need the socket."""
        ends = parse_key(key)
        return ends.src_device != ends.dst_device

    def receive(self, key: str, done: Done) -> None:
        self.owner.ask(self.step_id, key, done)

    def close(self) -> None:
        self.owner.forget(self.step_id)
