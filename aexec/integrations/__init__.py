"""What frameworks need to run sessions well.  None of them is imported.

`asgi.py` is for FastAPI, Starlette and other frameworks of ASGI.  For aiohttp nothing is needed: it cancels the handler
of a client that leaves, if it is told to (docs/embedding.md).
"""

from aexec.integrations.asgi import cancel_on_disconnect

__all__ = ["cancel_on_disconnect"]
