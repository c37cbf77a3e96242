"""Waiting and being told to stop: cancellation, futures, and what the event loop's time may be spent on."""
