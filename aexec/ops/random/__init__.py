"""Random numbers: stateful, stateless, and candidate samplers.

Importing this registers the family's definitions.
"""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
