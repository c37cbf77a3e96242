"""Records: the state of a session as plain tensors, from which another process makes it again."""
