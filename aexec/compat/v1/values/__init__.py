"""Values of programs: tensors, operations, their shapes and types, sparse tensors, and the session that runs them."""
