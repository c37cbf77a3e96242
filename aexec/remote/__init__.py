"""Sessions in a server, used like sessions of this process: `aexec.connect`.

`remote_session.py` has the users' API, `service.py` says what it asks of a server.  The server is `aexec_server`.
"""
