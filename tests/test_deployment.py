"""The recipes in scripts/deploy: what they name exists, and their times and addresses fit together."""

from __future__ import annotations

import argparse
import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aexec_server import SERVER, ServerConfig, make_app
from aexec_server.app import route_table
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.settings.setting_sources import add_setting_flags, read_settings
from aexec_server.settings.settings import settings_of
from aexec_server.watching.metrics import FAMILIES, CancelCause

from aexec.errors import Code
from tests.support.server_process import ServerProcess

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "scripts" / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
# Seconds by which a process may outlast the times that it is given, and those that a recipe adds.
GRACE = 5


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def config_of(path: Path, *flags: str) -> ServerConfig:
    """The settings of a file and flags, as `aexec serve` reads them."""
    parser = argparse.ArgumentParser()
    add_setting_flags(parser)
    return ServerConfig(**read_settings(parser.parse_args(["--config", str(path), *flags]), {}).values)


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(s|min|)", text).groups()  # type: ignore[union-attr]
    return int(number) * (60 if unit == "min" else 1)


def stopping(config: ServerConfig) -> float:
    return config.unready_seconds + config.drain_seconds + GRACE


# Metrics


def expressions() -> Iterator[tuple[str, str]]:
    """(where, expression) of everything that asks Prometheus, with variables filled in."""
    for panel in json.loads((DEPLOY / "grafana" / "aexec.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
            yield f"{panel['title']} {target['refId']}", text
    for group in load(DEPLOY / "prometheus" / "alerts.yml")["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for rule in load(KUBERNETES / "prometheus-adapter.yaml")["rules"]:
        yield "adapter", rule["seriesQuery"]
        yield "adapter", rule["metricsQuery"].replace("<<.LabelMatchers>>", 'pod="x"').replace("<<.GroupBy>>", "pod")


EXPRESSIONS = [pytest.param(text, id=where) for where, text in expressions()]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the series of a server with session hosts and gRPC."""
    server = ServerProcess(tmp_path_factory.mktemp("server"), watch=False, hosts="1", grpc_port=0)
    try:
        page = server.call("GET", "/metrics").body.decode()
    finally:
        server.stop()
    found = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", page, re.M):
        found |= {f"{name}_{end}" for end in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return found


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expression_is_promql_and_names_series_of_the_server(text: str, series: set[str]) -> None:
    named = set(re.findall(r"\b(?:aexec|process)_\w+", text))
    assert named <= series
    assert named or "up{" in text
    promql_parser = pytest.importorskip("promql_parser")
    promql_parser.parse(text)


# Labels that Prometheus and its adapter add.
ADDED = {"instance", "job", "pod", "namespace", "le"}
VALUES = {
    "code": {code.name for code in Code},
    "reason": {value for name, value in vars(CancelCause).items() if name.isupper()},
    "kind": {"in_use", "limit"},
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expression_selects_by_labels_and_values_that_exist(text: str) -> None:
    for name, matchers in re.findall(r"\b(aexec_\w+)\{([^}]*)\}", text):
        family = FAMILIES.get(re.sub(r"_(total|bucket|sum|count)$", "", name)) or FAMILIES[name]
        for label, values in re.findall(r'(\w+)\s*(?:=~|!=|=)\s*"([^"]*)"', matchers):
            assert label in {*family.labels, *ADDED}, (name, label)
            assert label in ADDED or set(values.split("|")) <= VALUES[label], (name, label, values)
    for labels in re.findall(r"\bby \(([^)]*)\)", text):
        known = {label for family in FAMILIES.values() for label in family.labels} | ADDED
        assert {label.strip() for label in labels.split(",")} <= known


def test_each_metric_of_the_server_is_on_the_dashboard() -> None:
    dashboard = (DEPLOY / "grafana" / "aexec.json").read_text("utf-8")
    assert [name for name in FAMILIES if name not in dashboard] == []


def test_dashboard_has_a_place_for_each_panel() -> None:
    panels = json.loads((DEPLOY / "grafana" / "aexec.json").read_text("utf-8"))["panels"]
    taken = [(p["gridPos"]["y"] // 8, x) for p in panels for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + 8)]
    assert len(taken) == len(set(taken)) and len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"] for panel in panels)


def test_alerts_say_what_is_wrong() -> None:
    rules = [rule for group in load(DEPLOY / "prometheus" / "alerts.yml")["groups"] for rule in group["rules"]]
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        # Labels that an expression has summed away cannot be named.
        kept = re.search(r"sum by \((\w+)", rule["expr"])
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named and (kept is None or named == {kept[1]})


# Kubernetes


def documents(path: Path) -> dict[str, Any]:
    """The documents of a folder's manifests, by kind."""
    found = [load(file) for file in sorted(path.glob("*.yaml"))]
    return {one["kind"]: one for one in found}


@pytest.fixture
def base() -> dict[str, Any]:
    return documents(KUBERNETES / "base")


@pytest.fixture(scope="module")
def routes() -> dict[str, Route]:
    app = make_app(ServerConfig())
    return {route.path: route for route in route_table(app[SERVER]) if route.method == "GET"}


def pod(deployment: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def test_probes_ask_what_needs_no_token(base: dict[str, Any], routes: dict[str, Route]) -> None:
    _, container = pod(base["Deployment"])
    (port,) = container["ports"]
    assert port["containerPort"] == ServerConfig().port
    paths = {}
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[kind]["httpGet"]
        assert asked["port"] == port["name"]
        assert routes[asked["path"]].scope is Scope.OPEN
        paths[kind] = asked["path"]
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    (service,) = base["Service"]["spec"]["ports"]
    assert service["targetPort"] == port["name"] and service["port"] == port["containerPort"]
    told = base["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert told["prometheus.io/port"] == str(port["containerPort"]) and told["prometheus.io/path"] in routes


def test_pod_has_the_time_that_the_server_takes_to_stop(base: dict[str, Any]) -> None:
    spec, container = pod(base["Deployment"])
    config = config_of(KUBERNETES / "base" / "aexec.toml", *container["args"])
    assert spec["terminationGracePeriodSeconds"] > stopping(config)
    probe = container["readinessProbe"]
    assert config.unready_seconds >= 2 * probe["periodSeconds"] * probe["failureThreshold"]


def test_pod_has_the_files_that_its_settings_name(base: dict[str, Any]) -> None:
    spec, container = pod(base["Deployment"])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert sorted(mounts.values()) == sorted(volumes)
    config = config_of(KUBERNETES / "base" / "aexec.toml")
    assert config.open_metrics
    assert volumes[mounts[str(Path(str(config.token_file)).parent)]]["secret"]["secretName"] == "aexec-tokens"
    (variable,) = container["env"]
    (generated,) = load(KUBERNETES / "base" / "kustomization.yaml")["configMapGenerator"]
    assert variable["name"] == "AEXEC_SERVE_CONFIG"
    assert Path(variable["value"]).name in generated["files"]
    assert volumes[mounts[str(Path(variable["value"]).parent)]]["configMap"]["name"] == generated["name"]
    assert spec["enableServiceLinks"] is False
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert f"--uid {spec['securityContext']['runAsUser']} " in (DEPLOY / "Dockerfile").read_text("utf-8")


def test_autoscaler_asks_for_the_metric_that_the_adapter_makes(base: dict[str, Any]) -> None:
    scaler = base["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == base["Deployment"]["metadata"]["name"]
    (rule,) = load(KUBERNETES / "prometheus-adapter.yaml")["rules"]
    (asked,) = [metric["pods"] for metric in scaler["metrics"] if metric["type"] == "Pods"]
    assert asked["metric"]["name"] == rule["name"]["as"]
    most = asked["target"]["averageValue"]
    assert most.endswith("m") and int(most[:-1]) / 1000 < ServerConfig().queue_seconds
    assert "replicas" not in base["Deployment"]["spec"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="asks kubectl")
def test_overlay_is_built() -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / "overlays" / "production")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    by_kind = {one["kind"]: one for one in yaml.safe_load_all(built.stdout)}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert by_kind["Service"]["spec"]["selector"] == labels
    assert by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert by_kind["HorizontalPodAutoscaler"]["spec"]["minReplicas"] > 1
    spec, container = pod(by_kind["Deployment"])
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels
    assert container["resources"]["limits"]["memory"] == "8Gi" and container["readinessProbe"]
    mounted = {volume["name"]: volume for volume in spec["volumes"]}
    assert mounted["config"]["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
    assert {one["metadata"].get("namespace", "aexec") for one in by_kind.values()} == {"aexec"}


# A container, and compose


def test_container_listens_where_it_says() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert f"EXPOSE {ServerConfig().port}" in text and f":{ServerConfig().port}/livez" in text
    known = {one.variable for one in settings_of(ServerConfig).values()} | {"AEXEC_SERVE_CONFIG"}
    assert set(re.findall(r"AEXEC_SERVE_\w+", text)) <= known


def test_compose_file_fits_its_files() -> None:
    folder = DEPLOY / "compose"
    services = load(folder / "compose.yaml")["services"]
    server = services["aexec"]
    config = config_of(folder / "config" / "aexec.toml", *server["command"])
    assert seconds(server["stop_grace_period"]) > stopping(config)
    assert config.open_metrics and Path(str(config.token_file)).parent == folder / "config"
    assert server["ports"] == [f"127.0.0.1:{config.port}:{config.port}"]
    assert (folder / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    for service in services.values():
        for volume in service["volumes"]:
            here = folder / volume.partition(":")[0]
            assert here.exists(), volume
            assert volume.endswith(":ro")
    assert "/etc/aexec/aexec.toml" in (DEPLOY / "Dockerfile").read_text("utf-8")
    scraped = load(DEPLOY / "prometheus" / "prometheus.yml")
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"aexec:{config.port}"]}]
    assert 'up{job="aexec"}' in (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
    assert job["job_name"] == "aexec" and scraped["rule_files"] == ["alerts.yml"]


# systemd


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd" / name).read_text("utf-8"))
    return parser


def test_service_is_given_the_time_that_it_takes(tmp_path: Path) -> None:
    service = unit("aexec.service")["Service"]
    program, command, *flags = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("aexec", "serve")
    given = flags.index("--config")
    assert flags[given + 1] == "/etc/aexec/aexec.toml"
    del flags[given : given + 2]
    (tmp_path / "aexec.toml").touch()
    config = config_of(tmp_path / "aexec.toml", *flags)
    assert seconds(service["TimeoutStopSec"]) > stopping(config)
    assert not config.reuse_port and config.unready_seconds
    assert service["Type"] == "notify" and service["ExecReload"].endswith("-HUP $MAINPID")
    assert unit("aexec.socket")["Socket"]["ListenStream"] == f"{config.host}:{config.port}"
    assert unit("aexec.service")["Unit"]["Requires"] == "aexec.socket"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="asks systemd")
def test_units_are_verified(tmp_path: Path) -> None:
    program = tmp_path / "aexec"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    for name in ("aexec.service", "aexec.socket"):
        text = (DEPLOY / "systemd" / name).read_text("utf-8").replace("/opt/aexec/bin/aexec", str(program))
        (tmp_path / name).write_text(text)
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "aexec.service"), str(tmp_path / "aexec.socket")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0 and "aexec" not in told.stderr, told.stderr
