"""Helpers that web frameworks need to run sessions well.  No framework is imported.

`asgi.py` is for FastAPI, Starlette and other ASGI frameworks.  aiohttp needs no helper: it can be configured to cancel
the handler of a client that disconnects (docs/embedding.md).
"""

from aexec.integrations.asgi import cancel_on_disconnect

__all__ = ["cancel_on_disconnect"]
