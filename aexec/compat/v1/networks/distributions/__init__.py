"""`tf.distributions`: distributions with samples, probabilities and statistics, for training programs.

`distribution.py` has their base class, which programs subclass; each distribution gives its own formulas.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

_MODULES = {
    "bernoulli": "Bernoulli",
    "beta": "Beta",
    "categorical": "Categorical",
    "dirichlet": "Dirichlet",
    "dirichlet_multinomial": "DirichletMultinomial",
    "distribution": "FULLY_REPARAMETERIZED NOT_REPARAMETERIZED Distribution ReparameterizationType",
    "divergences": "RegisterKL kl_divergence",
    "gamma": "Exponential Gamma",
    "laplace": "Laplace",
    "multinomial": "Multinomial",
    "normal": "Normal",
    "student_t": "StudentT",
    "uniform": "Uniform",
}

__getattr__, __dir__ = namespace(
    __name__,
    {name: f"networks.distributions.{module}:{name}" for module, names in _MODULES.items() for name in names.split()},
)
