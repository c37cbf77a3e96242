"""Quantised numbers, and fake quantisation for training.

Importing this registers the family's definitions.
"""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
