"""No gradient flows through this family."""

from aexec.framework.gradient_registry import no_gradient
from aexec.ops.families import FAMILIES

no_gradient(*FAMILIES["lookup"].split())
