"""Sessions in a server, used like sessions of this process: `aexec.connect`.

`remote_session.py` has the users' API, `service.py` sends the requests over HTTP.  The server is `aexec_server`.
"""
