"""Gradients of what moves, cuts and joins tensors."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
