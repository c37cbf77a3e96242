"""Ops: how they are defined, registered, and used in code that builds nodes."""
