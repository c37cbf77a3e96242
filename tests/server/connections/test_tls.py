"""TLS: certificates of the server and of clients, and sessions in a server that wants tokens."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aexec_server import ServerConfig, run_server
from aexec_server.clients.tokens import new_token_line
from aexec_server.connections.tls import ServerTls

import aexec
from aexec import errors
from tests.server.sessions.test_model_changes import model


class Authority:
    """Somebody who signs certificates, and the files of a server's."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.folder = folder
        self.ca, self.cert, self.key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue()

    def issue(self) -> bytes:
        """A new certificate; returns it as connections tell it."""
        leaf = self.authority.issue_cert("127.0.0.1")
        leaf.cert_chain_pems[0].write_to_path(self.cert)
        leaf.private_key_pem.write_to_path(self.key)
        return ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(config: ServerConfig) -> AsyncIterator[str]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(run_server(config, on_ready=address.set_result))
    await asyncio.wait([server, address], return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        await server
    try:
        yield address.result()
    finally:
        server.cancel()
        await asyncio.wait([server])


async def shown(url: str, context: ssl.SSLContext) -> bytes:
    """The certificate that the server shows."""
    host, port = url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(shown, bytes)
        return shown
    finally:
        writer.close()
        await writer.wait_closed()


async def test_session_by_tls_with_a_token(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    token, line = new_token_line("alice", ["run", "manage"], {})
    config = ServerConfig(port=0, tls_cert=authority.cert, tls_key=authority.key, tokens=line, graphs={"m": model()})
    async with serving(config) as url:
        assert url.startswith("https://127.0.0.1:")
        with pytest.raises(errors.UnavailableError, match=r"(?i)certificate"):
            async with aexec.connect(url, model(), token=token):
                pass
        with pytest.raises(errors.UnauthenticatedError, match="wants a token"):
            async with aexec.connect(url, model(), ca=authority.ca):
                pass
        with pytest.raises(errors.UnauthenticatedError, match="none that this server knows"):
            async with aexec.connect(url, model(), ca=authority.ca, token="aexec_other"):
                pass
        monkeypatch.setenv("AEXEC_TOKEN", token)
        async with aexec.connect(url, model(), ca=authority.ca) as session:
            assert (await session.run("shape:0")).tolist() == [2] and token not in repr(session)
        old = ssl.create_default_context(cafile=authority.ca)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
        await shown(url, old)


async def test_clients_need_certificates(authority: Authority) -> None:
    config = ServerConfig(port=0, tls_cert=authority.cert, tls_key=authority.key, tls_client_ca=authority.ca)
    async with serving(config) as url:
        with pytest.raises(errors.UnavailableError):
            async with aexec.connect(url, model(), ca=authority.ca):
                pass
        context = ssl.create_default_context(cafile=authority.ca)
        authority.authority.issue_cert("client@x.example").configure_cert(context)
        async with aexec.connect(url, model(), ca=context):
            pass


async def test_certificate_is_read_again(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    tls = await asyncio.to_thread(ServerTls, ServerConfig(tls_cert=authority.cert, tls_key=authority.key))
    client = await asyncio.to_thread(lambda: ssl.create_default_context(cafile=authority.ca))
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls.context)
    async with listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        new = await asyncio.to_thread(authority.issue)
        key = await asyncio.to_thread(Path(authority.key).read_bytes)
        await asyncio.to_thread(Path(authority.key).write_text, "no key")
        await tls.reload()
        assert "the certificate stays as it was" in caplog.text
        assert await shown(url, client) != new
        await asyncio.to_thread(Path(authority.key).write_bytes, key)
        await tls.reload()
        assert await shown(url, client) == new


@pytest.mark.parametrize(("file", "text"), [("cert", "no certificate"), ("key", None), ("client_ca", "none")])
def test_files_that_are_wrong(authority: Authority, file: str, text: str | None) -> None:
    path = authority.folder / "wrong.pem"
    if text is not None:
        path.write_text(text)
    files = {"tls_cert": authority.cert, "tls_key": authority.key, "tls_client_ca": authority.ca, f"tls_{file}": path}
    with pytest.raises(errors.InvalidArgumentError, match=r"wrong\.pem"):
        ServerTls(ServerConfig(**files))


def test_malformed_token_and_missing_file_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="letters, digits") as error:
        aexec.connect("https://x", model(), token="SECRET\r\nX: y")
    assert "SECRET" not in str(error.value)
    with pytest.raises(errors.InvalidArgumentError, match=f"none{os.extsep}pem"):
        aexec.connect("https://x", model(), ca="none.pem")
