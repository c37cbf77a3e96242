"""Plans: the form of a request's graph that steps execute, made once.

Next to read: `plan.py`, then `plan_builder.py`; `compilation_policy.py` decides how the runs of a plan are executed.
"""
