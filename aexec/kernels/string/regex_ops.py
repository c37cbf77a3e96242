"""Regular expression kernels: RegexReplace, RegexFullMatch and their static forms.

The pattern of a static op is compiled once per node.  See `regex.py` for the engines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.strings import map_strings, scalar_string, string_cost
from aexec.kernels.string.regex import compile_pattern

__all__: list[str] = []

_COST = string_cost(2000, 20)


def _replacer(pattern: bytes, rewrite: bytes, every: bool) -> Callable[[bytes], bytes]:
    replace = compile_pattern(pattern).replace
    return lambda s: replace(s, rewrite, every=every)


@kernel("StaticRegexReplace", cost=_COST)
def static_regex_replace(c: OpKernelConstruction) -> Compute:
    """Every match, or the first one, replaced; pattern and rewrite are attrs."""
    replace = _replacer(c.attr("pattern"), c.attr("rewrite"), c.attr("replace_global"))
    return lambda x: map_strings(replace, x)


@kernel("RegexReplace", cost=_COST)
def regex_replace(c: OpKernelConstruction) -> Compute:
    """As StaticRegexReplace; pattern and rewrite are inputs."""
    every = c.attr("replace_global")

    def compute(x: Any, pattern: Any, rewrite: Any) -> Any:
        replace = _replacer(scalar_string(pattern, "Pattern"), scalar_string(rewrite, "Rewrite"), every)
        return map_strings(replace, x)

    return compute


@kernel("StaticRegexFullMatch", cost=_COST)
def static_regex_full_match(c: OpKernelConstruction) -> Compute:
    """Does the whole string match?  The pattern is an attr."""
    matches = compile_pattern(c.attr("pattern")).full_match
    return lambda x: map_strings(matches, x, bool)


@kernel("RegexFullMatch", cost=_COST)
def regex_full_match(c: OpKernelConstruction) -> Compute:
    """As StaticRegexFullMatch; the pattern is an input."""

    def compute(x: Any, pattern: Any) -> Any:
        return map_strings(compile_pattern(scalar_string(pattern, "Pattern")).full_match, x, bool)

    return compute
