"""Protocols of other servers: Open Inference Protocol v2, TensorFlow Serving's REST API."""
