"""Running graphs: devices, placement, plans, steps, functions and sessions."""
