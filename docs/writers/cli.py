"""docs/reference/cli.md: every command with its flags, from the Click tree."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from docs.writers.markdown import code, table
from windlass.cli.main import COMMANDS, windlass_group

COMMON = frozenset({"quiet", "url", "context", "project"})
"""Flags of every command: told once, at the top of the page."""


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
        "Every command that speaks to a server also takes `--url URL`, `--context NAME` (a server "
        "of `config.toml`) and `--project NAME`; `-q` leaves only what a script needs. "
        "[Settings](settings.md) says where they come from otherwise.\n",
        table(("command", "what it does"), listed),
    ]
    for words, command in commands():
        parts += [f"## {words}\n", _about(words, command)]
    return "\n".join(parts)


def _about(words: str, command: click.Command) -> str:
    """Written here rather than by Click, whose releases differ in their layout."""
    context = click.Context(command, info_name=words)
    usage = " ".join(command.collect_usage_pieces(context))
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden or option.name in COMMON:
            continue
        names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
        rows.append((names, _value(option), option.help or ""))
    flags = table(("flag", "value", "what it does"), rows) if rows else ""
    return f"```text\n{words} {usage}\n\n{text}\n```\n\n{flags}"


def _value(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice):
        return ", ".join(map(str, option.type.choices))
    value = option.metavar or str(getattr(option.type, "name", "")).removesuffix(" range")
    return value + (f" (default {option.default})" if option.show_default else "")
