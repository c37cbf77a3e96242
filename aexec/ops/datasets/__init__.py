"""Input pipelines: datasets, what is made of them, and iterators over them.

Importing this registers the family's definitions.
"""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
