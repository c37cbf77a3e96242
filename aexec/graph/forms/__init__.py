"""Other forms of graphs: messages, text, drawings."""
