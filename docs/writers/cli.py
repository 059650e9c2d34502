"""docs/reference/cli.md: every command with its flags, from the Click tree."""

from __future__ import annotations

from collections.abc import Iterator

import click

from docs.writers.markdown import table
from windlass.cli.main import COMMANDS, windlass_group


def commands() -> Iterator[tuple[str, click.Command]]:
    """(the words, the command) for every command and subcommand."""
    top = click.Context(windlass_group, info_name="windlass")
    for name in COMMANDS:
        command = windlass_group.get_command(top, name)
        assert command is not None
        yield f"windlass {name}", command
        if isinstance(command, click.Group):
            for sub in command.list_commands(top):
                found = command.get_command(top, sub)
                assert found is not None
                yield f"windlass {name} {sub}", found


def page() -> str:
    listed = [(f"[`{name}`](#windlass-{name})", words) for name, (_, words) in COMMANDS.items()]
    parts = [
        "# Command line\n",
        "`-` stands for the last job; an id may be shortened to any unique prefix; a name means "
        "the newest job of that name. Data goes to stdout, words to stderr. The exit codes are "
        "[a page of their own](exit-codes.md).\n",
        table(("command", "what it does"), listed),
    ]
    for words, command in commands():
        context = click.Context(
            command, info_name=words, max_content_width=96, terminal_width=96,
            help_option_names=["-h", "--help"],
        )  # fmt: skip
        parts += [f"## {words}\n", f"```text\n{command.get_help(context).rstrip()}\n```\n"]
    return "\n".join(parts)
