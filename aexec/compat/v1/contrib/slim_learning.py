"""`tf.contrib.slim.learning`: builds a training step, and runs it in a loop.

Next to read: `../running/training.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, group, name_scope
from aexec.client.clipping import clip_by_norm
from aexec.compat.v1.contrib.optimizing import multiply_gradients
from aexec.compat.v1.namespace import namespace, refuse
from aexec.compat.v1.platform.logging import info
from aexec.compat.v1.running.coordination import Coordinator, start_queue_runners
from aexec.compat.v1.running.session import Session
from aexec.compat.v1.running.training import Saver, latest_checkpoint
from aexec.compat.v1.values.framework_ops import get_or_create_global_step
from aexec.framework import errors
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import require_graph
from aexec.variables.initialization import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    trainable_variables,
)

__all__ = ["clip_gradient_norms", "create_train_op", "multiply_gradients", "train", "train_step"]

_ANY = 0  # in place of a step: the graph's own


def clip_gradient_norms(gradients_to_variables: Iterable[Any], max_norm: float) -> list[tuple[Any, Any]]:
    """Clip each gradient to a norm of at most `max_norm`; return the (gradient, variable) pairs."""
    found = []
    for grad, variable in gradients_to_variables:
        if isinstance(grad, IndexedSlices):
            grad = IndexedSlices(clip_by_norm(grad.values, max_norm), grad.indices, grad.dense_shape)
        elif grad is not None:
            grad = clip_by_norm(grad, max_norm)
        found.append((grad, variable))
    return found


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = _ANY,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Iterable[Any] | None = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = 1,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Any = None,
    check_numerics: bool = True,
) -> Tensor:
    """Build a training step; return a tensor that runs it and has the loss.

    Args:
        global_step: incremented by each step; by default the graph's; None for none.
        update_ops: operations to run before the step; by default those in `GraphKeys.UPDATE_OPS`.
        clip_gradient_norm: upper bound of each gradient's norm; 0 for no bound.
        gradient_multipliers: variable or its name → factor of its gradient.
        check_numerics: fail the run if the loss is not finite.
    """
    step = get_or_create_global_step() if global_step is _ANY else global_step
    graph = require_graph()
    updates = list(graph.collections.get(GraphKeys.UPDATE_OPS) if update_ops is None else update_ops)
    loss = total_loss
    if updates:
        with control_dependencies(updates), name_scope("update_barrier"):
            barrier = ops.no_op()
        with control_dependencies([barrier]):
            loss = ops.identity(total_loss)
    pairs = optimizer.compute_gradients(
        loss,
        list(trainable_variables() if variables_to_train is None else variables_to_train),
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if gradient_multipliers:
        pairs = multiply_gradients(pairs, gradient_multipliers)
    if clip_gradient_norm > 0:
        pairs = clip_gradient_norms(pairs, clip_gradient_norm)
    trained = optimizer.apply_gradients(pairs, global_step=step)
    with name_scope("train_op"):
        if check_numerics:
            loss = ops.check_numerics(loss, message="LossTensor is inf or nan")
        with control_dependencies([trained]):
            made = ops.identity(loss)
    graph.collections.get_ref(GraphKeys.TRAIN_OP).append(made)
    return made


def train_step(sess: Any, train_op: Any, global_step: Any, train_step_kwargs: Any) -> tuple[Any, bool]:
    """Run a step; return the loss, and whether training should stop.

    Args:
        train_step_kwargs: may hold the scalar bool tensors `should_log` and `should_stop`.
    """
    begun = time.monotonic()
    loss, step = sess.run([train_op, global_step])
    if "should_log" in train_step_kwargs and sess.run(train_step_kwargs["should_log"]):
        info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, time.monotonic() - begun)
    stop = bool(sess.run(train_step_kwargs["should_stop"])) if "should_stop" in train_step_kwargs else False
    return loss, stop


def train(
    train_op: Any,
    logdir: str | None,
    train_step_fn: Callable[..., Any] = train_step,
    train_step_kwargs: Any = None,
    log_every_n_steps: int = 1,
    graph: Any = None,
    master: str = "",
    is_chief: bool = True,
    global_step: Any = None,
    number_of_steps: int | None = None,
    init_op: Any = None,
    init_feed_dict: Any = None,
    local_init_op: Any = None,
    init_fn: Callable[[Any], Any] | None = None,
    ready_op: Any = None,
    summary_op: Any = None,
    save_summaries_secs: float = 600,
    summary_writer: Any = None,
    startup_delay_steps: int = 0,
    saver: Any = None,
    save_interval_secs: float = 600,
    sync_optimizer: Any = None,
    session_config: Any = None,
    session_wrapper: Callable[[Any], Any] | None = None,
    trace_every_n_steps: int | None = None,
    ignore_live_threads: bool = False,
) -> Any:
    """Train until a number of steps is reached or the input ends.

    Args:
        train_op: a tensor of `create_train_op`.
        logdir: folder to resume from and to write checkpoints to; None for no checkpoints.
        number_of_steps: value of `global_step` at which to stop; None to stop only at the end of the input.
        init_fn: called with the session after the initialisers, unless a checkpoint is restored.
        save_interval_secs: seconds between two checkpoints; one more is written at the end.
        summary_op, save_summaries_secs, ready_op: ignored; write summaries with a FileWriter.

    Returns:
        The last loss; None if there was no step.

    Raises:
        ValueError: `train_op` is None, or `number_of_steps` is not positive.
        UnimplementedError: an argument for clusters (`is_chief`, `sync_optimizer`) or for traces is given.
    """
    if train_op is None:
        raise errors.InvalidValueError("train_op cannot be None.")
    if number_of_steps is not None and number_of_steps <= 0:
        raise errors.InvalidValueError("`number_of_steps` must be either None or a positive number.")
    refuse("slim.learning.train", sync_optimizer=sync_optimizer, trace_every_n_steps=trace_every_n_steps)
    refuse("slim.learning.train", is_chief=None if is_chief else "False", startup_delay_steps=startup_delay_steps)
    with graph or train_op.graph:
        step = get_or_create_global_step() if global_step is None else global_step
        first = init_op or global_variables_initializer()
        local = local_init_op or group(local_variables_initializer(), *_tables())
        keeper = saver or Saver(global_variables())
        settings = train_step_kwargs
        if settings is None:
            settings = _conditions(step, number_of_steps, log_every_n_steps)
        with Session(master, config=session_config) as opened:
            session = opened if session_wrapper is None else session_wrapper(opened)
            session.run(first, feed_dict=init_feed_dict)
            session.run(local)
            found = None if logdir is None else latest_checkpoint(logdir)
            if found is not None:
                keeper.restore(session, found)
            elif init_fn is not None:
                init_fn(session)
            saves = _Saves(keeper, logdir, step, save_interval_secs)
            return _trained(session, saves, lambda: train_step_fn(session, train_op, step, settings))


def _conditions(step: Any, number_of_steps: int | None, log_every: int) -> dict[str, Tensor]:
    """The tensors that `train_step` runs after a step: whether to log, and whether to stop."""
    found: dict[str, Tensor] = {}
    if number_of_steps is not None:
        found["should_stop"] = ops.greater_equal(step, ops.cast(number_of_steps, DstT=step.dtype.base))
    if log_every > 0:
        every = ops.cast(log_every, DstT=step.dtype.base)
        found["should_log"] = ops.equal(ops.floor_mod(step, every), ops.zeros_like(every))
    return found


def _tables() -> list[Any]:
    return list(require_graph().collections.get(GraphKeys.TABLE_INITIALIZERS))


class _Saves:
    """Writes checkpoints into a folder at an interval."""

    def __init__(self, saver: Any, logdir: str | None, step: Any, every: float) -> None:
        self._saver = saver
        self._logdir = logdir
        self._step = step
        self._every = every
        self._due = time.monotonic() + every

    def save(self, session: Any, *, now: bool = False) -> None:
        """Write a checkpoint if one is due."""
        if self._logdir is None or not (now or time.monotonic() >= self._due):
            return
        import os

        os.makedirs(self._logdir, exist_ok=True)
        self._saver.save(session, os.path.join(self._logdir, "model.ckpt"), global_step=self._step)
        self._due = time.monotonic() + self._every


def _trained(session: Any, saves: _Saves, step: Callable[[], Any]) -> Any:
    """Run steps until one returns that training should stop, or the input ends; return the last loss."""
    coordinator = Coordinator()
    threads = start_queue_runners(session, coordinator)
    loss, stop = None, False
    try:
        while not stop and not coordinator.should_stop():
            loss, stop = step()
            saves.save(session)
    except errors.OutOfRangeError as ended:
        info("Caught OutOfRangeError. Stopping Training. %s", ended)
    finally:
        coordinator.request_stop()
        coordinator.join(threads)
    saves.save(session, now=True)
    return loss


__getattr__, __dir__ = namespace(
    __name__, {}, {"add_gradients_summaries": "write a tf.summary.histogram of each gradient"}
)
