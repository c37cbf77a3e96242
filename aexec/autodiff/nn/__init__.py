"""Gradients of neural networks' layers: activations, convolutions, pooling, normalisation, losses."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
