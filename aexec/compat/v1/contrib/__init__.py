"""`tf.contrib`: the most used modules of TensorFlow 1's contrib, over aexec's own layers, cells and losses.

Modules are loaded on first use.  TensorFlow 2 has no contrib; defaults and formulas are those of TensorFlow 1.15.  Next
to read: `layers.py`.
"""

from __future__ import annotations

import sys

from aexec.compat.v1.modules import MissingModules
from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_MISSING = {
    "cudnn_rnn": "use tf.nn.rnn_cell.LSTMCell and tf.nn.dynamic_rnn",
    "distribute": "see docs/distributed.md, and docs/training.md for several replicas",
    "eager": "there is no eager execution: build a graph and run it in a session",
    "estimator": "use tf.estimator",
    "keras": "layers are functions here (tf.layers, aexec.nn), and variables are those of tf.get_variable",
    "lite": "aexec runs graphs as they are, or OpenVINO runs regions of them: docs/delegates.md",
    "summary": "use tf.summary",
    "tensorboard": "aexec.summary writes the event files that TensorBoard reads",
    "tpu": "there are no TPUs",
}

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"contrib.{name}"
            for name in """crf data feature_column framework layers learn legacy_seq2seq metrics opt rnn seq2seq slim
            tfprof training""".split()
        },
        "distributions": "networks.distributions",
        "lookup": "functions.lookup",
        "signal": "functions.signal",
    },
    _MISSING,
)
sys.meta_path.append(MissingModules(__name__, _MISSING))
