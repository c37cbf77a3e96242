"""Waiting: cancellation, futures, abandoned calls, helper threads, and the budget of the event loop's time."""
