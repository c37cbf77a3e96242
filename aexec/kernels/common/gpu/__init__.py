"""GPU code that replaces several functions of an array module by one launch."""
