"""Plans: what a request's graph becomes, once, before any step runs it.

Next to read: `plan.py`, then `plan_builder.py`; `compilation_policy.py` says how the runs of a plan are executed."""
