"""Devices: implementations of `Device` (`aexec/framework/device_contract/device.py`), and their registry."""
