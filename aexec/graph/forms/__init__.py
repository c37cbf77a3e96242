"""Graphs in other forms: messages, text, pictures."""
