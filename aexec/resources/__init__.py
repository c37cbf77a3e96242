"""Resources that a manager keeps between steps: tables, barriers, staging areas, accumulators.

Queues are in `aexec.queues`.
"""
