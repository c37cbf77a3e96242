"""Gradients of what resizes, crops and moves images."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
