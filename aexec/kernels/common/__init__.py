"""What kernels of several families share; it registers nothing."""
