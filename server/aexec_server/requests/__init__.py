"""Runs on the wire: requests, tensors, events and answers."""
