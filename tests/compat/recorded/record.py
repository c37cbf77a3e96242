"""Records TensorFlow's answers: run `python -m tests.compat.recorded.record` from the root of the repository.

To be run in an environment with TensorFlow 2.21, tf_keras and tf-slim.  It writes into `data/`

- `program_losses.json`: the losses of the programs of `examples/`, whose sources run with TensorFlow in place of
  `aexec.compat.v1`, `contrib.py` in place of `tf.contrib`, and `estimators.py` in place of `tf.estimator`;
- `values.json`: the values of `cases.py`;
- `expressions.json`: the classes of the errors that the expressions of `expressions.py` raise, null for none;
- `columns.json`: of the layers of `column_cases.py` the names and shapes of variables, and the values;
- `column_errors.json`: of each expression there that raises an error, its class and its words;
- `raw_ops.json`: of each op of `tf.raw_ops` the names of its arguments, and those of its results if it has several;
- `members.json`: the public members of each class that `public_names.txt` lists;
- `required.json`: how many arguments have to be given to what `names.txt` lists;
- `defaults.json`: the defaults of these arguments that are plain values, one for each: null, true, 1, "SAME"; a type is
  `{"dtype": "float32"}`;
- `signatures.json`: the names of arguments, in their order, of all that `names.txt` lists, which a test keeps equal to
  what `aexec.compat.v1` has.
"""

from __future__ import annotations

import enum
import inspect
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.compat.recorded import column_cases
from tests.compat.recorded.cases import CASES
from tests.compat.recorded.contrib import contrib
from tests.compat.recorded.estimators import estimator
from tests.compat.recorded.expressions import EXPRESSIONS, outcome

HERE = Path(__file__).parents[1]
EXAMPLES = HERE.parent.parent / "examples"
OURS = "import aexec.compat.v1 as tf\n"


def losses(program: str) -> list[float]:
    """Of 100 steps."""
    source = (EXAMPLES / f"{program}.py").read_text(encoding="utf-8")
    assert source.count(OURS) == 1
    names: dict[str, Any] = {"__name__": program}
    exec(source.replace(OURS, "import tensorflow.compat.v1 as tf\n"), names)
    return [round(loss, 7) for loss in names["train"](100)]


def value(tf: Any, case: Any) -> list[Any]:
    """Its tensors, as nested lists of numbers and strings."""
    with tf.Graph().as_default(), tf.Session() as sess:
        found = case(tf)
        sess_fetches = list(found) if isinstance(found, list | tuple) else [found]
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return [as_data(array) for array in sess.run(sess_fetches)]


def as_data(array: Any) -> Any:
    """Lists that JSON has, of rounded numbers and strings."""
    array = np.asarray(array)
    if array.dtype.kind in "OS":
        flat = [item.decode("latin-1") for item in array.ravel()]
        return np.array(flat, object).reshape(array.shape).tolist()
    return np.round(array, 6).tolist() if array.dtype.kind == "f" else array.tolist()


def raw_op(tf: Any, name: str) -> list[Any]:
    """The names of its arguments, and those of its results or None."""
    function = inspect.unwrap(getattr(tf.raw_ops, name))
    results = getattr(sys.modules[function.__module__], f"_{name}Output", None)
    return [list(inspect.signature(function).parameters), None if results is None else list(results._fields)]


def members(tf: Any) -> dict[str, list[str]]:
    """Methods, properties and class attributes by class; messages and enumerations are left out."""
    found = {}
    for name in (HERE / "data" / "public_names.txt").read_text(encoding="utf-8").split():
        kind = tf
        try:
            for part in name.split("."):
                kind = getattr(kind, part)
        except AttributeError:
            continue
        if inspect.isclass(kind) and not issubclass(kind, enum.Enum | tuple) and not hasattr(kind, "DESCRIPTOR"):
            found[name] = [member for member in dir(kind) if not member.startswith("_")]
    return {name: listed for name, listed in found.items() if listed}


def parameters(tf: Any, name: str) -> list[inspect.Parameter] | None:
    """The parameters of a function or class; None if TensorFlow lacks it, or it has no signature."""
    found = tf
    try:
        for part in name.split("."):
            found = getattr(found, part)
        taken = list(inspect.signature(found.__init__ if inspect.isclass(found) else found).parameters.values())
    except (AttributeError, TypeError, ValueError):
        return None
    if inspect.isclass(found):
        del taken[0]
    if any(parameter.kind in (parameter.VAR_POSITIONAL,) for parameter in taken):
        return None
    return [parameter for parameter in taken if parameter.kind is not parameter.VAR_KEYWORD]


def arguments(tf: Any, name: str, *, required: bool = False) -> list[str] | None:
    """Names of its arguments, or of those that have no default."""
    taken = parameters(tf, name)
    if taken is None:
        return None
    return [parameter.name for parameter in taken if not required or parameter.default is parameter.empty]


def defaults(tf: Any, name: str) -> dict[str, Any] | None:
    """Defaults by name, of those that `plain` can write."""
    taken = parameters(tf, name)
    if taken is None:
        return None
    given = {
        parameter.name: plain(parameter.default) for parameter in taken if parameter.default is not parameter.empty
    }
    return {name: value for name, value in given.items() if value is not OTHER}


OTHER = object()  # a default that has no plain form


def plain(value: Any) -> Any:
    """A default as JSON has it; `OTHER` for functions and objects."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        return OTHER if OTHER in items else items
    if hasattr(value, "as_datatype_enum") or type(value).__name__ == "DType":
        return {"dtype": value.name}
    return OTHER


def write(name: str, data: dict[str, Any]) -> None:
    """A line for each entry."""
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in data.items())
    (HERE / "data" / name).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def main() -> None:
    os.environ |= {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    names = (HERE / "data" / "names.txt").read_text(encoding="utf-8").split()
    found = {name: arguments(tf, name) for name in names}
    write("members.json", members(tf))
    write("signatures.json", {name: theirs for name, theirs in found.items() if theirs is not None})
    needed = {name: arguments(tf, name, required=True) for name in names}
    write("required.json", {name: len(theirs) for name, theirs in needed.items() if theirs is not None})
    given = {name: defaults(tf, name) for name in names}
    write("defaults.json", {name: theirs for name, theirs in given.items() if theirs})
    write("raw_ops.json", {name: raw_op(tf, name) for name in dir(tf.raw_ops) if not name.startswith("_")})
    write("expressions.json", {expression: outcome(tf, expression) for expression in EXPRESSIONS})
    write("values.json", {name: value(tf, case) for name, case in CASES.items()})
    tf.contrib, tf.estimator = contrib(tf), estimator(tf)
    columns = column_cases.CASES.items()
    write("columns.json", {name: column_cases.outcome(tf, case, as_data) for name, case in columns})
    write("column_errors.json", {code: column_cases.raised(tf, code) for code in column_cases.RAISED})
    sys.argv = ["program"]  # whose flags have their defaults
    programs = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    write("program_losses.json", {program: losses(program) for program in programs})


if __name__ == "__main__":
    main()
