"""Data flow between nodes and steps: queues, barriers, stages, accumulators, tensor arrays, stacks, batches.

Importing this registers the family's definitions.
"""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
