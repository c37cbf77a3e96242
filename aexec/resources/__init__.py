"""What a resource manager keeps between steps, and kernels work on: tables, barriers, staging areas, accumulators.

Queues are in `aexec.queues`.
"""
