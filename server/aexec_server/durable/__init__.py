"""Durable sessions: what has been acknowledged is in a store on disk before the answer goes out.

`state_store.py` is the store, `group_commit.py` shares commits among all that wait, `durable_session.py` is the part of
a session that takes part in them.
"""
