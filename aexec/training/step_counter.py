"""The global step: a variable of the graph that counts the steps of training, and is saved with the others.

`optimizer.minimize(loss, global_step=get_or_create_global_step())` increments it; hooks of `session_run_hook.py` read
it.
"""

from __future__ import annotations

import numpy as np

from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.op_functions import require_graph
from aexec.runtime.session.session import Session
from aexec.variables.variable import Variable

__all__ = ["create_global_step", "get_global_step", "get_or_create_global_step", "global_step"]


def get_global_step() -> Variable | None:
    """The global step of the graph that is being built, or None.

    Raises:
        FailedPreconditionError: no graph is being built.
    """
    found = require_graph().collections.get(GraphKeys.GLOBAL_STEP)
    return found[0] if found else None


def create_global_step() -> Variable:
    """Make the global step, an int64 scalar that begins at 0, named `global_step`.

    Raises:
        InvalidArgumentError: there is one already.
    """
    if get_global_step() is not None:
        raise errors.InvalidValueError('"global_step" already exists.')
    collections = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP]
    return Variable(np.int64(0), trainable=False, name="global_step", collections=collections)


def get_or_create_global_step() -> Variable:
    """The global step, made if there is none."""
    found = get_global_step()
    return create_global_step() if found is None else found


async def global_step(session: Session, variable: Variable) -> int:
    """The value of the global step in a session.  Raises FailedPreconditionError if it has none yet."""
    return int(await session.run(variable.element))
