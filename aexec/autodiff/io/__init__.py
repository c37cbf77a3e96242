"""No gradient flows through this family."""

from aexec.framework.op_contract.gradient_registry import no_gradient
from aexec.ops.families import FAMILIES

no_gradient(*FAMILIES["io"].split())
