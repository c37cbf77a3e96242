"""Delegates: libraries that run whole regions of a plan.

`delegate.py` has the interface, `delegate_registry.py` keeps delegates by name; `openvino_delegate.py` is the one that
comes with aexec.  `aexec/graph/partitioning/regions.py` finds the regions, `aexec/runtime/planning/delegated.py`
delegates them.
"""
