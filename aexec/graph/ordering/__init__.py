"""The order of variables' reads and updates in a step, and which nodes read and update."""
