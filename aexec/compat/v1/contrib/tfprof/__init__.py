"""`tf.contrib.tfprof`: the older names of `tf.profiler`.

Next to read: `model_analyzer.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {"model_analyzer": "contrib.tfprof.model_analyzer"},
    {"tfprof_logger": "nothing here reads its files: call tf.profiler.profile in the program itself"},
)
