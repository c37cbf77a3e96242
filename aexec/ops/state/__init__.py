"""Ref variables and resource variables, and mutexes.

Importing this registers the family's definitions.
"""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
