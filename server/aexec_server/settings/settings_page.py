"""Prints the tables of docs/settings.md: `python -m aexec_server.settings.settings_page`."""

from __future__ import annotations

from aexec_server.settings.server_config import ServerConfig
from aexec_server.settings.settings import settings_of

__all__ = ["settings_tables"]

_HEAD = "| flag, variable, key in a file | field | value | default | what it is for |\n|---|---|---|---|---|"


def settings_tables() -> str:
    """Return the settings as Markdown, one table per group."""
    lines: list[str] = []
    group = ""
    for one in settings_of(ServerConfig).values():
        if one.group != group:
            group = one.group
            lines += ["", f"## {group[0].upper()}{group[1:]}", "", _HEAD]
        names = f"`{one.flag}`<br>`{one.variable}`<br>`{one.name}`"
        cells = [names, f"`{one.field}`", one.expected, one.shown_default, one.help]
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines).strip() + "\n"


if __name__ == "__main__":
    print(settings_tables(), end="")
