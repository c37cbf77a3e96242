"""Functions of one row as functions of many: `batched_function.py` makes them, by the rules of `row_rules.py`."""
