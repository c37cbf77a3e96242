"""The commands of `aexec`, a module each: `add_…` declares the options, and sets `command`, which runs it."""
