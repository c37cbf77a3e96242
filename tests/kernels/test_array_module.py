"""Which kernels run on arrays that are not NumPy's, proven with the module of `strict_arrays`.

Every call in the sample of `kernel_calls` is made twice, with NumPy and with the strict module.
The lists in `aexec/kernels/common/portable.py` are exact: an op whose calls all pass is in `PORTABLE`.
`python -m tests.kernels.test_array_module` writes them anew, and prints why the other kernels fail.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from aexec.framework import dtypes, errors
from aexec.kernels.common import portable
from aexec.kernels.common.portable import HOST_ONLY, PORTABLE, READS_BACK, host_arguments, is_on_device
from tests.kernels import kernel_calls
from tests.kernels.kernel_calls import KernelCall, check_alike, in_host_memory, outputs_of
from tests.support.stand_ins.strict_arrays import StrictArray, strict, waits

# The host waits for some inputs to these only, and the sample has none of those.
WAIT_SELDOM = frozenset("Cast LowerBound MatMul OneHot Select SelectV2 TopKV2 UpperBound _HostCast".split())

# On int32 they are the host's, whatever the device, and CuPy has nothing for such arrays.
INT32_ON_HOST = frozenset({"SparseTensorDenseMatMul"})

SOURCE = Path(portable.__file__)
WRITE = "to write the lists: python -m tests.kernels.test_array_module"
RECORD = "to record calls of a new kernel: python -m tests.kernels.kernel_calls OpName"


@dataclass
class Verdict:
    """What came of an op's calls: how many there were, how often the host waited, and why the first failed."""

    calls: int = 0
    waits: int = 0
    failures: list[str] = field(default_factory=list)


@cache
def verdicts() -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for call in kernel_calls.load():
        _try(call, found)
    return found


def _try(call: KernelCall, found: dict[str, Verdict]) -> None:
    c = call.construction(strict)
    if call.op in INT32_ON_HOST and c.attr("T") is dtypes.int32:
        return
    if call.op in HOST_ONLY or not all(is_on_device(t) for t in (*c.input_types, *c.output_types)):
        return
    c.host_memory = host_arguments(c.op_def)
    host_inputs, host_outputs = in_host_memory(c)
    try:
        want = outputs_of(call.of_numpy(), call.inputs)
    except errors.OpError:
        return  # it read a file that is gone
    verdict = found.setdefault(call.op, Verdict())
    verdict.calls += 1
    inputs = [x if host else StrictArray(x.copy()) for x, host in zip(call.inputs, host_inputs, strict=True)]
    try:
        with waits() as waited:
            got = outputs_of(call.registration(c).build(c), inputs)
            verdict.waits += waited()
        for a, b, host in zip(got, want, host_outputs, strict=True):
            _compare(a, b, host)
    except Exception as error:
        verdict.failures.append(f"{type(error).__name__}: {error}"[:150])


def _compare(got: Any, want: Any, on_host: bool) -> None:
    if isinstance(got, StrictArray):
        got = got._host
    elif not on_host:
        raise TypeError(f"the result is {type(got)}, no array of the module")
    check_alike(got, want)


def _portable() -> set[str]:
    return {op for op, verdict in verdicts().items() if not verdict.failures}


def _reads_back() -> set[str]:
    return {op for op in _portable() if verdicts()[op].waits or op in WAIT_SELDOM}


def test_list_of_portable_kernels_is_exact() -> None:
    broken = {op: verdicts()[op].failures[0] for op in PORTABLE & set(verdicts()) if verdicts()[op].failures}
    assert not broken, f"these need NumPy: {broken}; {WRITE}"
    assert not _portable() - PORTABLE, f"these could be marked; {WRITE}"
    assert not PORTABLE - set(verdicts()), f"nothing proves these; {RECORD}, and {WRITE}"


def test_list_of_kernels_that_read_back_is_exact() -> None:
    assert _reads_back() == READS_BACK, WRITE


def test_six_in_ten_are_portable() -> None:
    assert len(PORTABLE) >= 0.6 * len(verdicts())


def main() -> None:
    """Write the lists as they are proven, and print why other kernels fail."""
    text = SOURCE.read_text()
    for name, ops in (("PORTABLE", _portable()), ("READS_BACK", _reads_back())):
        listed = textwrap.indent(textwrap.fill(" ".join(sorted(ops)), 116), "    ")
        text = re.sub(rf'^({name}[^"]*)"""[^"]*"""', lambda m, t=listed: f'{m[1]}"""\n{t}\n    """', text, flags=re.M)
    SOURCE.write_text(text)
    for op, verdict in sorted(verdicts().items()):
        if verdict.failures:
            print(f"{op}: {len(verdict.failures)} of {verdict.calls}: {verdict.failures[0]}")
    print(f"{len(_portable())} of {len(verdicts())} ops")


if __name__ == "__main__":
    main()
