"""What every command has in common: which server, which form of output, which job `-` is.

    @verb("ps", outputs=LISTS)
    @click.option("--state")
    def command(session: Session, state: str | None) -> None: ...

`verb` adds the options of connection and output and hands the command a `Session`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import output as output_
from windlass.client import recent
from windlass.client.config import Config
from windlass.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.client.jobs import Job

LISTS = ("table", "json", "jsonl", "yaml", "csv", "name")
OBJECTS = ("table", "json", "yaml", "name")
WORDS = ("table", "json", "yaml")


class Session:
    """One call of the CLI."""

    def __init__(self, config: Config, form: str, quiet: bool) -> None:
        self.config = config
        self.form = form
        self.quiet = quiet
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            from windlass.client import Client

            self._client = Client(config=self.config)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def reload(self) -> None:
        """Read the configuration again: a server that just started wrote its key and address."""
        given = self.config.layers[0].values
        self.config = Config.load(dict(given))
        self.close()

    @property
    def plain(self) -> bool:
        """Whether people read the output, not programs."""
        return self.form == "table" and not self.quiet

    def say(self, text: str) -> None:
        """Words, to stderr; not with -q."""
        if not self.quiet:
            click.echo(output_.safe(text), err=True)

    def ref(self, word: str) -> str:
        """What the user calls a job; `-` is the last one."""
        if word != "-":
            return word
        found = recent.last(self.client.url)
        if found:
            return found
        jobs = self.client.jobs.list(limit=1)
        if not jobs:
            raise NotFound("there is no last job yet", hint="windlass run train.py makes one")
        return jobs[0].id

    def jobs(
        self,
        found: Sequence[Job],
        head: Sequence[str],
        row: Callable[[Job], list[Any]],
        spare: Sequence[str] = (),
    ) -> None:
        """A list of jobs in the form asked for."""
        recent.remember(self.client.url, found)
        self.items([job.data for job in found], head, [row(job) for job in found], spare)

    def items(
        self,
        data: Sequence[Mapping[str, Any]],
        head: Sequence[str],
        rows: Sequence[Sequence[Any]],
        spare: Sequence[str] = (),
    ) -> None:
        """A list: data for programs, a table for people; `spare`: columns that are left out
        where the terminal is narrow."""
        if self.quiet:
            for item in data:
                click.echo(output_.tame(str(item.get("id") or item.get("name"))))
        elif self.form == "name":
            for item in data:
                click.echo(output_.tame(str(item.get("name") or item.get("id"))))
        elif self.form == "json":
            output_.print_json(data)
        elif self.form == "jsonl":
            output_.print_jsonl(data)
        elif self.form == "yaml":
            output_.print_yaml(list(data))
        elif self.form == "csv":
            output_.print_csv(head, rows)
        else:
            output_.print_table(head, rows, spare=spare)

    def one(self, data: Mapping[str, Any]) -> bool:
        """One object for programs; False when people read: then the command draws it."""
        if self.quiet:
            click.echo(output_.tame(str(data.get("id") or data.get("name") or "")))
        elif self.form in ("json", "jsonl"):
            output_.print_json(data) if self.form == "json" else output_.print_jsonl([data])
        elif self.form == "yaml":
            output_.print_yaml(dict(data))
        elif self.form == "name":
            click.echo(output_.tame(str(data.get("name") or data.get("id") or "")))
        else:
            return False
        return True


def verb(
    name: str,
    *,
    outputs: Sequence[str] = OBJECTS,
    quiet: bool = True,
    group: click.Group | None = None,
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command that speaks to a server. Its module calls the result `command`."""

    def wrap(function: Callable[..., Any]) -> click.Command:
        def call(
            output: str | None,
            url: str | None,
            context: str | None,
            project: str | None,
            quiet: bool = False,
            **rest: Any,
        ) -> Any:
            config = Config.load({"url": url, "context": context, "project": project})
            session = Session(config, output or _default_form(config, outputs), quiet)
            try:
                return function(session, **rest)
            except BrokenPipeError:  # Click would end with 1, as if we had failed
                sys.exit(output_.quiet_pipe())
            finally:
                session.close()

        call.__doc__ = function.__doc__
        call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        wrapped: Callable[..., Any] = call
        for option in reversed(_options(outputs, quiet)):
            wrapped = option(wrapped)
        make = (group or click).command
        return make(name, **settings)(wrapped)

    return wrap


def _options(outputs: Sequence[str], quiet: bool) -> list[Callable[..., Any]]:
    options = [
        click.option("-o", "--output", type=click.Choice(outputs), help="Form of the output."),
        click.option("--url", metavar="URL", help="The server's address."),
        click.option("--context", metavar="NAME", help="A server of config.toml."),
        click.option("--project", metavar="NAME", help="The project."),
    ]
    if quiet:
        options.insert(1, click.option("-q", "--quiet", is_flag=True, help="Only ids, no words."))
    return options


def _default_form(config: Config, outputs: Sequence[str]) -> str:
    form = config.get("output")
    if form.value in outputs:
        return form.value
    if form.value not in LISTS:
        raise InvalidInput(
            f"output: {form.value!r} (from {form.origin}) is not one of {', '.join(LISTS)}"
        )
    return outputs[0]  # a wish for all commands that this one cannot fulfil


def job_argument(**settings: Any) -> Callable[..., Any]:
    """JOB: an id, the start of one, a name, or `-` for the last (with `default="-"` also when
    none is given)."""
    from windlass.cli.completion import complete_job

    return click.argument("job", metavar="JOB", shell_complete=complete_job, **settings)
