"""Kinds of queues: a module for each, which defines the order in which elements are taken.

Importing this package registers them.
"""

from aexec.framework.first_use import import_family
from aexec.queues.queue_registry import follow_queue_kinds, queue_class, queue_kinds

__all__ = ["follow_queue_kinds", "queue_class", "queue_kinds"]

import_family(__name__, __path__, ending="_queue")
