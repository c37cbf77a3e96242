"""Gradients of ops that move, cut and join tensors."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
