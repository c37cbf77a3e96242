"""`tensorflow.python.client.device_lib`: the devices of this process.

Next to read: `session.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.running.session import DeviceAttributes, Session
from aexec.compat.v1.values.tensors import Graph

__all__ = ["list_local_devices"]


def list_local_devices(session_config: Any = None) -> list[DeviceAttributes]:
    """The devices of a new session with this `tf.ConfigProto`."""
    with Session(graph=Graph(), config=session_config) as session:
        return session.list_devices()
