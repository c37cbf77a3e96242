"""A run on the wire: what is asked for, its tensors, its events and its answer."""
