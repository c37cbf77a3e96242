"""The vocabulary: errors, types, shapes, op and kernel definitions, and what steps share."""
