"""The order of reads and updates in a step, and which nodes these are."""
