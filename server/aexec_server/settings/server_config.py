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
from aexec_server.settings.jwt_rules import JwtRules, jwt_rules
from aexec_server.settings.message_scan import MessageLimits
from aexec_server.settings.model_settings import Delegates, Graphs, Models
from aexec_server.settings.model_source import GraphSource, ModelSource
from aexec_server.settings.setting_kinds import (
    Choice,
    Count,
    FileOrUrl,
    FilePath,
    Megabytes,
    Names,
    Number,
    Seconds,
    Switch,
    Text,
)
from aexec_server.settings.settings import check_settings, setting
from aexec_server.settings.site_policy import check_host_name, check_origin
from aexec_server.settings.trusted_proxies import TrustedProxies

__all__ = ["ServerConfig"]

# Bytes of memory that one byte of a body may expand to, unless a limit is set.
_EXPANSION = 8

# Default share of one client in what all clients use (`clients/client_shares.py`).
_ALL_BUT_LAST = ("auto", "seven eighths of the limit for all clients; the rest is kept for others")

# Headings, in the order of the fields.
_ADDRESS = "where it listens"
_MODELS = "what it serves"
_REQUESTS = "what a request may hold"
_MEMORY = "memory"
_RUNS = "runs"
_SESSIONS = "sessions"
_STATE = "durable sessions"
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
    port: int = setting(8500, Count(0, 65535), "port to listen on; 0 picks a free one", group=_ADDRESS)
    reuse_port: bool = setting(
        False,
        Switch(),
        "listen beside other servers of the same user that have this set: a new process takes the port over, and the "
        "old one, when it is told to stop, leaves new connections to it",
        group=_ADDRESS,
    )

    grpc_port: int | None = setting(
        None,
        Count(0, 65535),
        "port to listen on for gRPC; 0 picks a free one. Needs aexec[grpc]",
        group=_ADDRESS,
        none=("none", "no gRPC"),
    )

    graphs: Mapping[str, GraphSource] = setting(
        {},
        Graphs(),
        "serve the graph file or SavedModel PATH as the session NAME, with its variables; the session is open when "
        "the server begins to listen, and never expires",
        group=_MODELS,
        flag="--graph",
    )
    models: Mapping[str, ModelSource] = setting(
        {},
        Models(),
        "serve a model: a graph file, a .meta file with its checkpoint beside it, the directory of a SavedModel, or "
        "a directory with numbered versions of these, which the server watches for newer ones. Models are loaded "
        "after the server has begun to listen; it is ready when all are loaded",
        group=_MODELS,
        flag="--model",
    )
    model_repository: str | Path | None = setting(
        None,
        FilePath("DIR"),
        "serve each subdirectory as a model; the server watches for models that are added, changed and removed",
        group=_MODELS,
        none=("none", "no directory"),
    )
    repository_poll_seconds: float = setting(
        2.0,
        Seconds(),
        "time between two looks at the files of models and at the repository",
        group=_MODELS,
        name="repository_poll",
    )
    delegates: str | Collection[str] | None = setting(
        None,
        Delegates(),
        "libraries that run regions of graphs: NAME, such as openvino, from the first run; auto: installed ones, "
        "where they are faster; none: no library. A delegate runs in this process and is written for trusted models",
        group=_MODELS,
        flag="--delegate",
        none=("default", "auto for graphs and models, none for clients' graphs"),
    )

    cluster: str | None = setting(
        None,
        Text("a cluster", "TARGET"),
        "cluster, such as dask://HOST:8786, whose workers all load the graphs and models; each run goes to the least "
        "busy worker. The workers read the files, too. Several servers may use one cluster. Sessions of clients "
        "stay in this process",
        group=_MODELS,
        none=("none", "no cluster: graphs and models are in this process or a host"),
    )
    cluster_ca: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of the authority that signs the cluster's certificates; turns on TLS to the cluster. Needed unless "
        "the whole cluster has loopback addresses or Dask's settings name the file",
        group=_MODELS,
        none=("none", "as in Dask's settings"),
    )
    cluster_cert: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of this server's certificate for the cluster",
        group=_MODELS,
        none=("none", "as in Dask's settings"),
    )
    cluster_key: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of the private key of --cluster-cert, without a password",
        group=_MODELS,
        none=("none", "the key is in the file of the certificate"),
    )

    max_body_bytes: int = setting(
        64 * 2**20,
        Megabytes(),
        "largest request body; counted again after decompression",
        group=_REQUESTS,
        name="max_body_mb",
    )
    max_buffered_bytes: int | None = setting(
        None,
        Megabytes(),
        "largest sum of the request bodies that the server holds, counting received bytes",
        group=_REQUESTS,
        name="max_buffered_mb",
        none=("auto", "8 times the largest body"),
    )
    max_client_buffered_bytes: int | None = setting(
        None,
        Megabytes(),
        "largest sum of one client's request bodies that the server holds",
        group=_REQUESTS,
        name="max_client_buffered_mb",
        none=_ALL_BUT_LAST,
    )
    max_graph_nodes: int = setting(
        500_000,
        Count(),
        "largest number of nodes and functions in a client's graph, counting nodes of functions",
        group=_REQUESTS,
    )
    max_expanded_bytes: int | None = setting(
        None,
        Megabytes(),
        "largest memory of a request's protobuf message once decoded, with its tensors filled",
        group=_REQUESTS,
        name="max_expanded_mb",
        none=("auto", f"{_EXPANSION} times the largest body"),
    )
    max_answer_bytes: int = setting(
        2**30,
        Megabytes(),
        "largest sum of the tensors in the answer to a run",
        group=_REQUESTS,
        name="max_answer_mb",
    )

    max_answers: int = setting(
        100,
        Count(),
        "largest number of large answers, such as graphs and kept tensors, sent at the same time; answers to runs do "
        "not count",
        group=_REQUESTS,
    )

    max_memory_bytes: float | None = setting(
        None,
        Megabytes(infinite=True),
        "limit on the memory of tensors in all sessions together, kept ones included; hosts of a fixed number have "
        "equal parts of it",
        group=_MEMORY,
        name="max_memory_mb",
        none=("auto", "half of the memory of the machine, its control group or the host"),
    )
    max_session_bytes: float | None = setting(
        None,
        Megabytes(infinite=True),
        "limit on the memory of tensors in one client's session, kept ones included",
        group=_MEMORY,
        name="max_session_mb",
        none=("auto", "half of --max-memory-mb"),
    )
    max_run_bytes: float | None = setting(
        None,
        Megabytes(infinite=True),
        "limit on the memory of tensors in one run of a client's session",
        group=_MEMORY,
        name="max_run_mb",
        none=("auto", "half of --max-memory-mb"),
    )
    max_kept_bytes: int = setting(
        2**30,
        Megabytes(),
        "limit on the tensors that a client's session keeps under handles",
        group=_MEMORY,
        name="max_kept_mb",
    )
    max_image_pixels: int = setting(
        100_000_000,
        Count(),
        "largest number of pixels, in all frames together, of an image that a graph decodes",
        group=_MEMORY,
    )
    max_stored_bytes: int = setting(
        64 * 2**20,
        Megabytes(),
        "limit on the stored answers of operations, and another of the same size on the answers kept for repeated "
        "requests",
        group=_MEMORY,
        name="max_stored_mb",
    )
    max_client_stored_bytes: int | None = setting(
        None,
        Megabytes(),
        "the same limit for the answers of one client",
        group=_MEMORY,
        name="max_client_stored_mb",
        none=_ALL_BUT_LAST,
    )

    max_runs: int = setting(
        1000,
        Count(),
        "largest number of runs in flight, over all sessions; a run counts once its body is received",
        group=_RUNS,
    )
    max_session_runs: int | None = setting(
        None,
        Count(),
        "largest number of runs in flight in one session",
        group=_RUNS,
        none=("auto", "no limit besides --max-runs"),
    )
    max_client_runs: int | None = setting(
        None,
        Count(),
        "largest number of runs in flight of one client; a client is the owner of a token, else an address",
        group=_RUNS,
        none=_ALL_BUT_LAST,
    )
    max_partial_runs: int = setting(
        1000,
        Count(),
        "largest number of partial runs that have not ended; each counts as a run in flight only while a client "
        "waits for a part of it",
        group=_RUNS,
    )
    max_client_partial_runs: int | None = setting(
        None, Count(), "largest number of partial runs of one client", group=_RUNS, none=_ALL_BUT_LAST
    )
    run_slots: int = setting(
        16,
        Count(),
        "number of runs that work at the same time; others wait in line. Very short runs, and runs that have worked "
        "for long, need no slot",
        group=_RUNS,
    )
    queue_seconds: float = setting(
        0.03,
        Seconds(),
        "longest time that a run waits for a slot; a run that would wait longer is refused, at once if that is "
        "foreseen",
        group=_RUNS,
        name="queue_timeout",
    )
    max_timeout: float | None = setting(
        None,
        Seconds(),
        "longest deadline of a run, also the deadline of runs that ask for none; and longest time for opening a "
        "session",
        group=_RUNS,
        none=("none", "no limit"),
    )
    max_threads: int = setting(
        64, Count(), "largest number of threads that a client's ConfigProto may ask for", group=_RUNS
    )

    max_sessions: int = setting(1000, Count(), "largest number of open sessions of clients", group=_SESSIONS)
    max_client_sessions: int | None = setting(
        None, Count(), "largest number of open sessions of one client", group=_SESSIONS, none=_ALL_BUT_LAST
    )
    session_ttl_s: float | None = setting(
        3600.0,
        Seconds(),
        "time after which an unused session is closed, unless its creator asked for another time",
        group=_SESSIONS,
        name="session_ttl",
        none=("none", "never"),
    )
    sweep_seconds: float = setting(
        1.0, Seconds(), "time between two searches for unused sessions", group=_SESSIONS, name="sweep"
    )

    state_path: str | Path | None = setting(
        None,
        FilePath("DIR"),
        "keep durable sessions in this directory: what has been acknowledged survives the end of the server. The "
        "directory is made if there is none, and one server at a time uses it",
        group=_STATE,
        flag="--state",
        none=("none", "no session is durable"),
    )
    max_state_bytes: int = setting(
        16 * 2**30,
        Megabytes(),
        "limit on the graphs, tensors and stored answers of all durable sessions together",
        group=_STATE,
        name="max_state_mb",
    )
    max_client_state_bytes: int | None = setting(
        None,
        Megabytes(),
        "the same limit for the durable sessions of one client",
        group=_STATE,
        name="max_client_state_mb",
        none=_ALL_BUT_LAST,
    )
    max_session_state_bytes: int = setting(
        2 * 2**30,
        Megabytes(),
        "the same limit for one durable session",
        group=_STATE,
        name="max_session_state_mb",
    )

    max_connections: int = setting(
        10_000,
        Count(),
        "largest number of connections, at most what the limit on open files allows; beyond it a new connection "
        "replaces the one that has been idle longest",
        group=_CONNECTIONS,
    )
    header_seconds: float = setting(
        10.0,
        Seconds(),
        "longest time for receiving the head of a request",
        group=_CONNECTIONS,
        name="header_timeout",
    )
    idle_seconds: float = setting(
        75.0,
        Seconds(),
        "longest time between two requests on a connection",
        group=_CONNECTIONS,
        name="idle_timeout",
    )
    body_seconds: float = setting(
        300.0, Seconds(), "longest time for receiving the body of a request", group=_CONNECTIONS, name="body_timeout"
    )
    min_body_rate: float = setting(
        10_000.0,
        Number("bytes"),
        "lowest rate at which a client may send a body, in bytes a second",
        group=_CONNECTIONS,
    )
    min_rate: float = setting(
        1000.0,
        Number("bytes"),
        "lowest rate at which a client may take an answer, in bytes a second",
        group=_CONNECTIONS,
    )
    slow_seconds: float = setting(
        10.0,
        Seconds(),
        "how far a client may fall behind these rates before its connection is closed; sending faster earlier earns "
        "no more time",
        group=_CONNECTIONS,
        name="slow_timeout",
    )

    allow_ops: Collection[str] = setting(
        (),
        Names("names of ops", "OP,…"),
        "ops that clients may use although they access files or the network, or are registered by this program and "
        "not by aexec; in graphs of the server they count as ops that change nothing",
        group=_CLIENTS,
    )
    trust_graphs: bool = setting(False, Switch(), "let clients use any op", group=_CLIENTS)
    allow_model_changes: bool = setting(
        False,
        Switch(),
        "let clients load and unload models, extend and delete the sessions of graphs, and change variables, tables "
        "and queues of both",
        group=_CLIENTS,
    )

    token_file: str | Path | None = setting(
        None,
        FilePath(),
        "TOML file of tokens; each request needs one of them. `aexec token NAME` makes a token and its line. The "
        "server reads the file again when it changes",
        group=_ACCESS,
        none=("none", "requests need no token"),
    )
    tokens: str | None = setting(
        None,
        Text("TOML", "TOML"),
        "tokens as TOML text, in place of the file or in addition to it",
        group=_ACCESS,
        none=("none", "none"),
        secret=True,
    )
    insecure_no_auth: bool = setting(
        False,
        Switch(),
        "listen on an address that other machines reach, although clients need neither tokens nor certificates",
        group=_ACCESS,
    )
    open_metrics: bool = setting(
        False, Switch(), "answer requests for metrics without a token, as requests for health", group=_ACCESS
    )
    jwt_keys: str | Path | None = setting(
        None,
        FileOrUrl("FILE|URL"),
        "JSON Web Key Set with the public keys of an identity provider, whose JWTs are taken as tokens besides those "
        "of the server's own. A URL is read again from time to time, a file when it changes. Needs aexec[jwt], "
        "jwt_issuer and jwt_audiences",
        group=_ACCESS,
        none=("none", "no JWTs"),
    )
    jwt_issuer: str | None = setting(
        None,
        Text("a name, usually a URL"),
        "issuer (claim iss) of the JWTs that are taken",
        group=_ACCESS,
        none=("none", "no JWTs"),
    )
    jwt_audiences: Collection[str] = setting(
        (), Names("names"), "audiences (claim aud), one of which a JWT must have", group=_ACCESS, flag="--jwt-audience"
    )
    jwt_algorithms: Collection[str] = setting(
        ("RS256", "PS256", "ES256", "EdDSA"),
        Names("names of asymmetric algorithms"),
        "algorithms of the signatures of JWTs",
        group=_ACCESS,
    )
    jwt_leeway_seconds: float = setting(
        30.0,
        Seconds(zero=True),
        "how far the clocks of the identity provider and of this machine may be apart",
        group=_ACCESS,
        name="jwt_leeway",
    )
    jwt_refresh_seconds: float = setting(
        300.0,
        Seconds(),
        "time between two fetches of the keys from a URL; they are also fetched when a JWT names an unknown key, at "
        "most every 10 s, and not used any more after 12 times this time without success",
        group=_ACCESS,
        name="jwt_refresh",
    )
    jwt_scope_claim: str = setting(
        "scope",
        Text("the name of a claim"),
        "claim with the scopes of a JWT: a text with spaces, or a list; realm_access.roles is the claim roles in the "
        "claim realm_access",
        group=_ACCESS,
    )
    jwt_scopes: Collection[str] = setting(
        ("aexec:run=run", "aexec:manage=manage", "aexec:admin=admin"),
        Names("VALUE=SCOPE", "VALUE=SCOPE,…"),
        "scope that a value of that claim grants: run, manage or admin; a JWT without any of the values may do nothing",
        group=_ACCESS,
    )
    tls_cert: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of the server's certificate, followed by those of its issuers; the server reads it again when it "
        "changes",
        group=_ACCESS,
        none=("none", "no TLS"),
    )
    tls_key: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of the private key of --tls-cert, without a password",
        group=_ACCESS,
        none=("none", "no TLS"),
    )
    tls_client_ca: str | Path | None = setting(
        None,
        FilePath(),
        "PEM file of the authority that signs the certificates of clients; clients without a certificate are refused",
        group=_ACCESS,
        none=("none", "clients need no certificate"),
    )
    allowed_hosts: Collection[str] = setting(
        (),
        Names("names of hosts, or *"),
        "names by which clients may call the server, besides localhost, the address to listen on and any IP address; "
        "* allows every name. Without tokens other names are refused",
        group=_ACCESS,
        flag="--allowed-host",
    )
    trusted_proxies: Collection[str] = setting(
        (),
        Names("addresses and networks", "CIDR,…"),
        "reverse proxies, such as 10.0.0.0/8, whose header X-Forwarded-For gives the address of the client; the "
        "server then counts their clients one by one",
        group=_ACCESS,
    )
    cors_origins: Collection[str] = setting(
        (),
        Names("origins, or *", "ORIGIN,…"),
        "origins, such as https://example.org, whose pages may use the server from a browser; * allows every origin",
        group=_ACCESS,
        flag="--cors-origin",
    )

    hosts: int | None = setting(
        0,
        Count(0, words={"per-core": num_processors()}),
        "number of processes for the sessions of clients, which the server watches and replaces; all sessions share "
        "them. per-core: one for each processor; auto: one for each session as far as memory allows, and never one "
        "for two clients; 0: sessions are in the process that clients connect to",
        group=_HOSTS,
        none=("auto", "one for each session"),
    )
    max_host_bytes: int | None = setting(
        None,
        Megabytes(),
        "largest resident memory of a host; a host that has more is ended",
        group=_HOSTS,
        name="max_host_mb",
        none=("auto", "an equal part of 80 % of the machine's memory; with auto half of it"),
    )
    host_silence_seconds: float = setting(
        1.0, Seconds(), "a host that does not answer for this long is ended", group=_HOSTS, name="host_silence"
    )
    models_in_front: bool = setting(
        False,
        Switch(),
        "with hosts: keep graphs and models in the process that clients connect to, instead of in a process of their "
        "own",
        group=_HOSTS,
    )

    log_level: str = setting(
        "info",
        Choice("debug", "info", "warning", "error"),
        "lowest level of the lines that are logged",
        group=_OPERATION,
    )
    kernel_samples: int | None = setting(
        None,
        Count(),
        "trace one of N runs for aexec_kernel_duration_seconds in the metrics, in addition to runs that ask for a "
        "trace; a traced run takes longer",
        group=_OPERATION,
        none=("none", "only runs that ask to be traced"),
    )
    log_format: str = setting(
        "text", Choice("text", "json"), "format of log lines; json: one object per line", group=_OPERATION
    )
    print_rate: int = setting(
        16_384,
        Count(),
        "most bytes that the graphs of a session may print to the log in a second; a line says how many more were "
        "dropped",
        group=_OPERATION,
    )
    access_log: bool = setting(False, Switch(), "log every request", group=_OPERATION)
    step_log: bool = setting(
        False,
        Switch(),
        "log every run: its id, session, trace, duration and outcome, but no values",
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
        "after a signal to stop, how long the server still accepts everything while it reports that it is not ready, "
        "so that balancers turn away",
        group=_OPERATION,
        name="unready",
    )
    drain_seconds: float = setting(
        10.0,
        Seconds(zero=True),
        "after that, how long runs may go on; the process ends at most five seconds later, whatever still runs",
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
                f"max_buffered_bytes must be at least max_body_bytes, got {self.max_buffered_bytes}"
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
        _ = self.jwt_rules
        if self.delegates is not None:
            aexec.SessionConfig(delegates=self.delegates)

    @property
    def has_tokens(self) -> bool:
        """True if this process checks tokens itself."""
        return self.token_file is not None or self.tokens is not None or self.jwt_keys is not None

    @property
    def jwt_rules(self) -> JwtRules | None:
        """Which JWTs are taken; None if none are.  Raises InvalidArgumentError if the settings do not go together."""
        return jwt_rules(
            None if self.jwt_keys is None else str(self.jwt_keys),
            self.jwt_issuer,
            self.jwt_audiences,
            self.jwt_algorithms,
            self.jwt_leeway_seconds,
            self.jwt_refresh_seconds,
            self.jwt_scope_claim,
            self.jwt_scopes,
        )

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
