"""Servers that are killed, told to stop, or hand over to the next: each in processes of its own."""
