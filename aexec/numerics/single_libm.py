"""Logarithm, sine and cosine in float32 on whole arrays, with the same bits as the C library.

TensorFlow draws normal numbers with the C library's `logf` and `sincosf`.  NumPy's float32 functions differ from those
in a fifth of the draws, and a float64 result rounded to float32 in one of seventy, because neither library rounds every
value correctly.  So this module evaluates the same approximations: those of Arm's optimised routines, which glibc has
used since 2.28 (musl, newlib and bionic use them too).  They compute in float64 and round once at the end.  For each of
the 2**23 arguments that the generator can give, the bits are those of glibc 2.36.  Later C libraries may round
differently; this module's results stay.
Next to read: `philox.py`, the only module that uses this one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["logf", "sincosf"]

Array = Any

# log(x) = k log 2 + log c + log(1 + r), where c is the middle of one of 16 parts of an octave,
# and 1/c was chosen such that it and log c are close to float64 numbers.
_OCTAVE_START = np.int32(0x3F330000)
_INVERSE_C = np.array(
    [
        float.fromhex(text)
        for text in (
            "0x1.661ec79f8f3bep+0", "0x1.571ed4aaf883dp+0", "0x1.49539f0f010bp+0", "0x1.3c995b0b80385p+0",
            "0x1.30d190c8864a5p+0", "0x1.25e227b0b8eap+0", "0x1.1bb4a4a1a343fp+0", "0x1.12358f08ae5bap+0",
            "0x1.0953f419900a7p+0", "0x1p+0", "0x1.e608cfd9a47acp-1", "0x1.ca4b31f026aap-1",
            "0x1.b2036576afce6p-1", "0x1.9c2d163a1aa2dp-1", "0x1.886e6037841edp-1", "0x1.767dcf5534862p-1",
        )
    ]
)  # fmt: skip
_LOG_C = np.array(
    [
        float.fromhex(text)
        for text in (
            "-0x1.57bf7808caadep-2", "-0x1.2bef0a7c06ddbp-2", "-0x1.01eae7f513a67p-2", "-0x1.b31d8a68224e9p-3",
            "-0x1.6574f0ac07758p-3", "-0x1.1aa2bc79c81p-3", "-0x1.a4e76ce8c0e5ep-4", "-0x1.1973c5a611cccp-4",
            "-0x1.252f438e10c1ep-5", "0x0p+0", "0x1.aa5aa5df25984p-5", "0x1.c5e53aa362eb4p-4",
            "0x1.526e57720db08p-3", "0x1.bc2860d22477p-3", "0x1.1058bc8a07ee1p-2", "0x1.4043057b6ee09p-2",
        )
    ]
)  # fmt: skip
_LOG_2 = float.fromhex("0x1.62e42fefa39efp-1")
_LOG_R4, _LOG_R3, _LOG_R2 = (
    float.fromhex(text) for text in ("-0x1.00ea348b88334p-2", "0x1.5575b0be00b6ap-2", "-0x1.ffffef20a4123p-2")
)

_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
# Below this, no argument is reduced: the float32 next to pi/4 whose leading bits equal those of pi/4.
_UNREDUCED_BELOW = np.float32(0.75)
_COS_2, _COS_4, _COS_6, _COS_8 = (
    float.fromhex(text)
    for text in ("-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5", "-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16")
)
_SIN_3, _SIN_5, _SIN_7 = (
    float.fromhex(text) for text in ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13")
)


def logf(x: Array, xp: Any = np) -> Array:
    """Natural logarithm of positive, normal, finite float32 numbers, an array of `xp`, as float32."""
    bits = x.view(np.int32)
    above = bits - _OCTAVE_START
    part = (above >> 19) & 15
    z = (bits - (above & np.int32(-0x800000))).view(np.float32).astype(np.float64)
    z *= xp.asarray(_INVERSE_C)[part]
    z -= 1.0
    high = (above >> 23) * _LOG_2
    high += xp.asarray(_LOG_C)[part]
    high += z
    squared = z * z
    z *= _LOG_R3
    z += _LOG_R2
    z += _LOG_R4 * squared
    z *= squared
    z += high
    return z.astype(np.float32)


def sincosf(x: Array, xp: Any = np) -> tuple[Array, Array]:
    """Sine and cosine of float32 numbers in [0, 100], an array of `xp`, as float32."""
    wide = x.astype(np.float64)
    quadrant = xp.rint(wide * _TWO_OVER_PI)
    quadrant[x < _UNREDUCED_BELOW] = 0
    wide -= quadrant * _HALF_PI
    turn = quadrant.astype(np.int8)
    squared = wide * wide
    sine, cosine = _sine(wide, squared), _cosine(squared)
    odd = (turn & 1).astype(np.bool_)
    of_sine = xp.where(odd, cosine, sine)
    of_cosine = xp.where(odd, sine, cosine)
    of_sine *= 1 - (turn & 2)
    of_cosine *= 1 - ((turn + 1) & 2)
    return of_sine, of_cosine


def _sine(x: Array, squared: Array) -> Array:
    """Sine of float64 numbers in [-pi/4, pi/4], rounded to float32."""
    cubed = x * squared
    tail = squared * _SIN_7
    tail += _SIN_5
    tail *= cubed * squared
    cubed *= _SIN_3
    cubed += x
    cubed += tail
    return cubed.astype(np.float32)


def _cosine(squared: Array) -> Array:
    """Cosine of the numbers in [-pi/4, pi/4] with these squares, rounded to float32."""
    fourth = squared * squared
    tail = squared * _COS_8
    tail += _COS_6
    tail *= fourth * squared
    head = squared * _COS_2
    head += 1.0
    head += fourth * _COS_4
    head += tail
    return head.astype(np.float32)
