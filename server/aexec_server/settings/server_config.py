"""`ServerConfig`: all settings of the server, in one frozen dataclass.

Each setting is described here and nowhere else: flags, environment variables, keys in files and docs/settings.md are
derived from the fields.  Next to read: `settings.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aexec
from aexec import errors
from aexec.hosting import ClusterSecurity, find_op_def, num_processors
from aexec_server.settings.message_scan import MessageLimits
from aexec_server.settings.model_settings import Delegates, Graphs, Models
from aexec_server.settings.model_source import GraphSource, ModelSource
from aexec_server.settings.setting_kinds import Choice, Count, FilePath, Megabytes, Names, Number, Seconds, Switch, Text
from aexec_server.settings.settings import check_settings, setting
from aexec_server.settings.site_policy import check_host_name, check_origin
from aexec_server.settings.trusted_proxies import TrustedProxies

__all__ = ["ServerConfig"]

# Bytes of memory that one byte of a body may expand to, unless a limit is set.
_EXPANSION = 8

# Default share of one client in what all clients use (`clients/client_shares.py`).
_ALL_BUT_LAST = ("auto", "all but the last eighth, which is kept for clients that have none")

# Headings, in the order of the fields.
_ADDRESS = "where it listens"
_MODELS = "what it serves"
_REQUESTS = "what a request may hold"
_MEMORY = "memory"
_RUNS = "runs"
_SESSIONS = "sessions"
_CONNECTIONS = "connections"
_CLIENTS = "what clients may do"
_ACCESS = "who may use it"
_HOSTS = "session hosts"
_OPERATION = "operation"


# Longer than other classes because of its list of settings; it only checks them.
@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of a server; docs/settings.md lists them.

    These can be set only by programs:

    Attributes:
        handle_prefix: start of the handles of sessions.
        server_run: end of the handles of sessions, which differs at each start of the server; empty: a new one.
        caller_key: key by which a process behind a front recognises its front.
        front_has_tokens: True if that front checks tokens.
        clock: monotonic clock, in seconds, by which sessions age.

    Raises:
        InvalidArgumentError: a field has a value that it cannot have.
    """

    host: str = setting("127.0.0.1", Text("an address", "ADDRESS"), "address to listen on", group=_ADDRESS)
    port: int = setting(8500, Count(0, 65535), "port to listen on, 0 for any free one", group=_ADDRESS)

    grpc_port: int | None = setting(
        None,
        Count(0, 65535),
        "port to listen on for gRPC, 0 for any free one; needs aexec[grpc]",
        group=_ADDRESS,
        none=("none", "no gRPC"),
    )

    graphs: Mapping[str, GraphSource] = setting(
        {},
        Graphs(),
        "graph files and SavedModels to serve as sessions NAME, with their variables; they are open when the server "
        "listens, and never expire",
        group=_MODELS,
        flag="--graph",
    )
    models: Mapping[str, ModelSource] = setting(
        {},
        Models(),
        "models to serve: a graph file, a .meta file with its checkpoint beside it, a SavedModel's directory, or one "
        "with numbered versions of these, which is watched for newer ones; loaded when the server listens, which is "
        "ready after that",
        group=_MODELS,
        flag="--model",
    )
    model_repository: str | Path | None = setting(
        None,
        FilePath("DIR"),
        "serve each subdirectory as a model, and watch for those that come, change and go",
        group=_MODELS,
        none=("none", "no directory"),
    )
    repository_poll_seconds: float = setting(
        2.0, Seconds(), "how often models and their repository are looked at", group=_MODELS, name="repository_poll"
    )
    delegates: str | Collection[str] | None = setting(
        None,
        Delegates(),
        "libraries that run regions of graphs, such as openvino: from the first run; auto: what is installed, where "
        "that is worth it; none: all runs here. A delegate is a library in this process, written for models of one's "
        "own",
        group=_MODELS,
        flag="--delegate",
        none=("default", "auto for graphs and models, none for what clients send"),
    )

    cluster: str | None = setting(
        None,
        Text("a cluster", "TARGET"),
        "such as dask://HOST:8786: graphs and models are on all workers of the cluster, each run on the one that is "
        "least busy; several servers may serve from one cluster. Their files are read by the workers, too. Sessions of "
        "clients are in this process",
        group=_MODELS,
        none=("none", "they are in this process, or a session host"),
    )
    cluster_ca: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of who signs the certificates of the cluster, which is then connected to by TLS; needed unless all "
        "of it is on loopback addresses, or Dask's settings say the same",
        group=_MODELS,
        none=("none", "what Dask's settings say"),
    )
    cluster_cert: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of this server's certificate for the cluster",
        group=_MODELS,
        none=("none", "what Dask's settings say"),
    )
    cluster_key: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of the key of that, without a password",
        group=_MODELS,
        none=("none", "it is in the same file"),
    )

    max_body_bytes: int = setting(
        64 * 2**20,
        Megabytes(),
        "largest request body, counted after decompression too",
        group=_REQUESTS,
        name="max_body_mb",
    )
    max_buffered_bytes: int | None = setting(
        None,
        Megabytes(),
        "bodies of all requests together, as far as they have come",
        group=_REQUESTS,
        name="max_buffered_mb",
        none=("auto", "eight of the largest"),
    )
    max_client_buffered_bytes: int | None = setting(
        None, Megabytes(), "the same of one client", group=_REQUESTS, name="max_client_buffered_mb", none=_ALL_BUT_LAST
    )
    max_graph_nodes: int = setting(
        500_000,
        Count(),
        "nodes of a client's graph and of its functions, and these, together",
        group=_REQUESTS,
    )
    max_expanded_bytes: int | None = setting(
        None,
        Megabytes(),
        "what a request's message may take of memory once decoded, the tensors in it filled",
        group=_REQUESTS,
        name="max_expanded_mb",
        none=("auto", f"{_EXPANSION} times the largest body"),
    )
    max_answer_bytes: int = setting(
        2**30,
        Megabytes(),
        "largest sum of the tensors that a run answers with",
        group=_REQUESTS,
        name="max_answer_mb",
    )

    max_answers: int = setting(
        100,
        Count(),
        "large answers, such as graphs and kept tensors, that are sent at a time, besides those of runs",
        group=_REQUESTS,
    )

    max_memory_bytes: float | None = setting(
        None,
        Megabytes(infinite=True),
        "what the tensors of all sessions may take of memory at a time, with what sessions keep; of a number of hosts "
        "each has an equal part",
        group=_MEMORY,
        name="max_memory_mb",
        none=("auto", "half of what the machine, its control group or the host has"),
    )
    max_session_bytes: float | None = setting(
        None,
        Megabytes(infinite=True),
        "the same of one client's session",
        group=_MEMORY,
        name="max_session_mb",
        none=("auto", "half of that"),
    )
    max_run_bytes: float | None = setting(
        None,
        Megabytes(infinite=True),
        "what the tensors of one run of a client's session may take at a time",
        group=_MEMORY,
        name="max_run_mb",
        none=("auto", "half of what all sessions may take"),
    )
    max_kept_bytes: int = setting(
        2**30, Megabytes(), "what a client's session may keep under handles", group=_MEMORY, name="max_kept_mb"
    )
    max_image_pixels: int = setting(
        100_000_000,
        Count(),
        "how many pixels an image may have, all frames together, that a graph decodes",
        group=_MEMORY,
    )
    max_stored_bytes: int = setting(
        64 * 2**20,
        Megabytes(),
        "what the answers of runs that are answered later may take, and those to requests that may be sent again",
        group=_MEMORY,
        name="max_stored_mb",
    )
    max_client_stored_bytes: int | None = setting(
        None, Megabytes(), "the same of one client", group=_MEMORY, name="max_client_stored_mb", none=_ALL_BUT_LAST
    )

    max_runs: int = setting(
        1000,
        Count(),
        "runs in flight at any time, over all sessions; one whose body is on the way does not count",
        group=_RUNS,
    )
    max_session_runs: int | None = setting(
        None, Count(), "the same of one session", group=_RUNS, none=("auto", "as many as the server takes")
    )
    max_client_runs: int | None = setting(
        None, Count(), "the same of one client: of who has a token, else an address", group=_RUNS, none=_ALL_BUT_LAST
    )
    max_partial_runs: int = setting(
        1000,
        Count(),
        "partial runs that have not ended; one is a run in flight only while somebody waits for a part of it",
        group=_RUNS,
    )
    max_client_partial_runs: int | None = setting(
        None, Count(), "the same of one client", group=_RUNS, none=_ALL_BUT_LAST
    )
    run_slots: int = setting(
        16,
        Count(),
        "runs that work at the same time, besides those that take next to nothing, and those that have worked for "
        "long; others stand in line",
        group=_RUNS,
    )
    queue_seconds: float = setting(
        0.03,
        Seconds(),
        "how long a run may stand in line; then, or if it is plain before, it is refused",
        group=_RUNS,
        name="queue_timeout",
    )
    max_timeout: float | None = setting(
        None,
        Seconds(),
        "longest deadline of a run, also for runs that ask for none, and for making a session",
        group=_RUNS,
        none=("none", "no limit"),
    )
    max_threads: int = setting(64, Count(), "largest thread count that a client's ConfigProto may ask for", group=_RUNS)

    max_sessions: int = setting(1000, Count(), "sessions of clients, open at any time", group=_SESSIONS)
    max_client_sessions: int | None = setting(
        None, Count(), "the same of one client", group=_SESSIONS, none=_ALL_BUT_LAST
    )
    session_ttl_s: float | None = setting(
        3600.0,
        Seconds(),
        "time after which an unused session is closed, unless its creator asks for another",
        group=_SESSIONS,
        name="session_ttl",
        none=("none", "never"),
    )
    sweep_seconds: float = setting(
        1.0, Seconds(), "how often unused sessions are looked for", group=_SESSIONS, name="sweep"
    )

    max_connections: int = setting(
        10_000,
        Count(),
        "connections of clients at a time, fewer where the process may have fewer files; a new one takes the place of "
        "the one that has been idle longest",
        group=_CONNECTIONS,
    )
    header_seconds: float = setting(
        10.0,
        Seconds(),
        "how long a client may take to send the head of a request",
        group=_CONNECTIONS,
        name="header_timeout",
    )
    idle_seconds: float = setting(
        75.0,
        Seconds(),
        "how long a connection may be open between two requests",
        group=_CONNECTIONS,
        name="idle_timeout",
    )
    body_seconds: float = setting(
        300.0, Seconds(), "how long a client may take to send a body", group=_CONNECTIONS, name="body_timeout"
    )
    min_body_rate: float = setting(
        10_000.0, Number("bytes"), "bytes of a body that a client has to send in a second", group=_CONNECTIONS
    )
    min_rate: float = setting(
        1000.0, Number("bytes"), "bytes of an answer that a client has to take in a second", group=_CONNECTIONS
    )
    slow_seconds: float = setting(
        10.0,
        Seconds(),
        "how far behind these rates a client may be; what it sends sooner does not let it be further behind",
        group=_CONNECTIONS,
        name="slow_timeout",
    )

    allow_ops: Collection[str] = setting(
        (),
        Names("names of ops", "OP,…"),
        "ops that clients may use though they reach for files or the network, or are not aexec's own but registered by "
        "this program; in the server's own graphs they count as changing nothing",
        group=_CLIENTS,
    )
    trust_graphs: bool = setting(False, Switch(), "let clients use any op", group=_CLIENTS)
    allow_model_changes: bool = setting(
        False,
        Switch(),
        "let clients load and unload models, extend and delete the sessions of graphs, and run what changes their "
        "variables, tables and queues",
        group=_CLIENTS,
    )

    token_file: str | Path | None = setting(
        None,
        FilePath(),
        "TOML file of tokens, of which each request needs one: `aexec token NAME` makes a token and its line; read "
        "again when it changes",
        group=_ACCESS,
        none=("none", "no tokens are wanted"),
    )
    tokens: str | None = setting(
        None,
        Text("TOML", "TOML"),
        "the same as text, instead of a file or besides one",
        group=_ACCESS,
        none=("none", "none"),
        secret=True,
    )
    insecure_no_auth: bool = setting(
        False,
        Switch(),
        "listen on an address that other machines reach though neither tokens nor certificates of clients are wanted",
        group=_ACCESS,
    )
    open_metrics: bool = setting(
        False, Switch(), "answer requests for metrics without a token, as those for health", group=_ACCESS
    )
    tls_cert: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of the server's certificate, with those that lead to its issuer; read again when it changes",
        group=_ACCESS,
        none=("none", "no TLS"),
    )
    tls_key: str | Path | None = setting(
        None, FilePath(), "PEM file of the key of that, without a password", group=_ACCESS, none=("none", "no TLS")
    )
    tls_client_ca: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of who signs the certificates of clients, without which none is served",
        group=_ACCESS,
        none=("none", "clients need no certificate"),
    )
    allowed_hosts: Collection[str] = setting(
        (),
        Names("names of hosts, or *"),
        "names by which clients may call the server besides localhost, the address to listen on and any address; * for "
        "any. Without tokens it answers to no other name",
        group=_ACCESS,
        flag="--allowed-host",
    )
    trusted_proxies: Collection[str] = setting(
        (),
        Names("addresses and networks", "CIDR,…"),
        "reverse proxies, such as 10.0.0.0/8, whose header X-Forwarded-For says from which address a request comes; "
        "the server counts their clients one by one",
        group=_ACCESS,
    )
    cors_origins: Collection[str] = setting(
        (),
        Names("origins, or *", "ORIGIN,…"),
        "such as https://example.org, whose pages may use the server in a browser; * for any",
        group=_ACCESS,
        flag="--cors-origin",
    )

    hosts: int | None = setting(
        0,
        Count(0, words={"per-core": num_processors()}),
        "processes in which the sessions of clients are, watched and replaced. auto: each session of a client has a "
        "process of its own, as long as memory allows, and no two clients share one; a number, or per-core: so many, "
        "which all share; 0: sessions are in the process that clients connect to",
        group=_HOSTS,
        none=("auto", "one for each session"),
    )
    max_host_bytes: int | None = setting(
        None,
        Megabytes(),
        "resident memory that a host may have; it is ended when it has more",
        group=_HOSTS,
        name="max_host_mb",
        none=("auto", "of 80 % of the machine's an equal part; half where sessions have hosts of their own"),
    )
    host_silence_seconds: float = setting(
        1.0, Seconds(), "a host that does not answer for so long is ended", group=_HOSTS, name="host_silence"
    )
    models_in_front: bool = setting(
        False,
        Switch(),
        "with hosts: keep graphs and models in the process that clients connect to, in place of one of their own",
        group=_HOSTS,
    )

    log_level: str = setting(
        "info", Choice("debug", "info", "warning", "error"), "what is logged at least", group=_OPERATION
    )
    kernel_samples: int | None = setting(
        None,
        Count(),
        "one of so many runs is traced, for aexec_kernel_duration_seconds in the metrics, besides those that ask for "
        "it; a traced run takes longer",
        group=_OPERATION,
        none=("none", "only runs that ask to be traced"),
    )
    log_format: str = setting(
        "text", Choice("text", "json"), "how lines of the log are written; json: an object in each", group=_OPERATION
    )
    print_rate: int = setting(
        16_384,
        Count(),
        "bytes that the graph of a session may print to the log in a second; of what is beyond that a line says how "
        "much it was",
        group=_OPERATION,
    )
    access_log: bool = setting(False, Switch(), "log every request", group=_OPERATION)
    step_log: bool = setting(
        False,
        Switch(),
        "log every run: its id, session, trace, duration and outcome, never what it computed",
        group=_OPERATION,
    )
    otel: bool = setting(
        False,
        Switch(),
        "make OpenTelemetry spans of requests and runs; needs aexec[otel] and a tracer provider",
        group=_OPERATION,
    )
    unready_seconds: float = setting(
        0.0,
        Seconds(zero=True),
        "told to stop, how long the server still takes everything, while readiness is 503 and balancers turn away",
        group=_OPERATION,
        name="unready",
    )
    drain_seconds: float = setting(
        10.0,
        Seconds(zero=True),
        "how long runs may go on after the server was told to stop; five seconds later the process ends, whatever runs",
        group=_OPERATION,
        name="drain",
    )

    handle_prefix: str = ""
    server_run: str = ""
    caller_key: str | None = field(default=None, repr=False)
    front_has_tokens: bool = False
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        check_settings(self)
        both = sorted(self.graphs.keys() & self.models.keys())
        if both:
            raise errors.InvalidArgumentError(f"'{both[0]}' is the name of both a graph and a model")
        if self.max_buffered_bytes is not None and self.max_buffered_bytes < self.max_body_bytes:
            raise errors.InvalidArgumentError(
                f"max_buffered_bytes must be max_body_bytes at least, got {self.max_buffered_bytes}"
            )
        for op in self.allow_ops:
            if find_op_def(op) is None:
                raise errors.InvalidArgumentError(f"allow_ops names {op!r}, which is no op of this program")
        for name in self.allowed_hosts:
            check_host_name(name)
        TrustedProxies(self.trusted_proxies)
        for origin in self.cors_origins:
            check_origin(origin)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise errors.InvalidArgumentError("tls_cert and tls_key go together")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise errors.InvalidArgumentError("tls_client_ca needs tls_cert and tls_key")
        if (self.cluster_ca is None) != (self.cluster_cert is None):
            raise errors.InvalidArgumentError("cluster_ca and cluster_cert go together")
        if self.cluster_key is not None and self.cluster_cert is None:
            raise errors.InvalidArgumentError("cluster_key needs cluster_cert")
        if self.cluster_cert is not None and self.cluster is None:
            raise errors.InvalidArgumentError("cluster_ca, cluster_cert and cluster_key need cluster")
        if self.delegates is not None:
            aexec.SessionConfig(delegates=self.delegates)

    @property
    def has_tokens(self) -> bool:
        """True if this process checks tokens itself."""
        return self.token_file is not None or self.tokens is not None

    @property
    def wants_tokens(self) -> bool:
        """True if a client's request needs a token, checked here or by the front."""
        return self.has_tokens or self.front_has_tokens

    @property
    def cluster_security(self) -> ClusterSecurity:
        """Certificates with which to connect to the cluster."""
        files = (self.cluster_ca, self.cluster_cert, self.cluster_key)
        ca, cert, key = (None if file is None else str(file) for file in files)
        return ClusterSecurity(ca, cert, key, required=True)

    @property
    def has_hosts(self) -> bool:
        """True if sessions of clients are in processes of their own."""
        return self.hosts != 0

    @property
    def message_limits(self) -> MessageLimits:
        """Limits on a client's protobuf message."""
        expanded = _EXPANSION * self.max_body_bytes if self.max_expanded_bytes is None else self.max_expanded_bytes
        return MessageLimits(self.max_graph_nodes, expanded)
