"""All families of gradients are imported before the first test: that reads files, which the event loop must not."""

from __future__ import annotations

import aexec.autodiff  # noqa: F401  the families are found through the registry
from aexec.framework.gradient_registry import global_registry

global_registry.ops()
