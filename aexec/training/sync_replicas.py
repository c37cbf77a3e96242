"""`SyncReplicasOptimizer`: replicas that train the same variables in rounds, as one would with all their batches.

In each round, replicas pass their gradients to accumulators.  The chief waits until enough have come, and takes the
means; then another optimizer applies them, and the chief puts a token into the queue of each replica, which then
begins its next round.  A gradient of an earlier round, which came too late, is dropped.  So there may be more replicas
than gradients that are waited for: the slowest of each round are not.  For gradients of rows, the mean of each row is
over the gradients with that row, as in TensorFlow.

::

    optimizer = SyncReplicasOptimizer(AdamOptimizer(0.01), replicas_to_aggregate=4)
    steps = [optimizer.minimize(loss, global_step=count) for loss in losses]  # one for each replica
    hook = optimizer.make_session_run_hook()
    async with TrainingSession(graph, hooks=[hook, StopAtStepHook(last_step=100)]) as session:
        await asyncio.gather(*(hook.run_replica(session, step) for step in steps))

Next to read: `aexec/optimizers/optimizer.py`, whose methods it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aexec import ops
from aexec.client.building import colocate_with, control_dependencies, device, group, name_scope
from aexec.control_flow.structure import leaves_of
from aexec.framework import dtypes, errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.collections import GraphKeys
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node
from aexec.optimizers.optimizer import GradientAndVariable, Optimizer
from aexec.optimizers.optimizer_wrapper import OptimizerWrapper
from aexec.queues.coordinator import Coordinator
from aexec.runtime.session.session import Session
from aexec.training.moving_averages import ExponentialMovingAverage
from aexec.training.session_run_hook import SessionRunHook, Training
from aexec.variables.variable import Variable

__all__ = ["SyncReplicasHook", "SyncReplicasOptimizer"]


class SyncReplicasOptimizer(OptimizerWrapper):
    """An optimizer whose steps are made by several replicas together.

    Each call of `minimize` or `apply_gradients` makes the step of one more replica, which has a counter of its own of
    the round that its variables belong to.  A step may also be run by several tasks at once, if all their gradients are
    waited for, so that none can be late.

    Args:
        optimizer: applies the means.
        replicas_to_aggregate: gradients per round; if there are fewer replicas, some contribute several.
        total_num_replicas: number of replicas; by default `replicas_to_aggregate`.
        variable_averages, variables_to_average: updated after each round.

    Attributes:
        chief_init_op: prepares the first round, or the one at which a checkpoint was written.
        take_op: waits until enough gradients have come, and takes their means; changes no variable.
        chief_op: applies the means that were taken, and begins the next round.
    """

    default_name = "sync_replicas"

    def __init__(
        self,
        optimizer: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        *,
        variable_averages: ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[Variable] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(optimizer, name=name)
        self._aggregate = replicas_to_aggregate
        self._replicas = total_num_replicas or replicas_to_aggregate
        self._averages = variable_averages, variables_to_average
        self._accumulators: dict[Variable, Tensor] = {}
        self._global_step: Variable | None = None
        self._local_steps: list[Variable] = []
        # One for each replica, so that none takes another's token and contributes two gradients to one round.
        self._queues: list[Tensor] = []
        self._round: Node | None = None
        self._take: Node | None = None
        self._chief: Node | None = None
        self._chief_init: Node | None = None
        self._close: Node | None = None

    def apply_gradients(
        self,
        gradients_and_variables: Iterable[GradientAndVariable],
        *,
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Node:
        """Make the step of one more replica: it passes its gradients on, and waits until the next round has begun.

        Args:
            gradients_and_variables: with the same variables for each replica.
            global_step: the number of rounds; required.

        Raises:
            InvalidArgumentError: there is no global step or another one, no gradients, or other variables than another
                replica's.
        """
        pairs = [(grad, variable) for grad, variable in gradients_and_variables if grad is not None]
        if not pairs:
            raise errors.InvalidValueError("Must supply at least one variable with a gradient")
        if global_step is None or self._global_step not in (None, global_step):
            raise errors.InvalidValueError("Global step is required to check staleness, the same for all replicas")
        if self._local_steps and self._accumulators.keys() != {variable for _, variable in pairs}:
            raise errors.InvalidValueError("All replicas must have gradients of the same variables")
        self._global_step = global_step
        with name_scope(None):
            local_step = Variable(
                0,
                trainable=False,
                collections=[GraphKeys.LOCAL_VARIABLES],
                dtype=global_step.dtype,
                name="sync_rep_local_step",
            )
        self._local_steps.append(local_step)
        with name_scope(None), name_scope(name or self.name):
            given = [self._give(grad, variable, local_step) for grad, variable in pairs]
            if self._round is None:
                self._round = self._build_round(pairs, global_step)
            with device(global_step.device or None), name_scope(None):
                mark = f"_{len(self._queues)}" if self._queues else ""
                queue = ops.fifo_queue(
                    [global_step.dtype],
                    shapes=[[]],
                    capacity=-1,
                    shared_name=f"sync_token_q{mark}",
                    name="sync_token_q",
                )
            self._queues.append(queue)
            with control_dependencies(given):
                token = create_node("QueueDequeue", {"handle": queue}, {"component_types": [global_step.dtype]})
            # A late replica may get an old token: the variables that it reads from now on belong to this round.
            with control_dependencies([token]):
                begun: Node = local_step.assign(global_step.read_value(), read_value=False)
        self._chief = self._chief_init = self._close = None
        return begun

    def _give(self, grad: Any, variable: Variable, local_step: Variable) -> Node:
        """Pass a gradient to the accumulator of its variable."""
        with device(variable.device or None):
            is_rows = isinstance(grad, IndexedSlices)
            accumulator = self._accumulators.get(variable)
            if accumulator is None:
                make = ops.sparse_conditional_accumulator if is_rows else ops.conditional_accumulator
                accumulator = make(
                    variable.dtype, shape=variable.static_shape, shared_name=f"{variable.name}/grad_accum"
                )
                self._accumulators[variable] = accumulator
            step = ops.cast(local_step, DstT=dtypes.int64) if local_step.dtype is not dtypes.int64 else local_step
            if not is_rows:
                return ops.accumulator_apply_gradient(accumulator, step, grad)
            shape = grad.dense_shape
            return ops.sparse_accumulator_apply_gradient(
                accumulator,
                step,
                ops.cast(grad.indices, DstT=dtypes.int64),
                grad.values,
                ops.cast(shape, DstT=dtypes.int64) if shape is not None else convert_to_tensor([], dtypes.int64),
                has_known_shape=shape is not None,
            )

    def _build_round(self, pairs: Sequence[GradientAndVariable], global_step: Variable) -> Node:
        taken: list[Any] = []
        for grad, variable in pairs:
            with device(variable.device or None):
                accumulator = self._accumulators[variable]
                if isinstance(grad, IndexedSlices):
                    indices, values, shape = ops.sparse_accumulator_take_gradient(
                        accumulator, self._aggregate, variable.dtype
                    )
                    taken.append(IndexedSlices(values, indices, shape))
                else:
                    taken.append(ops.accumulator_take_gradient(accumulator, self._aggregate, variable.dtype))
        # Kept until all are there: waiting for gradients changes no variable, and can be given up.
        means = self._kept(taken)
        with device(global_step.device or None), name_scope(None):
            pairs_of_means = zip(means, (variable for _, variable in pairs), strict=True)
            update = self._optimizer.apply_gradients(pairs_of_means, global_step=global_step)
        average, chosen = self._averages
        if average is None:
            return update
        with control_dependencies([update]):
            return average.apply(chosen)

    def _kept(self, taken: Sequence[Any]) -> list[Any]:
        """Return the taken values, stored by `take_op` and loaded again."""
        tensors = leaves_of(list(taken))
        types = {"shared_name": f"{self.name}/means".encode()}
        self._take = create_node("Stage", {"values": tensors}, types, name="keep_means")
        kept = create_node("Unstage", {}, {"dtypes": [one.dtype for one in tensors], **types}, name="means").outputs
        for one, other in zip(kept, tensors, strict=True):
            one.node.shapes = [*one.node.shapes[: one.index], other.shape, *one.node.shapes[one.index + 1 :]]
        found = iter(kept)
        return [
            IndexedSlices(*(next(found) for _ in mean)) if isinstance(mean, IndexedSlices) else next(found)
            for mean in taken
        ]

    @contextmanager
    def _building(self, what: str) -> Iterator[Variable]:
        """Context manager for making nodes that belong to no replica, when all replicas are known; yields the global
        step.
        """
        step = self._global_step
        if self._round is None or step is None:
            raise errors.InvalidStateError(f"{what} should be called after apply_gradients().")
        graph = self._round.graph
        assert isinstance(graph, Graph)
        with (
            graph,
            control_dependencies(None),
            name_scope(None),
            name_scope(self.name),
            device(step.device or None),
        ):
            yield step

    def _enqueued(self, count: int, step: Any) -> Node:
        """An operation that puts this many tokens, distributed evenly, into the queues."""
        each, extra = divmod(count, len(self._queues))
        counts = [each + (number < extra) for number in range(len(self._queues))]
        return group(
            *(
                ops.queue_enqueue_many(queue, [ops.fill([size], step)])
                for queue, size in zip(self._queues, counts, strict=True)
                if size
            )
        )

    # For sessions

    @property
    def take_op(self) -> Node:
        """Takes the means of one round.  Raises FailedPreconditionError before `apply_gradients`."""
        if self._take is None:
            raise errors.InvalidStateError("take_op should be called after apply_gradients().")
        return self._take

    @property
    def chief_op(self) -> Node:
        """Applies the means of one round.  Raises FailedPreconditionError before `apply_gradients`."""
        if self._chief is None:
            with self._building("chief_op") as step, control_dependencies([self._round or step]):
                self._chief = self._enqueued(max(self._replicas, self._aggregate), step.read_value())
        return self._chief

    @property
    def close_op(self) -> Node:
        """Closes the queues of tokens: waiting replicas get OutOfRangeError.

        Raises:
            FailedPreconditionError: before `apply_gradients`.
        """
        if self._close is None:
            with self._building("close_op"):
                self._close = group(*(ops.queue_close(queue) for queue in self._queues))
        return self._close

    @property
    def chief_init_op(self) -> Node:
        """Sets the counters of all replicas and accumulators to the global step, once variables have their values."""
        if self._chief_init is None:
            with self._building("chief_init_op") as step:
                done: list[Any] = [
                    local_step.assign(step.value(), read_value=False) for local_step in self._local_steps
                ]
                new = ops.cast(step, DstT=dtypes.int64)
                for accumulator in self._accumulators.values():
                    with colocate_with(accumulator):
                        done.append(ops.accumulator_set_global_step(accumulator, new, name="SetGlobalStep"))
                self._chief_init = group(*done)
        return self._chief_init

    def get_init_tokens_op(self, num_tokens: int = -1) -> Node:
        """Puts tokens into the queues before the first round: needed if a round takes more gradients than there are
        replicas.

        Args:
            num_tokens: by default the number of gradients of a round.

        Raises:
            InvalidArgumentError: fewer than the missing replicas.
            FailedPreconditionError: before `apply_gradients`.
        """
        needed = self._aggregate - self._replicas
        if num_tokens == -1:
            num_tokens = self._aggregate
        elif num_tokens < needed:
            raise errors.InvalidValueError(
                f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} (needed)"
            )
        with self._building("get_init_tokens_op") as step:
            return self._enqueued(num_tokens, step.value()) if num_tokens > 0 else group()

    def make_session_run_hook(self, num_tokens: int = 0) -> SyncReplicasHook:
        """The hook by which a `TrainingSession` prepares and makes the rounds.

        Args:
            num_tokens: as of `get_init_tokens_op`; in one process, replicas begin without any.
        """
        return SyncReplicasHook(self, max(num_tokens, self._aggregate - self._replicas))


class SyncReplicasHook(SessionRunHook):
    """Makes the rounds of a `SyncReplicasOptimizer`, in a task beside the replicas.

    When the training stops, a round that lacks gradients is given up, and the queues of tokens are closed: a waiting
    replica gets OutOfRangeError.  Checkpoints are written between rounds, independent of the replicas.

    Args:
        optimizer: its `apply_gradients` must have been called for each replica.
        num_tokens: as in `get_init_tokens_op`.
    """

    changes_in_rounds = True

    def __init__(self, optimizer: SyncReplicasOptimizer, num_tokens: int = 0) -> None:
        self._optimizer = optimizer
        self._num_tokens = num_tokens

    def begin(self) -> None:
        optimizer = self._optimizer
        self._init_ops = optimizer.chief_init_op, optimizer.get_init_tokens_op(self._num_tokens)
        self._chief_op, self._close_op = optimizer.chief_op, optimizer.close_op

    async def after_create_session(self, session: Training, coordinator: Coordinator) -> None:
        for op in self._init_ops:
            await session.session.run(op)
        # The training session drops its session before it waits for this task.
        rounds = self._take_rounds(session, session.session, coordinator)
        coordinator.create_task(rounds, name="SyncReplicas-chief")

    async def _take_rounds(self, training: Training, session: Session, coordinator: Coordinator) -> None:
        stop = asyncio.ensure_future(training.wait_for_stop())
        try:
            while await self._means_are_taken(session, stop):
                async with training.changing():
                    await session.run(self._chief_op)
        except Exception as error:
            coordinator.request_stop(error)
        finally:
            stop.cancel()
            with contextlib.suppress(errors.OpError):  # the session may be closed
                await session.run(self._close_op)

    async def _means_are_taken(self, session: Session, stop: asyncio.Future[None]) -> bool:
        """Wait for the gradients of a round; False if training stops before."""
        taking = asyncio.ensure_future(session.run(self._optimizer.take_op))
        try:
            await asyncio.wait([taking, stop], return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return False
            await taking
            return True
        finally:
            if not taking.done():
                taking.cancel()
            await asyncio.wait([taking])

    async def run_replica(
        self,
        session: Training,
        step: Any,
        feeds: Callable[[], Mapping[Any, Any] | None] = lambda: None,
        after: Callable[[Any], None] = lambda result: None,
    ) -> None:
        """One replica: runs its step repeatedly, until the training stops.

        Args:
            step: what to fetch, with the replica's step in it.
            feeds: makes the feeds of each step; OutOfRangeError from it, or from a step, ends this replica only.
            after: called with the fetched values.
        """
        try:
            while not session.should_stop():
                after(await session.run(step, feeds()))
        except errors.OutOfRangeError:
            pass
