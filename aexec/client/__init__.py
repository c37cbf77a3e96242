"""Building graphs in Python: placeholders, constants, operators on tensors, scopes, and ops of one's own."""
