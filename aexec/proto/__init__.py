"""The wire format: TensorFlow's messages under our own package name.

Every message and enum is here by its own name, whichever file declares it::

    from aexec import proto

    graph = proto.GraphDef.FromString(data)
    node = graph.node.add(name="x", op="Placeholder")
    node.attr["dtype"].type = proto.DataType.DT_FLOAT

A name is looked up when it is first used, and only the generated module that
holds it is imported, with those it needs. Everything but this file is written by
``scripts/gen-protos`` from ``protos/``; read the ``.proto`` files there to learn
what a field means. The full names differ from TensorFlow's in the package alone
(``aexec.GraphDef``), so both can be loaded in one process.
"""

from __future__ import annotations

import importlib

from aexec.proto._index import MODULES

__all__ = list(MODULES)


def __getattr__(name: str) -> object:
    module = MODULES.get(name)
    if module is None:
        message = f"module {__name__!r} has no message or enum {name!r}"
        raise AttributeError(message, name=name)
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
