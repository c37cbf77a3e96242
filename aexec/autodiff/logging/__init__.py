"""Gradients of printing ops pass through; summaries have none."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
