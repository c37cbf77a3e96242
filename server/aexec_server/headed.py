"""`Headed`: what has the head of a request, which is all that much of what is said about requests needs.

aiohttp makes a request of a message that its parser has read; `handlers/direct_runs.py` does without.
"""

from __future__ import annotations

from aiohttp import web

from aexec_server.aiohttp_seam import RawRequestMessage

__all__ = ["Headed"]

Headed = web.BaseRequest | RawRequestMessage
