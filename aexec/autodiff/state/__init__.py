"""Gradients of reading variables; writing has none."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
