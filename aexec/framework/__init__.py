"""The foundation of all other packages: errors, types, shapes, op and kernel definitions, and the state of steps."""
