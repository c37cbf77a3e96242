"""`tf.debugging`: the namespace of assertions."""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"functions.control_flow_ops:{name}"
            for name in """Assert assert_equal assert_greater assert_greater_equal assert_less assert_less_equal
            assert_non_negative assert_positive assert_rank""".split()
        },
        **{
            name: f"functions.check_ops:{name}"
            for name in """assert_integer assert_near assert_negative assert_non_positive assert_none_equal
            assert_proper_iterable assert_rank_at_least assert_rank_in assert_same_float_dtype assert_scalar assert_type
            is_non_decreasing is_numeric_tensor is_strictly_increasing""".split()
        },
        **{name: f"ops:{name}" for name in "check_numerics is_finite is_inf is_nan".split()},
        "assert_all_finite": "ops:check_numerics | t=tensor msg=message name x=tensor message",
    },
)
