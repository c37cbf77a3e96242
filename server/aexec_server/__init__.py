"""aexec_server: aexec sessions over HTTP.

    app = make_app(ServerConfig())          # an aiohttp application, for tests and for embedding
    serve(ServerConfig(port=8500))          # a server, until a signal comes

A door and no more: it decodes, calls `aexec.Session`, and encodes.  In the order to read:
`app.py`, `handlers/runs.py`, `requests/run_request.py`, `requests/tensors.py`, `sessions/store.py`,
`http/error_responses.py`.
"""

from __future__ import annotations

from aexec_server.app import make_app
from aexec_server.core.server_state import SERVER
from aexec_server.serving import run_server, serve
from aexec_server.settings.server_config import ServerConfig

__all__ = ["SERVER", "ServerConfig", "make_app", "run_server", "serve"]
