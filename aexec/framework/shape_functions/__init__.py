"""Shape inference: what a shape function is called with, and what it can do."""
