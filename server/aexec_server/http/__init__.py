"""HTTP below the protocols: bodies and answers within bounds, framing, compression, JSON, and errors.

Also answers kept for repeated requests, and the backlog.
"""
