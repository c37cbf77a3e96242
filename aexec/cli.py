"""The command line: `aexec run | profile | trace-summary | serve | token | state | inspect | graph | ops | …`.

User errors end with one line on stderr and an exit status that tells the error's code
(10 + its canonical number); a traceback means a bug.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aexec
from aexec import errors
from aexec.commands.cluster_command import add_cluster
from aexec.commands.completion_command import add_completion
from aexec.commands.graph_command import add_graph
from aexec.commands.inspect_command import add_inspect
from aexec.commands.listing_commands import add_listings
from aexec.commands.profile_command import add_profile
from aexec.commands.run_command import add_run
from aexec.commands.terminal import say_error
from aexec.commands.trace_summary_command import add_trace_summary
from aexec.commands.usage import (
    EPILOG,
    UsageError,
    add_command,
    positive,
    wrong,
)
from aexec.framework.memory.garbage_collector import freeze_heap

__all__ = ["main"]

_EXIT_BASE = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Without `argv` it is that of this process, and what the process has made by then is not looked through for
    garbage: neither what was imported, while it runs, nor anything when it ends.
    """
    if argv is not None:
        return _main(argv)
    freeze_heap()
    try:
        return _main(sys.argv[1:])
    finally:
        freeze_heap()


def _main(argv: Sequence[str]) -> int:
    arguments = _parser(argv).parse_args(argv)
    try:
        return int(arguments.command(arguments) or 0)
    except errors.OpError as error:
        say_error(f"{error.code.name}: {error}")
        return _EXIT_BASE + error.code
    except UsageError as error:
        say_error(f"{error} (aexec COMMAND --help tells more)")
        return 2
    except KeyboardInterrupt:
        say_error("interrupted")
        return 130
    except BrokenPipeError:
        return 0


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aexec",
        description="Run TensorFlow GraphDefs inside an asyncio event loop, without TensorFlow.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"aexec {aexec.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_run(commands)
    add_profile(commands)
    add_trace_summary(commands)
    server_wanted = argv[:1] in (["serve"], ["doctor"], ["completion"])
    _add_serve(commands, wanted=server_wanted)
    _add_doctor(commands, wanted=server_wanted)
    _add_token(commands)
    add_inspect(commands)
    add_graph(commands)
    add_listings(commands)
    add_cluster(commands)
    _add_state(commands, wanted=argv[:1] in (["state"], ["completion"]))
    add_completion(commands, parser)
    return parser


# serve


def _add_serve(commands: Any, wanted: bool) -> None:
    """The command; its arguments too, if they are wanted: they come from the server, which takes time to import."""
    command = add_command(
        commands,
        "serve",
        help="serve sessions over HTTP",
        description="Serve sessions over HTTP.  The value of a setting is that of its flag, else of its environment"
        "\nvariable (AEXEC_SERVE_PORT for --port), else of its key in --config FILE (port = 8500), else its default.",
        usage="aexec serve [--config FILE] [--graph NAME=PATH] [--model NAME=PATH] [options]",
    )
    if not wanted:
        return
    from aexec_server.settings.setting_sources import add_setting_flags

    command.add_argument("--example", action="store_true", help="serve an example model and print requests to try")
    command.add_argument(
        "--print-config",
        action="store_true",
        help="print all settings as a configuration file, with the source of each, and exit",
    )
    add_setting_flags(command)
    command.set_defaults(command=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from aexec_server import ServerConfig, serve
    from aexec_server.example import example_graph, example_requests
    from aexec_server.settings.model_source import check_file
    from aexec_server.settings.setting_sources import read_settings
    from aexec_server.settings.settings import SettingError
    from aexec_server.watching.server_log import begin_log

    from aexec.hosting import check_cluster

    try:
        given = read_settings(arguments, os.environ)
    except SettingError as error:
        wrong(error.message)
    config = ServerConfig(**given.values)
    if arguments.print_config:
        print(given.describe(config))
        return 0
    for model in config.models.values():
        check_file(model)
    if config.model_repository is not None and not Path(config.model_repository).is_dir():
        raise errors.NotFoundError(f"--model-repository {config.model_repository}; No such directory")
    if arguments.example:
        if "example" in config.graphs:
            wrong("the name example is given twice: by --example and by --graph")
        config = replace(config, graphs={"example": example_graph, **config.graphs})

    cluster = ""
    if config.cluster is not None:
        by_tls = check_cluster(config.cluster, config.cluster_security)
        cluster = f"; cluster {config.cluster}, {'by TLS' if by_tls else 'without TLS, on loopback'}"

    def on_ready(address: str) -> None:
        if address.startswith("grpc"):
            print(f"aexec serves gRPC on {address}", flush=True)
            return
        loading = f"; models to load: {', '.join(config.models)}" if config.models else ""
        names = ", ".join(config.graphs) or "none yet"
        print(f"aexec serves on {address}{loading}; sessions: {names}{cluster}; Ctrl-C stops it", flush=True)
        if arguments.example:
            print("\nTry these:\n" + "".join(f"\n  {line}\n" for line in example_requests(address)), flush=True)
        page = _page_of(address)
        print(f"Open {page} for the console, {page}/docs for the API", flush=True)

    begin_log(config.log_level.upper(), config.log_format)
    try:
        serve(config, on_ready=on_ready)
    except OSError as error:
        raise errors.UnavailableError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror or error}"
        ) from None
    return 0


def _page_of(address: str) -> str:
    """Return an address that a browser on this machine can open: localhost for a server that listens on all."""
    return address.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:")


# doctor


def _add_doctor(commands: Any, wanted: bool) -> None:
    command = add_command(
        commands,
        "doctor",
        help="check this machine, and settings of a server",
        description="Check what aexec needs of this machine, and what a server with these settings needs: nothing is"
        "\nstarted.  The settings are those of `aexec serve`.  The exit status is 1 if something is wrong.",
        usage="aexec doctor [--json] [--config FILE] [options of aexec serve]",
    )
    if not wanted:
        return
    from aexec_server.settings.setting_sources import add_setting_flags

    command.add_argument("--json", action="store_true", help="print what was found as a JSON object")
    add_setting_flags(command)
    command.set_defaults(command=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from aexec_server import ServerConfig
    from aexec_server.diagnosis import server_findings
    from aexec_server.settings.setting_sources import read_settings
    from aexec_server.settings.settings import SettingError

    from aexec.commands.doctor_command import machine_findings, print_findings

    try:
        config = ServerConfig(**read_settings(arguments, os.environ).values)
    except SettingError as error:
        wrong(error.message)
    findings = itertools.chain(machine_findings(), server_findings(config))
    return print_findings(findings, as_json=arguments.json)


# token


def _add_token(commands: Any) -> None:
    command = add_command(
        commands,
        "token",
        help="make a token for a server",
        description="Make a token for a server.  Prints the token, which cannot be shown again, and its line for the"
        "\nfile of `aexec serve --token-file FILE`.",
    )
    command.add_argument("name", help="owner of the token, who also owns the sessions that are made with it")
    command.add_argument("--file", metavar="FILE", help="add the line to FILE, and print only the token")
    command.add_argument(
        "--scopes",
        default="run,manage",
        metavar="SCOPE,…",
        help="what the token permits: run, manage (make sessions), admin (everything) (default: %(default)s)",
    )
    command.add_argument(
        "--max-sessions",
        type=positive,
        metavar="N",
        help="largest number of open sessions (at least 1; default: no limit of its own)",
    )
    command.add_argument(
        "--max-runs",
        type=positive,
        metavar="N",
        help="largest number of runs in flight (at least 1; default: no limit of its own)",
    )
    command.add_argument(
        "--max-memory-mb",
        type=float,
        metavar="MB",
        help="limit on the memory of the tensors in all its sessions, in megabytes (default: no limit of its own)",
    )
    command.add_argument(
        "--rate", type=float, metavar="N", help="largest number of requests in a second (above 0; default: no limit)"
    )
    command.add_argument(
        "--burst",
        type=float,
        metavar="N",
        help="largest number of requests at once; needs --rate (at least 1; default: as --rate)",
    )
    command.set_defaults(command=_token)


def _token(arguments: argparse.Namespace) -> int:
    from aexec_server.clients.token_source import add_line
    from aexec_server.clients.tokens import new_token_line

    names = ("max_sessions", "max_runs", "max_memory_mb", "rate", "burst")
    limits = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    try:
        token, line = new_token_line(arguments.name, arguments.scopes.split(","), limits)
    except errors.InvalidArgumentError as error:
        wrong(error.message)
    if arguments.file is not None:
        add_line(Path(arguments.file), line)
        print(token)
    else:
        print(line)
        print(f"The token, which cannot be shown again: {token}", file=sys.stderr)
    return 0


# state


def _add_state(commands: Any, wanted: bool) -> None:
    """The command; its actions too, if they are wanted: they come from the server, which takes time to import."""
    command = add_command(
        commands,
        "state",
        help="look at the durable sessions of a server's folder, and change them",
        description="Look at the durable sessions in the folder of `aexec serve --state DIR`, and change them.  To"
        "\nlist, show and export them, the server may go on; for other actions it must have ended.",
    )
    if not wanted:
        return
    from aexec_server.durable.state_command import add_state_commands

    add_state_commands(command)


if __name__ == "__main__":
    sys.exit(main())
