"""`windlass completion`, and what TAB offers for a JOB.

Ids come from a local file of jobs lately seen; the server is asked only when there is none, for
at most 300 ms, so that TAB never hangs.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from windlass.core.errors import InvalidInput, WindlassError

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": 'eval "$(windlass completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(windlass completion zsh)"   in ~/.zshrc',
    "fish": "windlass completion fish > ~/.config/fish/completions/windlass.fish",
}
LIMIT_SECONDS = 0.3


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """The completion script for your shell.

    \b
    bash:  eval "$(windlass completion bash)"    in ~/.bashrc
    zsh:   eval "$(windlass completion zsh)"     in ~/.zshrc
    fish:  windlass completion fish > ~/.config/fish/completions/windlass.fish
    """
    from windlass.cli.main import windlass_group

    kind = get_completion_class(shell)
    if kind is None:
        raise InvalidInput(f"no completion for {shell!r}; known: {', '.join(SHELLS)}")
    click.echo(kind(windlass_group, {}, "windlass", "_WINDLASS_COMPLETE").source())
    click.echo(f"# {HOW[shell]}")


def complete_job(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from windlass.client import recent
    from windlass.client.config import Config

    try:
        config = Config.load({"url": context.params.get("url")})
        url = config.get("url").value.rstrip("/")
        known = recent.names(url) or _ask(config)
    except (WindlassError, OSError):
        return []
    items: dict[str, str] = {}
    for id_, name in known:
        items.setdefault(name, id_[:12])
        if incomplete and id_.startswith(incomplete):
            items.setdefault(id_[:12], name)
    return [
        CompletionItem(word, help=other)
        for word, other in items.items()
        if word.startswith(incomplete)
    ]


def complete_queue(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _names(context, incomplete, lambda client: client.queues.list())


def complete_quota(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _names(context, incomplete, lambda client: client.quotas.list())


def complete_project(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _names(context, incomplete, lambda client: client.projects.list())


def _names(context: click.Context, incomplete: str, look: Any) -> list[CompletionItem]:
    """The names of what there is, asked of the server; silent when it does not answer."""
    from windlass.client import Client
    from windlass.client.config import Config

    try:
        config = Config.load({"url": context.params.get("url")})
        with Client(config=config, patience_seconds=0.0) as client:
            client.http.timeout_seconds = LIMIT_SECONDS
            client.http.settle_seconds = 0.0
            found = [item.name for item in look(client)]
    except (WindlassError, OSError):
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _ask(config: Any) -> list[tuple[str, str]]:
    from windlass.client import Client, recent

    with Client(config=config, patience_seconds=0.0) as client:
        client.http.timeout_seconds = LIMIT_SECONDS
        client.http.settle_seconds = 0.0
        jobs = client.jobs.list(limit=50)
    recent.remember(client.url, jobs)
    return [(job.id, job.name) for job in jobs]
