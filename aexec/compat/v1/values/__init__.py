"""What programs hold: tensors, operations, their shapes and types, sparse tensors, and the session they are run in."""
