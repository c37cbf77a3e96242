"""Regular expression kernels: RegexReplace, RegexFullMatch and their static forms.

The pattern of a static op is checked when the kernel is built, and taken from the cache in each call.  See `regex.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import Growth
from aexec.kernels.common.strings import map_strings, scalar_string, string_cost
from aexec.kernels.string.regex import Pattern, compile_ns, compile_pattern, groups_ns, uses_groups

__all__: list[str] = []

# Nanoseconds per byte of the text that is put into the place of matches, of which there may be one for each byte.
_REWRITE_NS = 0.2


def _match_ns(pattern: bytes) -> Callable[..., float]:
    return string_cost(2000 + groups_ns(pattern, groups=False), 20)


def _replace_ns(pattern: bytes, rewrite: bytes) -> Callable[..., float]:
    groups = groups_ns(pattern, uses_groups(rewrite))
    return string_cost(2000 + groups, 20 + _REWRITE_NS * len(rewrite))


def _static_replace_ns(attrs: Mapping[str, Any]) -> Callable[..., float]:
    return _replace_ns(attrs["pattern"], attrs["rewrite"])


def _dynamic_match_ns(x: Any, pattern: Any) -> float:
    text = pattern.item()
    return compile_ns(text, groups=False) + _match_ns(text)(x)


def _dynamic_replace_ns(x: Any, pattern: Any, rewrite: Any) -> float:
    text, new = pattern.item(), rewrite.item()
    return compile_ns(text, uses_groups(new)) + _replace_ns(text, new)(x)


def _replaced(x: Any, pattern: Pattern, rewrite: bytes, every: bool) -> Any:
    more = Growth(joined=True).add
    return map_strings(lambda s: pattern.replace(s, rewrite, every=every, more=more), x)


@kernel("StaticRegexReplace", cost=AttrCost(_static_replace_ns), needs=("re2",))
def static_regex_replace(c: OpKernelConstruction) -> Compute:
    """Replaces every match, or the first one; pattern and rewrite are attrs."""
    pattern, rewrite, every = c.attr("pattern"), c.attr("rewrite"), c.attr("replace_global")
    groups = uses_groups(rewrite)
    compile_pattern(pattern, groups)
    return lambda x: _replaced(x, compile_pattern(pattern, groups), rewrite, every)


@kernel("RegexReplace", cost=_dynamic_replace_ns, needs=("re2",))
def regex_replace(c: OpKernelConstruction) -> Compute:
    """Like StaticRegexReplace, with pattern and rewrite as inputs."""
    every = c.attr("replace_global")

    def compute(x: Any, pattern: Any, rewrite: Any) -> Any:
        text, new = scalar_string(pattern, "Pattern"), scalar_string(rewrite, "Rewrite")
        return _replaced(x, compile_pattern(text, uses_groups(new)), new, every)

    return compute


@kernel("StaticRegexFullMatch", cost=AttrCost(lambda attrs: _match_ns(attrs["pattern"])), needs=("re2",), scratch=24)
def static_regex_full_match(c: OpKernelConstruction) -> Compute:
    """Return whether the whole string matches.  The pattern is an attr."""
    pattern = c.attr("pattern")
    compile_pattern(pattern)
    return lambda x: map_strings(compile_pattern(pattern).full_match, x, bool)


@kernel("RegexFullMatch", cost=_dynamic_match_ns, needs=("re2",), scratch=24)
def regex_full_match(c: OpKernelConstruction) -> Compute:
    """Like StaticRegexFullMatch, with the pattern as an input."""

    def compute(x: Any, pattern: Any) -> Any:
        return map_strings(compile_pattern(scalar_string(pattern, "Pattern")).full_match, x, bool)

    return compute
