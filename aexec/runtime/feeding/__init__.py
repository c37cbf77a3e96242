"""Feeds and fetches: values of a program on their way into a step, and out of it."""
