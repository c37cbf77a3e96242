"""The contract of a device: its names, memory and streams, and how values get from one device to another."""
