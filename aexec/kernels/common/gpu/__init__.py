"""Code for GPUs: one launch for several functions of an array module."""
