"""What all handlers share: the server's state, routes, access, and admission of runs.

Also the journal and log of requests, and spans.
"""
