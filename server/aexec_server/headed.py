"""`Headed`: an object with the method, path and headers of a request.

It is a request of aiohttp's, or the message that aiohttp's parser read, from which `handlers/direct_runs.py` answers
without a request.
"""

from __future__ import annotations

from aiohttp import web

from aexec_server.aiohttp_seam import RawRequestMessage

__all__ = ["Headed"]

Headed = web.BaseRequest | RawRequestMessage
