"""Settings: one description of each, from which flags, variables, files and the page come."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.settings.model_source import Batching, ModelSource
from aexec_server.settings.setting_sources import GivenSettings, add_setting_flags, read_settings
from aexec_server.settings.settings import SettingError, settings_of
from aexec_server.settings.settings_page import settings_tables

from aexec import cli, errors

ROOT = Path(__file__).parent.parent.parent.parent
SETTINGS = settings_of(ServerConfig)


def given(*flags: str, environment: Mapping[str, str] | None = None, file: Path | None = None) -> GivenSettings:
    parser = argparse.ArgumentParser()
    add_setting_flags(parser)
    config = ["--config", str(file)] if file else []
    return read_settings(parser.parse_args([*flags, *config]), environment or {})


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "aexec.toml"
        path.write_text(text, "utf-8")
        return path

    return write


def test_every_field_is_a_setting() -> None:
    described = {one.field for one in SETTINGS.values()}
    assert {field.name for field in dataclasses.fields(ServerConfig)} - described == {
        "caller_key",
        "clock",
        "handle_prefix",
        "server_run",
        "front_has_tokens",
    }


def test_page_has_every_setting() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert page.partition("<!-- settings -->\n\n")[2] == settings_tables(), (
        "run python -m aexec_server.settings.settings_page"
    )


def test_defaults_are_values_and_described() -> None:
    config = ServerConfig()
    for one in SETTINGS.values():
        value = getattr(config, one.field)
        assert one.none_word if value is None else one.kind.check(value), one.name
        assert one.shown_default and one.help and not one.help.endswith("."), one.name


class TestPrecedence:
    def test_flag_environment_file_default(self, written: Any) -> None:
        file = written("port = 1\nmax_runs = 2\nmax_sessions = 3\n")
        environment = {"AEXEC_SERVE_PORT": "10", "AEXEC_SERVE_MAX_RUNS": "20", "HOME": "x", "AEXEC_DEBUG": "1"}
        found = given("--port", "100", environment=environment, file=file)
        assert found.values == {"port": 100, "max_runs": 20, "max_sessions": 3}
        assert found.origins == {"port": "--port", "max_runs": "AEXEC_SERVE_MAX_RUNS", "max_sessions": str(file)}

    def test_file_may_be_named_in_the_environment(self, written: Any) -> None:
        path = written("port = 1")
        assert given(environment={"AEXEC_SERVE_CONFIG": str(path)}).values == {"port": 1}

    def test_switch_can_be_turned_off_again(self, written: Any) -> None:
        file = written("access_log = true\ntrust_graphs = true\n")
        found = given("--no-access-log", environment={"AEXEC_SERVE_TRUST_GRAPHS": "off"}, file=file)
        assert found.values == {"access_log": False, "trust_graphs": False}


def test_description_is_a_file_that_says_the_same(written: Any) -> None:
    model = ModelSource(
        "m", {"image": "x:0"}, {"label": "y:0"}, versions=(1, 3), labels={"stable": 1}, batching=Batching()
    )
    config = ServerConfig(
        port=1,
        graphs={"a b": '/quote"d'},
        models={"m": model, "n": ModelSource("n", versions=None)},
        session_ttl_s=None,
        max_memory_bytes=math.inf,
        max_body_bytes=3 * 2**19,
        queue_seconds=0.001,
        allow_ops=("ReadFile",),
        delegates=(),
        hosts=2,
    )
    text = GivenSettings({}, {}).describe(config)
    path = written(text)
    again = ServerConfig(**given(file=path).values)
    folder = path.parent
    expected = dataclasses.replace(
        config,
        models={name: dataclasses.replace(m, source=str(folder / str(m.source))) for name, m in config.models.items()},
    )
    assert again == expected


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("max_timeout = 2", "max_timeout", 2),
        ("max_timeout = '1.5m'", "max_timeout", 90.0),
        ("max_timeout = 'none'", "max_timeout", None),
        ("session_ttl = 'none'", "session_ttl_s", None),
        ("max_body_mb = 0.5", "max_body_bytes", 2**19),
        ("max_memory_mb = inf", "max_memory_bytes", math.inf),
        ("max_memory_mb = 'auto'", "max_memory_bytes", None),
        ("delegates = 'none'", "delegates", ()),
        ("delegates = 'auto'", "delegates", "auto"),
        ("delegates = ['a', 'b']", "delegates", ("a", "b")),
        ("drain = 0", "drain_seconds", 0),
    ],
)
def test_files(line: str, field: str, value: object, written: Any) -> None:
    assert given(file=written(line)).values == {field: value}


def test_models_of_a_file(written: Any) -> None:
    path = written("graphs = {g = 'g.pb'}\n[models]\na = '/a'\n[models.b]\npath = 'b'\nbatching = {max_rows = 8}\n")
    values = given(file=path).values
    assert values["graphs"] == {"g": str(path.parent / "g.pb")}
    assert values["models"] == {
        "a": ModelSource("/a"),
        "b": ModelSource(str(path.parent / "b"), batching=Batching(max_rows=8)),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 99999", "port: expected a whole number from 0 to 65535, got 99999"),
        ("port = '8500'", "port: expected a whole number from 0 to 65535, got '8500'"),
        ("port = true", "port: expected a whole number from 0 to 65535, got True"),
        ("prot = 1", "there is no setting 'prot'; did you mean 'port'?"),
        ("max_body_mb = nan", "max_body_mb: expected a number of megabytes above 0"),
        ("max_body_mb = inf", "max_body_mb: expected a number of megabytes above 0, got inf"),
        ("max_timeout = '5 parsecs'", "max_timeout: '5 parsecs' is no duration"),
        ("max_timeout = -1", "expected a time above 0, such as 10s or 500ms, or none, got -1"),
        ("access_log = 1", "access_log: expected true or false, got 1"),
        ("allow_ops = 'ReadFile'", "allow_ops: expected names of ops, got 'ReadFile'"),
        ("host = ''", "host: expected an address"),
        ("hosts = 'many'", "hosts: expected a whole number of at least 0, or per-core, or auto, got 'many'"),
        ("graphs = ['a']", "graphs: expected names with paths, got"),
        ("graphs = {a = 1}", "graphs: a: expected a path, got 1"),
        ("models = {a = {pth = 'x'}}", "models: a: there is no setting 'pth'; did you mean 'path'?"),
        ("models = {a = {}}", "models: a: it has no path"),
        ("models = {a = {path = 'x', durable = true}}", "models: a: a served model cannot be durable"),
        ("models = {a = {path = 'x', inputs = 'y'}}", "models: a.inputs: expected names with tensors, got 'y'"),
        (
            "models = {a = {path = 'x', versions = 0}}",
            "models: a.versions: expected a number of versions of at least 1",
        ),
        ("models = {a = {path = 'x', batching = {rows = 1}}}", "a.batching: expected a table with max_rows"),
        ("port = 1\nport = 2", "is no TOML file"),
        ("[port", "is no TOML file"),
    ],
)
def test_files_that_are_wrong(text: str, message: str, written: Any) -> None:
    with pytest.raises(SettingError) as raised:
        given(file=written(text))
    assert message in raised.value.message and "aexec.toml" in raised.value.message


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("AEXEC_SERVE_PROT", "1", "there is no setting 'AEXEC_SERVE_PROT'; did you mean 'AEXEC_SERVE_PORT'?"),
        ("AEXEC_SERVE_PORT", "tcp://10.0.0.1:80", "AEXEC_SERVE_PORT: expected a whole number from 0 to 65535"),
        ("AEXEC_SERVE_ACCESS_LOG", "maybe", "AEXEC_SERVE_ACCESS_LOG: expected true or false, got 'maybe'"),
        ("AEXEC_SERVE_GRAPHS", "a=b,a=c", "AEXEC_SERVE_GRAPHS: the name a is given twice"),
        ("AEXEC_SERVE_MODELS", "a", "AEXEC_SERVE_MODELS: expected NAME=PATH, got 'a'"),
    ],
)
def test_variables_that_are_wrong(variable: str, text: str, message: str) -> None:
    with pytest.raises(SettingError) as raised:
        given(environment={variable: text})
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "99999"], "--port: expected a whole number from 0 to 65535, got 99999"),
        (["--port", "9" * 5000], "--port: expected a whole number"),
        (["--max-runs", "0"], "--max-runs: expected a whole number of at least 1, got 0"),
        (["--min-rate", "x"], "--min-rate: expected a number of bytes above 0, got 'x'"),
        (["--graph", "a=b", "--graph", "a=c"], "--graph: the name a is given twice"),
        (["--model", "a=b", "--model", "a=c"], "--model: the name a is given twice"),
        (["--model", "a=b", "--batch", "a=1,1s", "--batch", "a=2,1s"], "the name a is given twice"),
        (["--model-versions", "2"], "there is no --model for --model-versions 2"),
        (["--model", "a=b", "--model-versions", "few"], "expected a number of versions of at least 1"),
    ],
)
def test_flags_that_are_wrong(flags: list[str], message: str) -> None:
    with pytest.raises(SettingError) as raised:
        given(*flags)
    assert message in raised.value.message and len(raised.value.message) < 500


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("port", 99999, "port: expected a whole number from 0 to 65535, got 99999"),
        ("port", "8500", "port: expected a whole number from 0 to 65535, got '8500'"),
        ("max_runs", True, "max_runs: expected a whole number of at least 1, got True"),
        ("max_body_bytes", 0, "max_body_bytes: expected bytes above 0, got 0"),
        ("max_timeout", 0, "max_timeout: expected seconds above 0 or None, got 0"),
        ("queue_seconds", None, "queue_seconds: expected seconds above 0, got None"),
        ("models", {"m": "path"}, "models: expected names with ModelSources"),
    ],
)
def test_fields_that_are_wrong(field: str, value: object, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        ServerConfig(**{field: value})  # type: ignore[arg-type]
    assert message in raised.value.message


class TestCommand:
    def test_print_config(
        self, capsys: pytest.CaptureFixture[str], written: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AEXEC_SERVE_MAX_RUNS", "7")
        assert cli.main(["serve", "--config", str(written("port = 1")), "--print-config", "--hosts", "0"]) == 0
        printed = capsys.readouterr().out
        for line in ("max_runs = 7  # AEXEC_SERVE_MAX_RUNS", "hosts = 0  # --hosts", 'host = "127.0.0.1"  # default'):
            assert line in printed
        assert "port = 1  # " in printed and "aexec.toml" in printed

    def test_wrong_settings_are_usage_errors(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["serve", "--port", "99999"]) == 2
        assert cli.main(["serve", "--config", "/no/such/file"]) == 15
        assert cli.main(["serve", "--example", "--graph", "example=x"]) == 2
        assert capsys.readouterr().err.count("aexec: ") == 3

    def test_help_has_every_flag(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            cli.main(["serve", "--help"])
        printed = capsys.readouterr().out
        assert [one.flag for one in SETTINGS.values() if f"  {one.flag}" not in printed] == []

    def test_commands_other_than_serve_do_not_import_the_server(self) -> None:
        parser = cli._parser(["run"])
        assert "--port" not in parser.format_help()
