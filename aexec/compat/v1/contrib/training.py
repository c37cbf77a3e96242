"""`tf.contrib.training`: typed hyperparameters.

Next to read: Python's own `types.SimpleNamespace`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from aexec.compat.v1.namespace import namespace

__all__ = ["HParams"]

_PAIR = re.compile(r"\s*(?P<name>[A-Za-z]\w*)(\[(?P<index>\d+)\])?\s*=\s*(?P<value>\[[^\]]*\]|[^,\[]*)\s*($|,)")
_BOOLS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}


class HParams:
    """Hyperparameters as attributes with fixed types: `HParams(learning_rate=0.1, sizes=[1, 2])`."""

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any) -> None:
        if hparam_def is not None:
            raise NotImplementedError("HParams: hparam_def is not supported; give the values by name")
        self._types: dict[str, tuple[type, bool]] = {}
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter.  Raises ValueError if the name exists, or the value is an empty list."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, list | tuple)
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._types[name] = (type(value[0]) if is_list else type(value), is_list)
        setattr(self, name, list(value) if is_list else value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Set a hyperparameter.

        Raises:
            KeyError: there is no hyperparameter of that name.
            ValueError: the value has another type, or is a list although the hyperparameter is none, or vice versa.
        """
        kind, is_list = self._types[name]
        if isinstance(value, list) != is_list:
            raise ValueError(
                f"Must {'' if is_list else 'not '}pass a list for {'multi' if is_list else 'single'}-valued "
                f"parameter: {name}"
            )
        setattr(self, name, [_cast(name, kind, one) for one in value] if is_list else _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Remove a hyperparameter if it exists."""
        if self._types.pop(name, None) is not None:
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Set several from text such as `rate=0.1,sizes=[1,2],sizes[0]=3`.  Raises ValueError for other text."""
        at = 0
        while at < len(values):
            found = _PAIR.match(values, at)
            if found is None:
                raise ValueError(f"Malformed hyperparameter value: {values[at:]}")
            at = found.end()
            name, index, text = found["name"], found["index"], found["value"].strip()
            if name not in self._types:
                raise ValueError(f"Unknown hyperparameter type for {name}")
            kind, is_list = self._types[name]
            if text.startswith("["):
                self.set_hparam(name, [_read(name, kind, one.strip()) for one in text[1:-1].split(",") if one.strip()])
            elif index is not None:
                getattr(self, name)[int(index)] = _read(name, kind, text)
            else:
                self.set_hparam(name, [_read(name, kind, text)] if is_list else _read(name, kind, text))
        return self

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Set hyperparameters from a dict.  Raises as `set_hparam`."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Set hyperparameters from a JSON object.  Raises as `set_hparam`."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
        """The hyperparameters as a JSON object."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """The hyperparameters by name."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a hyperparameter, or a default."""
        return getattr(self, key) if key in self._types else default

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __repr__(self) -> str:
        return f"HParams({sorted(self.values().items())!r})"


def _cast(name: str, kind: type, value: Any) -> Any:
    is_bool_for_int = kind is int and isinstance(value, bool)
    if kind is type(None) or value is None or (isinstance(value, kind) and not is_bool_for_int):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}")


def _read(name: str, kind: type, text: str) -> Any:
    try:
        return _BOOLS[text] if kind is bool else text if kind is type(None) else kind(text)
    except (KeyError, ValueError):
        raise ValueError(f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}'") from None


_INPUT = "input comes from queues (tf.train.batch, docs/queues.md), or is fed"

__getattr__, __dir__ = namespace(
    __name__,
    {},
    {
        **dict.fromkeys("bucket bucket_by_sequence_length batch_sequences_with_states".split(), _INPUT),
        "create_train_op": "use tf.contrib.slim.learning.create_train_op",
        "train": "use tf.contrib.slim.learning.train",
    },
)
