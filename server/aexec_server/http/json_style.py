"""`JsonStyle`: how an answer's JSON writes numbers that JavaScript cannot read exactly, as `Accept` asks.

    Accept: application/json; nan=null; int64=string

By default NaN and infinities are the tokens `NaN`, `Infinity` and `-Infinity`, which Python, TensorFlow Serving and its
clients know, and integers are numbers of any size.  `json_text.py` writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from multidict import istr

from aexec import errors
from aexec_server.headed import Headed

__all__ = ["JsonStyle", "json_style", "styled"]

_ACCEPT = istr("Accept")


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """Deviations from the default form.

    Attributes:
        nan: `"null"` writes NaN and infinities as null, `"string"` as strings; None as tokens.
        int64_as_string: True to write all elements of int64 and uint64 as strings.
    """

    nan: str | None = None
    int64_as_string: bool = False


def json_style(request: Headed) -> JsonStyle | None:
    """The style that the request asks for; None for the default.

    Raises:
        InvalidArgumentError: a parameter has an unknown value.
    """
    accept = request.headers.get(_ACCEPT)
    if accept is None or ";" not in accept:
        return None
    nan, int64 = None, None
    for media in accept.lower().split(","):
        for parameter in media.split(";")[1:]:
            name, _, value = (part.strip() for part in parameter.partition("="))
            value = value.strip('"')
            if name == "nan":
                nan = _one_of("nan", value, ("null", "string"))
            elif name == "int64":
                int64 = _one_of("int64", value, ("string",))
    return JsonStyle(nan, int64 is not None) if nan or int64 else None


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise errors.InvalidArgumentError(f"Accept: {name} must be {' or '.join(known)}, got {value[:40]!r}")
    return value


def styled(array: npt.NDArray[Any], style: JsonStyle | None) -> Any:
    """An array of numbers as nested lists, with numbers in the style's form."""
    if style is not None:
        if style.int64_as_string and array.dtype.kind in "iu" and array.dtype.itemsize == 8:
            texts = np.fromiter(map(str, array.ravel().tolist()), object, array.size)
            return texts.reshape(array.shape).tolist()
        if style.nan is not None and array.dtype.kind in "fV":
            odd = ~np.isfinite(array)
            if odd.any():
                values = array.astype(object)
                values[odd] = None if style.nan == "null" else list(map(_NAMES.__getitem__, map(str, values[odd])))
                return values.tolist()
    return array.tolist()


# JSON's tokens, which protobuf's JSON uses as strings.
_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
