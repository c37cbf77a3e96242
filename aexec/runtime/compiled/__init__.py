"""Compiled plans: a plan written as one Python function, which hands over to the interpreter where it cannot go on."""
