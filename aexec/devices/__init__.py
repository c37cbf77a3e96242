"""Where kernels run: the implementations of `aexec.framework.device.Device`, and the registry of their factories."""
