"""Connections: accepted, guarded against clients that do nothing, closed, and TLS."""
