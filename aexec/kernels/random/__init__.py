"""Random numbers: stateful, stateless, and samplers of candidates.

Importing this registers the family's kernels.
"""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
