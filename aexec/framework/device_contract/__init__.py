"""What a device is, what it is called, and how values get from one to another."""
