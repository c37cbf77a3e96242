"""Gradients of ragged tensors: those of their values."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
