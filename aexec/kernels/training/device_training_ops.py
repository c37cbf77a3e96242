"""Optimisers' updates of variables whose values are in a device's memory.

They apply the formulas of `training_ops` to copies of the values, or compute new values from old ones in one launch. So
an update that fails changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.kernel_contract.variable_use import VariableUse
from aexec.framework.state.tensor_cell import TensorCell
from aexec.kernels.common.gpu.device_code import compiled
from aexec.kernels.common.gpu.device_forms import device_form
from aexec.kernels.training.optimizer_code import code_of
from aexec.kernels.training.optimizers import OPTIMISERS, Optimiser
from aexec.kernels.training.training_ops import UpdateArguments, find_variable


def _builder(name: str, optimiser: Optimiser, *, sparse: bool) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        update, xp = UpdateArguments(c, optimiser, sparse=sparse), c.xp
        count = len(update.holders)
        others = update.names[count:]
        code = None if sparse else code_of(name, update.options)
        in_one_launch = None if code is None else compiled(xp, c.op, code, c.attr("T"))

        def find(context: OpKernelContext, inputs: Sequence[Any]) -> tuple[Sequence[TensorCell], Sequence[Any]]:
            cells = [find_variable(context, reference) for reference in inputs[:count]]
            return cells, [tuple(map(cells.index, cells)), *inputs[count:]]

        c.variables = VariableUse(find, (c.attr("T"),) * count, len(c.output_types))

        def compute(*inputs: Any) -> Any:
            # For each variable the first position where it is named.  Two variables may have the same array as their
            # value.
            firsts, given = inputs[count], dict(zip(others, inputs[count + 1 :], strict=True))
            known = update.known(given)
            if in_one_launch is not None and len(set(firsts)) == count:
                assert code is not None
                grad = update.checked(inputs[:count], given)
                values = {**known, **dict(zip(update.holders, inputs, strict=False)), "grad": grad}
                made = in_one_launch(*(values[each] for each in code.inputs))
                return made if isinstance(made, tuple) else (made,)
            copies = {first: xp.array(inputs[first]) for first in set(firsts)}
            arrays = [copies[first] for first in firsts]
            update.apply(arrays, given, known)
            return tuple(arrays)

        return compute

    return build


for _name, _optimiser in OPTIMISERS.items():
    _dense, _sparse = _builder(_name, _optimiser, sparse=False), _builder(_name, _optimiser, sparse=True)
    device_form(f"Apply{_name}", f"ResourceApply{_name}", of_variables=True)(_dense)
    device_form(f"SparseApply{_name}", f"ResourceSparseApply{_name}", of_variables=True)(_sparse)
