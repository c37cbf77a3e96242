"""What a service manager says, and what is refused of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from aexec_server import ServerConfig
from aexec_server.connections import service_manager
from aexec_server.connections.service_manager import ServiceManager

from aexec import errors


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A listening socket that is passed to this process."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        monkeypatch.setattr(service_manager, "_FIRST", os.dup(one.fileno()))
        yield one


def told(pid: int | None = None, count: str = "1") -> dict[str, str]:
    return {"LISTEN_PID": str(os.getpid() if pid is None else pid), "LISTEN_FDS": count}


def test_socket_gives_the_address(passed: socket.socket) -> None:
    manager = ServiceManager(told())
    config = manager.at_its_address(ServerConfig())
    assert (config.host, config.port) == passed.getsockname()
    assert manager.at_its_address(config) == config
    assert not os.get_inheritable(manager.sockets[0].fileno())
    manager.sockets[0].close()


@pytest.mark.parametrize("settings", [{"port": 1}, {"host": "127.0.0.2"}, {"host": "::1"}, {"reuse_port": True}])
def test_settings_that_say_something_else_are_refused(passed: socket.socket, settings: dict[str, object]) -> None:
    manager = ServiceManager(told())
    with pytest.raises(errors.FailedPreconditionError, match=r"leave (it|them) out"):
        manager.at_its_address(ServerConfig(**settings))  # type: ignore[arg-type]
    manager.sockets[0].close()


def test_address_for_all_counts_before_one_for_this_machine(
    passed: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = ServiceManager(told())
    with socket.create_server(("0.0.0.0", 0)) as public:
        manager.sockets.append(public)
        assert manager.at_its_address(ServerConfig()).host == "0.0.0.0"
    manager.sockets[0].close()


def test_sockets_of_another_process_are_left_alone(passed: socket.socket) -> None:
    manager = ServiceManager(told(pid=os.getppid()))
    assert manager.sockets == []
    assert manager.at_its_address(ServerConfig()) == ServerConfig()


def test_what_is_no_listening_socket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent, open(os.devnull) as file, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        for one, why in ((silent, "not a listening"), (file, "no socket"), (datagrams, "not a listening")):
            number = os.dup(one.fileno())
            monkeypatch.setattr(service_manager, "_FIRST", number)
            with pytest.raises(errors.FailedPreconditionError, match=why):
                ServiceManager(told())
            if one is file:
                os.close(number)
    with pytest.raises(errors.FailedPreconditionError, match="no number"):
        ServiceManager(told(count="x"))


def test_variables_are_hidden_from_other_processes() -> None:
    environment = {"NOTIFY_SOCKET": "/nowhere", "LISTEN_PID": "1", "HOME": "/home"}
    ServiceManager.of_process(environment)
    assert environment == {"HOME": "/home"}


def test_manager_that_does_not_hear_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({"NOTIFY_SOCKET": "/nowhere/at/all"}).say_stopping()
    assert "was not told STOPPING=1" in caplog.text


def test_watchdog_of_another_process_is_left_alone() -> None:
    there = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000000"}
    assert ServiceManager(there)._ping_seconds == 0.5
    assert ServiceManager({**there, "WATCHDOG_PID": str(os.getppid())})._ping_seconds is None
