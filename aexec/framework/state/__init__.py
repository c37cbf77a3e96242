"""State that outlives a kernel call: resources, variables' cells, and tensors that a session keeps."""
