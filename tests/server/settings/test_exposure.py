"""`check_exposure`: which servers may start, by where they listen, where their cluster is, and who is known there.

The table of docs/security.md: HTTP and the cluster are looked at each for itself, and both have to be in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aexec_server
import pytest
import trustme
from aexec_server import ServerConfig
from aexec_server.settings.exposure import check_exposure
from aexec_server.watching import server_log

from aexec import cli, errors
from aexec.distributed.cluster_security import ClusterSecurity
from aexec.distributed.cluster_target import check_cluster
from aexec.framework.loopback import is_loopback

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

LOOPBACK = ("127.0.0.1", "127.8.0.1", "::1", "localhost")
PRIVATE = ("10.0.0.5", "192.168.1.2", "fd00::5")
PUBLIC = ("0.0.0.0", "::", "8.8.8.8", "models.example")
REQUIRE, CA, CERT, KEY = (
    f"distributed.comm.{key}" for key in ("require-encryption", "tls.ca-file", "tls.client.cert", "tls.client.key")
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """PEM files of an authority, and a certificate of it with its key."""
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    leaf = authority.issue_cert("127.0.0.1")
    made = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key", "both")}
    authority.cert_pem.write_to_path(made["ca"])
    leaf.cert_chain_pems[0].write_to_path(made["cert"])
    leaf.private_key_pem.write_to_path(made["key"])
    leaf.private_key_and_cert_chain_pem.write_to_path(made["both"])
    return made


def url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


Settings = tuple[dict[str, Any], dict[str, Any]]
# How TLS is set up for the cluster: settings of the server's, and of Dask's; and is it?
TLS: dict[str, tuple[bool, Callable[[dict[str, str]], Settings]]] = {
    "none": (False, lambda files: ({}, {})),
    "flags": (
        True,
        lambda files: (
            {"cluster_ca": files["ca"], "cluster_cert": files["cert"], "cluster_key": files["key"]},
            {},
        ),
    ),
    "flags, one file": (True, lambda files: ({"cluster_ca": files["ca"], "cluster_cert": files["both"]}, {})),
    "dask": (True, lambda files: ({}, {REQUIRE: True, CA: files["ca"], CERT: files["cert"], KEY: files["key"]})),
    "dask does not require it": (
        False,
        lambda files: ({}, {CA: files["ca"], CERT: files["cert"], KEY: files["key"]}),
    ),
}
HTTP: dict[str, dict[str, Any]] = {
    "none": {},
    "tokens": {"token_file": "tokens.toml"},
    "certificates": {"tls_cert": "c", "tls_key": "k", "tls_client_ca": "ca"},
    "meant": {"insecure_no_auth": True},
}


def starts(config: ServerConfig) -> bool:
    try:
        check_exposure(config)
    except errors.FailedPreconditionError:
        return False
    return True


@pytest.mark.parametrize("tls", TLS)
def test_cluster_starts_on_loopback_or_by_tls(tls: str, files: dict[str, str]) -> None:
    """Where HTTP listens × whom it knows × where the cluster is × whether TLS is set up for it."""
    by_tls, settings = TLS[tls]
    given, of_dask = settings(files)
    hosts = LOOPBACK[:1] + PRIVATE[:1] + PUBLIC[:1]
    with dask.config.set(of_dask):
        for host, known, at in itertools.product(hosts, HTTP, LOOPBACK + PRIVATE + PUBLIC):
            config = ServerConfig(host=host, cluster=f"dask://{url(at)}:8786", **HTTP[known], **given)
            http_may = host in LOOPBACK or known != "none"
            assert starts(config) == (http_may and (at in LOOPBACK or by_tls)), (host, known, at)


@pytest.mark.parametrize("cluster", [None, "dask://", "memory://here"])
def test_loopback_and_memory_clusters_need_no_tls(cluster: str | None) -> None:
    """One of its own is on loopback, or in the process."""
    assert starts(ServerConfig(cluster=cluster))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "models.example"])
def test_refusal_names_the_settings_for_http(host: str) -> None:
    with pytest.raises(errors.FailedPreconditionError, match=r"--token-file.*--tls-client-ca.*--insecure-no-auth"):
        check_exposure(ServerConfig(host=host))


def test_refusal_names_the_settings_for_the_cluster(files: dict[str, str]) -> None:
    config = ServerConfig(cluster="dask://10.0.0.5:8786")
    with pytest.raises(errors.FailedPreconditionError) as caught:
        check_exposure(config)
    words = caught.value.message
    assert "tcp://10.0.0.5:8786" in words and "--cluster-ca, --cluster-cert and --cluster-key" in words
    for key in (REQUIRE, CA, CERT, KEY):
        assert key in words
    assert "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT" in words
    with dask.config.set({REQUIRE: True, CA: files["ca"]}), pytest.raises(errors.FailedPreconditionError) as caught:
        check_exposure(config)
    words = caught.value.message
    assert CERT in words and CA not in words and REQUIRE not in words, "what is set is not asked for"


@pytest.mark.parametrize("name", ["cluster_ca", "cluster_cert", "cluster_key"])
def test_file_that_cannot_be_used_is_refused(name: str, files: dict[str, str], tmp_path: Path) -> None:
    given = {"cluster_ca": files["ca"], "cluster_cert": files["cert"], "cluster_key": files["key"]}
    (tmp_path / "empty.pem").write_bytes(b"")
    for wrong in (str(tmp_path / "missing.pem"), str(tmp_path / "empty.pem")):
        with pytest.raises(errors.FailedPreconditionError, match=r"cannot be used.*" + wrong):
            check_exposure(ServerConfig(cluster="dask://127.0.0.1:8786", **given | {name: wrong}))


@pytest.mark.parametrize(
    "settings",
    [
        {"cluster": "dask://h:1", "cluster_ca": "ca"},
        {"cluster": "dask://h:1", "cluster_cert": "c"},
        {"cluster": "dask://h:1", "cluster_key": "k"},
        {"cluster_ca": "ca", "cluster_cert": "c"},
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="cluster"):
        ServerConfig(**settings)


def test_program_connects_as_dask_says(files: dict[str, str]) -> None:
    """TLS is required of servers; what a program is to require, it says."""
    assert not check_cluster("dask://10.0.0.5:8786", ClusterSecurity())
    assert check_cluster("dask://10.0.0.5:8786", ClusterSecurity(files["ca"], files["both"]))
    with pytest.raises(errors.NotFoundError, match="No cluster is known"):
        check_cluster("nonsense://x", ClusterSecurity())


def test_command_refuses_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--cluster", "dask://10.0.0.5:8786", "--port", "0"]) == 19
    assert "--cluster-ca" in capsys.readouterr().err


@pytest.mark.parametrize("tls", ["none", "flags"])
def test_line_at_the_start_says_how_the_cluster_is_reached(
    tls: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aexec_server, "serve", lambda config, on_ready: on_ready("http://127.0.0.1:8500"))
    monkeypatch.setattr(server_log, "begin_log", lambda level, form: None)
    given = TLS[tls][1](files)[0]
    flags = [part for name, file in given.items() for part in (f"--{name.replace('_', '-')}", file)]
    assert cli.main(["serve", "--cluster", "dask://127.0.0.1:8786", *flags]) == 0
    how = "by TLS" if given else "without TLS, on loopback"
    assert f"; cluster dask://127.0.0.1:8786, {how}; Ctrl-C stops it" in capsys.readouterr().out


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, LOOPBACK))
    assert not any(map(is_loopback, (*PRIVATE, *PUBLIC, "", "localhost.example")))
