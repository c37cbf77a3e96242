"""Building graphs in Python: placeholders, constants, operators on tensors, scopes, and user-defined ops."""
