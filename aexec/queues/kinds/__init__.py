"""Kinds of queues: a module for each, which says in which order elements are taken.

Importing this registers them.
"""

from aexec.framework.first_use import import_family
from aexec.queues.queue_registry import follow_queue_kinds, queue_class, queue_kinds

__all__ = ["follow_queue_kinds", "queue_class", "queue_kinds"]

import_family(__name__, __path__, ending="_queue")
