"""`tf.contrib.learn`: its preprocessing of text.  For the rest there are tf.estimator and loops of one's own."""

from __future__ import annotations

import sys

from aexec.compat.v1.modules import MissingModules
from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_LOOP = "write the loop with tf.train.MonitoredTrainingSession"
_ESTIMATORS = "DNNClassifier DNNRegressor Estimator LinearClassifier LinearRegressor RunConfig"
_MISSING = {
    **dict.fromkeys(_ESTIMATORS.split(), "use tf.estimator"),
    **dict.fromkeys("Experiment learn_runner monitors run_n run_feeds train".split(), _LOOP),
    "datasets": "MNIST is read by aexec.compat.mnist",
    "python": "its parts are in tf.contrib.learn itself",
}

__getattr__, __dir__ = namespace(__name__, {"preprocessing": "contrib.learn.preprocessing"}, _MISSING)
sys.meta_path.append(MissingModules(__name__, _MISSING))
