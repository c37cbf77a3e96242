"""Gradients of ops that resize, crop and move images."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
