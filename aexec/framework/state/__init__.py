"""State that outlives a kernel call: resources, the cells of variables, and tensors that a session keeps."""
