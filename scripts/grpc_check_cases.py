"""The conformance cases by TensorFlow's own client, against a server: `grpc_check_cases.py TARGET`.

Reads names of cases, a line each, and writes a line with the outcome of each: `pass`, `client` if the client itself
refuses what the case is about, or why it failed.  A case is run at the level of `tf.compat.v1.Session`, in a session of
its own; the server's containers are reset after it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.conformance.cases import Case, decode, mismatches

v1 = tf.compat.v1
_TIMEOUT_MS = 10_000
CODES = {getattr(tf.errors, name): name for name in dir(tf.errors) if name.isupper()}


class ClientRefusedError(Exception):
    """TensorFlow's client refuses the graph, or a name, before any server is asked."""


class WrongError(Exception):
    """The case did not go as it should."""


def settings() -> Any:
    """Graph rewriting off, as when the answers were recorded."""
    config = v1.ConfigProto(operation_timeout_in_ms=_TIMEOUT_MS)
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


class CaseRun:
    """One case in one session."""

    def __init__(self, case: Case, target: str, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.graph = tf.Graph()
        self.extend(case.description.get("graph", "graph.pb"))
        self.session = v1.Session(target, graph=self.graph, config=settings())
        self.fetched: dict[int, list[Any]] = {}
        self.groups: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        self.partial: dict[str, Any] = {}
        self.background: dict[int, tuple[threading.Thread, list[Exception]]] = {}

    def extend(self, name: str) -> None:
        """Add a GraphDef to the graph, whose inputs may be nodes that are there."""
        message = v1.GraphDef.FromString(self.case.read(name))
        new = {node.name for node in message.node}
        with self.graph.as_default(), refused_by_client():
            known = {}
            for text in {text for node in message.node for text in node.input}:
                node, _, port = text.removeprefix("^").partition(":")
                if node not in new and not text.startswith("^"):
                    known[text] = self.graph.get_tensor_by_name(f"{node}:{port or 0}")
            tf.import_graph_def(message, name="", input_map=known)

    def steps(self) -> None:
        for number, step in enumerate(self.case.steps):
            if step.get("background"):
                self.begin(number, step)
            else:
                self.step(number, step)
            for joined in step.get("join", ()):
                thread, errors = self.background.pop(joined)
                thread.join(2 * _TIMEOUT_MS / 1000)
                if thread.is_alive() or errors:
                    raise errors[0] if errors else WrongError(f"step {joined} does not end")
        self.check_multisets()

    def begin(self, number: int, step: dict[str, Any]) -> None:
        errors: list[Exception] = []

        def run() -> None:
            try:
                self.step(number, step)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self.background[number] = thread, errors
        thread.start()
        thread.join(0.1)  # let it get as far as it can before the next step

    def step(self, number: int, step: dict[str, Any]) -> None:
        wanted = step.get("error")
        try:
            values = self.run(step)
        except tf.errors.OpError as error:
            check_error(error, wanted, f"step {number}: ")
            return
        if wanted and "OK" not in (*wanted.get("accept", ()), wanted.get("wire_code")):
            raise WrongError(f"step {number} succeeded, expected {wanted['code']}")
        self.fetched[number] = values
        if wanted:
            return
        problems = list(mismatches(self.case, step["expected"], values))
        if problems:
            raise WrongError(f"step {number}: {problems[0]}")
        for entry, value in zip(step["expected"], values, strict=True):
            if entry["compare"] == "multiset":
                self.groups.setdefault(entry.get("group", entry["key"]), []).append((entry, value))

    def run(self, step: dict[str, Any]) -> list[Any]:
        if "extend" in step:
            self.extend(step["extend"])
        with refused_by_client():
            fetches = [self.graph.as_graph_element(self.tensor(name)) for name in step.get("fetches", ())]
            targets = [self.graph.get_operation_by_name(name) for name in step.get("targets", ())]
            feeds = {self.graph.as_graph_element(self.tensor(f["name"])): self.value(f) for f in step.get("feeds", ())}
            if "partial_setup" in step:
                setup = step["partial_setup"]
                named = [[self.graph.get_tensor_by_name(n) for n in setup[kind]] for kind in ("fetches", "feeds")]
                targets = [self.graph.get_operation_by_name(n) for n in setup.get("targets", ())]
                self.partial[setup["handle"]] = self.session.partial_run_setup([*named[0], *targets], named[1])
                return []
        if "partial" in step:
            return list(self.session.partial_run(self.partial[step["partial"]], fetches, feeds))
        options = v1.RunOptions(timeout_in_ms=step["timeout_ms"]) if step.get("timeout_ms") else None
        with refused_by_client():
            values = self.session.run([*fetches, *targets], feeds, options=options)
        return list(values[: len(fetches)])

    def tensor(self, name: str) -> str:
        return name if ":" in name else f"{name}:0"

    def value(self, feed: dict[str, Any]) -> Any:
        if "from" in feed:
            return self.fetched[feed["from"]["step"]][feed["from"]["fetch"]]
        if "file" in feed:
            return str(self.folder / feed["file"]).encode()
        if "tmp" in feed:
            return str(self.folder / "tmp" / feed["tmp"]).encode()
        return decode(self.case.feeds, feed["key"], feed["dtype"])

    def check_multisets(self) -> None:
        for group, members in self.groups.items():
            got: list[Any] = []
            want: list[Any] = []
            for entry, value in members:
                expected = decode(self.case.expected, entry["key"], entry["dtype"])
                got.extend(rows(np.asarray(value), entry["rows"]))
                want.extend(rows(expected, entry["rows"]))
            if sorted(got) != sorted(want):
                raise WrongError(f"group {group}: other rows")


def rows(array: Any, kind: str) -> list[Any]:
    return [row.tolist() for row in (array.ravel() if kind == "element" else array)]


@contextlib.contextmanager
def refused_by_client() -> Iterator[None]:
    """Context manager: what is no error of a session is the client's own."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ClientRefusedError(str(error)) from error


def check_error(error: tf.errors.OpError, wanted: dict[str, Any] | None, where: str = "") -> None:
    name = CODES[error.error_code]
    accepted = [] if wanted is None else [*(wanted.get("accept") or [wanted["code"]]), wanted.get("wire_code")]
    if name not in accepted:
        raise WrongError(
            f"{where}{name}: {' '.join(error.message.removeprefix('Graph execution error:').split())[:200]}"
        ) from error


def outcome(family: str, folder: str, target: str) -> str:
    """Of one case."""
    case = Case.load(family, folder)
    wanted = case.description.get("create_error") or (case.steps[0].get("error") if case.steps else None)
    with tempfile.TemporaryDirectory() as tmp:
        case.extract_files(Path(tmp))
        run = None
        try:
            run = CaseRun(case, target, Path(tmp))
            run.steps()
        except ClientRefusedError:
            return "client"
        except tf.errors.OpError as error:
            try:
                check_error(error, wanted)
            except WrongError as wrong:
                return f"wrong {wrong}"
        except Exception as error:
            return f"wrong {type(error).__name__} {error}".splitlines()[0][:240]
        finally:
            if run is not None:
                run.session.close()
            v1.Session.reset(target)
    return "pass"


def main() -> None:
    """See the module."""
    v1.disable_eager_execution()
    for line in sys.stdin:
        family, folder = json.loads(line)
        print(json.dumps(outcome(family, folder, sys.argv[1])), flush=True)


if __name__ == "__main__":
    main()
