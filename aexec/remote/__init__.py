"""Sessions of a server, used as sessions of this process are: `aexec.connect`.

`remote_session.py` is what users see, `service.py` what goes over HTTP.  The server is `aexec_server`.
"""
