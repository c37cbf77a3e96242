"""`tf.train.warm_start`: begins with another model's values, and keeps rows of words that its vocabulary has, too.

Next to read: `checkpoints.py`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from aexec import ops
from aexec.compat.v1.running.checkpoints import init_from_checkpoint, load_checkpoint
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.op_functions import require_graph
from aexec.variables.variable import Variable

__all__ = ["VocabInfo", "warm_start"]


class VocabInfo(NamedTuple):
    """`tf.train.VocabInfo`: the new and the old vocabulary of a variable, a word a line, of the axis `axis`."""

    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int = -1
    backup_initializer: Any = None
    axis: int = 0


def _chosen(vars_to_warm_start: Any) -> list[Variable]:
    """The variables that a pattern, or a list of patterns, names or variables means."""
    collections = require_graph().collections
    if isinstance(vars_to_warm_start, str):
        return list(collections.get(GraphKeys.TRAINABLE_VARIABLES, scope=vars_to_warm_start))
    if vars_to_warm_start is None:
        return []
    variables = list(collections.get(GraphKeys.GLOBAL_VARIABLES))
    found: list[Variable] = []
    for item in vars_to_warm_start:
        if isinstance(item, str):
            found += [variable for variable in variables if re.match(item, variable.op.name)]
        else:
            found.append(item)
    return list(dict.fromkeys(found))


def warm_start(
    ckpt_to_initialize_from: str,
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: dict[str, VocabInfo] | None = None,
    var_name_to_prev_var_name: dict[str, str] | None = None,
) -> None:
    """`tf.train.warm_start`: make variables begin with the values of a checkpoint.

    Args:
        ckpt_to_initialize_from: the prefix of a checkpoint, or a folder.
        vars_to_warm_start: a pattern of trainable variables, or a list of patterns, names or variables.
        var_name_to_vocab_info: the vocabularies of a variable, whose rows are then looked up word by word.
        var_name_to_prev_var_name: the name that a variable has in the checkpoint, if it differs.

    Raises:
        ValueError: a name is of no variable, or the checkpoint has no value for one.
    """
    vocabularies, before = dict(var_name_to_vocab_info or {}), dict(var_name_to_prev_var_name or {})
    variables = {variable.op.name: variable for variable in _chosen(vars_to_warm_start)}
    for name, variable in variables.items():
        old = before.pop(name, name)
        vocabulary = vocabularies.pop(name, None)
        if vocabulary is None:
            init_from_checkpoint(ckpt_to_initialize_from, {old: variable})
        else:
            _remapped(ckpt_to_initialize_from, old, variable, vocabulary)
    if unused := [*before, *vocabularies]:
        raise errors.InvalidValueError(
            f"You provided names of variables that are not warm-started: {', '.join(unused)}"
        )


def _words(path: str, size: int) -> list[bytes]:
    with open(path, "rb") as file:
        words = [line.rstrip(b"\r\n") for line in file]
    return words if size < 0 else words[:size]


def _remapped(checkpoint: str, old: str, variable: Variable, vocabulary: VocabInfo) -> None:
    """Rows of words that the checkpoint has, too, are its rows; others keep the initial values that they have."""
    reader = load_checkpoint(checkpoint)
    if not reader.has_tensor(old):
        raise errors.InvalidValueError(f"Tensor {old} is not found in {checkpoint} checkpoint")
    kept = np.asarray(reader.get_tensor(old))
    axis = vocabulary.axis
    places = {word: row for row, word in enumerate(_words(vocabulary.old_vocab, vocabulary.old_vocab_size))}
    new = _words(vocabulary.new_vocab, vocabulary.new_vocab_size)
    shape = [size or 0 for size in variable.static_shape]
    if len(new) + vocabulary.num_oov_buckets != shape[axis]:
        raise errors.InvalidValueError(
            f"{variable.name} has {shape[axis]} rows, and its vocabulary {len(new)} and {vocabulary.num_oov_buckets}"
        )
    rows = [places.get(word, -1) for word in new] + [-1] * vocabulary.num_oov_buckets
    known = np.array([row >= 0 for row in rows])
    values = np.take(kept, [max(row, 0) for row in rows], axis)
    mask = known.reshape([-1 if at == axis else 1 for at in range(len(shape))])
    if vocabulary.backup_initializer is None:
        others: Any = variable.initial_value
    else:
        others = vocabulary.backup_initializer(shape, dtype=variable.dtype.base)
    variable.begin_with(ops.select_v2(np.broadcast_to(mask, shape), values, others))
