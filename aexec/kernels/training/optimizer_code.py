"""The optimisers that are one launch on a GPU: from the old values of a variable and its slots to the new ones.

The formulas are those of `optimizers.py`.  Next to read: `aexec/kernels/common/gpu/device_code.py`, and
`device_training_ops.py`, which calls these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec.kernels.common.gpu.device_code import Code

__all__ = ["code_of"]

_ADAM = """
const W rate = lr * sqrt(1 - beta2_power) / (1 - beta1_power);
const W new_m = m + (grad - m) * (1 - beta1); const W new_v = v + (grad * grad - v) * (1 - beta2);
const W direction = {use_nesterov} ? grad * (1 - beta1) + beta1 * new_m : new_m;
"""
_RMS_PROP = """
const W new_ms = ms + (grad * grad - ms) * (1 - rho);
const W new_mom = mom * momentum + grad * lr / sqrt(new_ms + epsilon);
"""
_ADAGRAD = "const W sum = {update_slots} ? accum + grad * grad : accum;"

# Name of the optimiser → names of its inputs, statements, and the new values.
_CODES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "Adagrad": ("var accum lr grad", _ADAGRAD, {"var": "var - grad * lr / sqrt(sum)", "accum": "sum"}),
    "AdagradV2": (
        "var accum lr epsilon grad",
        _ADAGRAD,
        {"var": "var - grad * lr / (sqrt(sum) + epsilon)", "accum": "sum"},
    ),
    "Adam": (
        "var m v beta1_power beta2_power lr beta1 beta2 epsilon grad",
        _ADAM,
        {"var": "var - direction * rate / (sqrt(new_v) + epsilon)", "m": "new_m", "v": "new_v"},
    ),
    "GradientDescent": ("var alpha grad", "", {"var": "var - grad * alpha"}),
    "KerasMomentum": (
        "var accum lr momentum grad",
        "const W step = grad * lr; const W sum = accum * momentum - step;",
        {"var": "var + ({use_nesterov} ? sum * momentum - step : sum)", "accum": "sum"},
    ),
    "Momentum": (
        "var accum lr momentum grad",
        "const W sum = accum * momentum + grad;",
        {"var": "var - ({use_nesterov} ? (grad + sum * momentum) * lr : sum * lr)", "accum": "sum"},
    ),
    "RMSProp": (
        "var ms mom lr rho momentum epsilon grad",
        _RMS_PROP,
        {"var": "var - new_mom", "ms": "new_ms", "mom": "new_mom"},
    ),
}


def code_of(optimiser: str, options: Mapping[str, Any]) -> Code | None:
    """The code of an optimiser with its attrs; None if it has none.

    There is none for half, since every step is rounded there.
    """
    if optimiser not in _CODES:
        return None
    names, before, outputs = _CODES[optimiser]
    flags = {name: str(bool(value)).lower() for name, value in options.items()}
    given = {name: text.format(**flags) for name, text in outputs.items()}
    return Code(tuple(names.split()), given, before.format(**flags), narrow=False)
