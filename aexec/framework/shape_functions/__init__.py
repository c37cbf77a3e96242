"""Shape inference: shapes, shape functions, and the context in which a shape function runs."""
