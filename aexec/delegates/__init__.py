"""Delegates: libraries that run whole regions of a plan.

`delegate.py` says what one is, `delegate_registry.py` keeps them by name; `openvino_delegate.py` is the one that comes
with aexec.
`aexec/graph/partitioning/regions.py` finds what can be handed over, `aexec/runtime/planning/delegated.py` hands it
over.
"""
