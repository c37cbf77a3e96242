"""Gradients of tensor arrays; none flows through queues, stacks and session tensors."""

from aexec.framework.first_use import import_family

import_family(__name__, __path__)
