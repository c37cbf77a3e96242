"""`aexec completion`: prints a script that makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
from typing import Any

from aexec.commands.usage import add_command

__all__ = ["add_completion"]

_SHELLS = ("bash", "zsh", "tcsh", "fish")


def add_completion(commands: Any, parser: argparse.ArgumentParser) -> None:
    """Add the command, which completes the commands and options of `parser`."""
    command = add_command(
        commands,
        "completion",
        help="print a script that makes a shell complete commands, options and files of aexec",
        description="""Print a script that completes aexec in a shell.  For bash:
  aexec completion bash > ~/.local/share/bash-completion/completions/aexec
For zsh, write it to a folder of $fpath:
  aexec completion zsh > ~/.zfunc/_aexec
For fish:
  aexec completion fish > ~/.config/fish/completions/aexec.fish""",
    )
    command.add_argument("shell", choices=_SHELLS)
    command.set_defaults(command=lambda arguments: _completion(arguments.shell, parser))


def _completion(shell: str, parser: argparse.ArgumentParser) -> int:
    import shtab

    print(shtab.complete(parser, shell))
    return 0
