"""The models that a server serves: their versions, sources and statistics."""
