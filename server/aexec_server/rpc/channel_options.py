"""`server_options`: the limits of the server's side of gRPC, as arguments of grpcio's core."""

from __future__ import annotations

from aexec_server.settings.server_config import ServerConfig

__all__ = ["server_options"]

# Bytes of a call's metadata: calls above the first limit may be refused, calls above the second are.
_METADATA_BYTES = 8 * 1024
_MOST_METADATA_BYTES = 16 * 1024
# Least interval of clients' pings; a client that pings more often this many times is disconnected.
_PING_SECONDS = 10.0
_PING_STRIKES = 2
# After this time without data from a client the server pings it, and waits this long for the answer.
_KEEPALIVE_SECONDS = 60.0
_KEEPALIVE_TIMEOUT_SECONDS = 20.0


def server_options(config: ServerConfig) -> list[tuple[str, int]]:
    """The options of `grpc.aio.server`."""
    return [
        ("grpc.so_reuseport", int(config.reuse_port)),  # two servers must not share a port by accident
        ("grpc.max_receive_message_length", config.max_body_bytes),
        ("grpc.max_send_message_length", -1),  # answers are limited by max_answer_bytes
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _MOST_METADATA_BYTES),
        ("grpc.max_concurrent_streams", config.max_runs),
        ("grpc.max_allowed_incoming_connections", config.max_connections),
        ("grpc.server_handshake_timeout_ms", _ms(config.header_seconds)),
        ("grpc.max_connection_idle_ms", _ms(config.idle_seconds)),
        ("grpc.http2.min_ping_interval_without_data_ms", _ms(_PING_SECONDS)),
        ("grpc.http2.max_ping_strikes", _PING_STRIKES),
        ("grpc.keepalive_time_ms", _ms(_KEEPALIVE_SECONDS)),
        ("grpc.keepalive_timeout_ms", _ms(_KEEPALIVE_TIMEOUT_SECONDS)),
    ]


def _ms(seconds: float) -> int:
    return min(2**31 - 1, round(seconds * 1000))
