"""The commands of `aexec`, a module each: `add_…` says its options, and what it sets as `command` runs it."""
