"""The objects that programs handle: graphs, tensors, operations, shapes, dtypes, sparse and ragged tensors."""
