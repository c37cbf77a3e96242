"""The interpreter: executes a plan node by node, and is the reference for all other ways.

Next to read: `propagator_state.py` says what is ready, `execution.py` and `node_runner.py` run it."""
