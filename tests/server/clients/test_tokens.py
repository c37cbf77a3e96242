"""The file of tokens, and who is recognised by it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from aexec_server import ServerConfig
from aexec_server.clients.callers import Caller, Quotas, Refusal, Scope
from aexec_server.clients.token_source import TokenSource
from aexec_server.clients.tokens import TokenTable, new_token, read_tokens

from aexec import errors

DIGEST = "ab" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def line(name: str, digest: str, scopes: str = '"run"', more: str = "") -> str:
    return f'{name} = {{sha256 = "{digest}", scopes = [{scopes}]{more}}}\n'


def test_token_is_random_and_known_by_its_digest() -> None:
    token, digest = new_token()
    assert token != new_token()[0] and len(token) > 43 and digest == hashlib.sha256(token.encode()).hexdigest()
    table = TokenTable(read_tokens(line("alice", digest, '"run", "manage"', ", max_runs = 3"), "f"), Clock())
    alice = Caller("alice", frozenset((Scope.RUN, Scope.MANAGE)), Quotas(runs=3))
    assert table.identify(f"Bearer {token}") == table.identify(f"bearer  {token}") == alice


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {}x", "Bearer {} {}", "Bearer x{}", "Bearer {}, Bearer {}"],
)
def test_malformed_token_is_refused(header: str) -> None:
    token, digest = new_token()
    table = TokenTable(read_tokens(line("alice", digest), "f"), Clock())
    assert table.identify(header.format(token, token)) == Refusal(token_given=True)
    assert table.identify(None) == Refusal(token_given=False)


def test_name_may_have_several_tokens() -> None:
    (one, first), (two, second) = new_token(), new_token()
    text = f'alice = {{sha256 = ["{first}", "{second}"], scopes = ["run"]}}'
    table = TokenTable(read_tokens(text, "f"), Clock())
    assert table.identify(f"Bearer {one}") == table.identify(f"Bearer {two}") == Caller("alice", frozenset([Scope.RUN]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b", "no TOML"),
        ("alice = 1", "alice: expected"),
        ('"a b" = {}', "a name is"),
        ("alice = {scopes = ['run']}", "sha256 must be 64"),
        ("alice = {sha256 = 'SECRET', scopes = ['run']}", "sha256 must be 64"),
        (f"alice = {{sha256 = '{DIGEST}'}}", "scopes must be"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = []}}", "scopes must be"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = ['open']}}", "scopes must be"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = ['run'], rates = 1}}", "'rates' is none of"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = ['run'], rate = 0}}", "rate must be positive"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = ['run'], rate = nan}}", "rate must be positive"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = ['run'], rate = true}}", "rate must be a number"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = ['run'], max_runs = 1.5}}", "max_runs must be a whole number"),
        (f"alice = {{sha256 = '{DIGEST}', scopes = ['run'], burst = 5}}", "burst must be at least 1, and needs a rate"),
        (line("alice", DIGEST) + line("bob", DIGEST), "same token twice"),
    ],
)
def test_wrong_files_are_refused_without_their_values(text: str, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words) as error:
        read_tokens(text, "f")
    assert "SECRET" not in str(error.value) and DIGEST not in str(error.value)


def test_rates() -> None:
    token, digest = new_token()
    clock = Clock()
    text = line("alice", digest, more=", rate = 2, burst = 3")
    table = TokenTable(read_tokens(text, "f"), clock)

    def admitted() -> bool:
        return isinstance(table.identify(f"Bearer {token}"), Caller)

    assert [admitted() for _ in range(4)] == [True, True, True, False]
    clock.now += 0.25
    assert table.identify(f"Bearer {token}") == Refusal(token_given=True, retry_after=1)
    clock.now += 0.25
    table.replace(read_tokens(text, "f"))  # no new start for who has asked too often
    assert [admitted() for _ in range(2)] == [True, False]
    clock.now += 1000
    assert [admitted() for _ in range(4)] == [True, True, True, False]


def test_digests_are_never_shown() -> None:
    _, digest = new_token()
    tokens = read_tokens(line("alice", digest), "f")
    shown = repr(tokens) + repr(TokenTable(tokens, Clock())) + repr(ServerConfig(tokens=line("alice", digest)))
    assert bytes.fromhex(digest).hex() not in shown and repr(bytes.fromhex(digest)) not in shown
    assert "alice" in repr(TokenTable(tokens, Clock()))
    with pytest.raises(errors.InvalidArgumentError) as error:
        ServerConfig(tokens=5)  # type: ignore[arg-type]
    assert "5" not in str(error.value)


async def test_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (one, first), (two, second) = new_token(), new_token()
    path = tmp_path / "tokens.toml"

    def write(text: str) -> None:
        path.write_text(text)
        path.chmod(0o600)
        os.utime(path, ns=(0, len(text)))

    await asyncio.to_thread(write, line("alice", first))
    source = await asyncio.to_thread(lambda: TokenSource(ServerConfig(token_file=path)))
    for text in ("no TOML at all", line("bob", second)):  # as it was, while the file is wrong
        assert isinstance(source.table.identify(f"Bearer {one}"), Caller)
        await asyncio.to_thread(write, text)
        await source.reload_if_changed()
    assert "tokens stay as they were" in caplog.text and "chmod" not in caplog.text
    assert source.table.identify(f"Bearer {one}") == Refusal(token_given=True)
    assert isinstance(source.table.identify(f"Bearer {two}"), Caller)


@pytest.mark.skipif(os.name == "nt", reason="permissions of another kind")
def test_file_that_others_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(line("alice", DIGEST))
    path.chmod(0o644)
    TokenSource(ServerConfig(token_file=path))
    assert f"chmod 600 {path}" in caplog.text and DIGEST not in caplog.text


def test_sources_that_give_no_tokens(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="No such file"):
        TokenSource(ServerConfig(token_file=tmp_path / "none"))
    with pytest.raises(errors.InvalidArgumentError, match="neither the file nor the setting has a token"):
        TokenSource(ServerConfig(tokens="# none yet"))
    path = tmp_path / "tokens.toml"
    path.write_text(line("alice", DIGEST))
    path.chmod(0o600)
    with pytest.raises(errors.InvalidArgumentError, match="in both the file and the setting"):
        TokenSource(ServerConfig(token_file=path, tokens=line("alice", "cd" * 32)))
