"""`GeneratorDataset`: functions make its elements.  They usually call a generator of the program."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.kernels.datasets.arguments import Called, Made
from aexec.kernels.datasets.function_dataset_ops import Call
from aexec.resources.datasets.dataset import DatasetIterator, Element, Pass


class _Generated(DatasetIterator):
    """Calls a function for each element, until it raises an OutOfRangeError.

    What such a function does cannot be done again.  So it runs in the background: a step that is cancelled leaves the
    call alone, and the next step gets its element.

    Args:
        one: the pass.
        begin: makes the state that the other functions are given.
        element: makes an element.
        end: is called once with the state, at the end or when the pass is over; not when the session closes.
    """

    __slots__ = ("_begin", "_element", "_end", "_ended", "_pass", "_state", "_task")

    def __init__(self, one: Pass, begin: Call, element: Call, end: Call) -> None:
        self._pass = one
        self._begin = begin
        self._element = element
        self._end = end
        self._state: Element | None = None
        self._ended = False
        self._task: asyncio.Task[Element | errors.OpError | None] | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._ended and self._task is None:
            return None
        if self._task is None:
            self._task = self._pass.start(self._call(self._pass.context), "generate")
        await asyncio.wait([self._task])
        task, self._task = self._task, None
        outcome = task.result()
        if isinstance(outcome, errors.OpError):
            raise outcome
        return outcome

    async def _call(self, context: OpKernelContext) -> Element | errors.OpError | None:
        try:
            if self._state is None:
                self._state = tuple(await self._begin(context, ()))
            try:
                return self._pass.keep(tuple(await self._element(context, self._state)))
            except errors.OutOfRangeError:
                self._ended = True
                await self._end(context, self._state)
                return None
        except errors.OpError as error:
            return error

    def close(self) -> None:
        task, state = self._task, self._state
        if task is not None:
            task.cancel()
        if state is None or self._ended:
            return
        self._ended = True

        async def end(context: OpKernelContext) -> None:
            if task is not None:
                await asyncio.wait([task])
            with suppress(errors.OpError):  # nobody waits for it
                await self._end(context, state)

        self._pass.finish(end, "end the generator")


@kernel("GeneratorDataset", cost=0)
def generator_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)
    begin, element, end = (
        Called(c, "init_func"),
        Called(c, "next_func", c.attr("output_types")),
        Called(c, "finalize_func"),
    )
    first, second = len(c.attr("Tinit_func_args")), len(c.attr("Tnext_func_args"))

    def compute(*captured: Any) -> Any:
        calls = (
            begin.with_captured((), captured[:first]),
            element.with_captured(begin.gives, captured[first : first + second]),
            end.with_captured(begin.gives, captured[first + second :]),
        )
        return made.of(lambda one: _Generated(one, *calls))

    return compute
