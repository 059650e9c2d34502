"""The `windlass` command: a table of commands, each in a module of its own that is imported only
when it is called, and the one place where an error becomes words and an exit code.

`windlass --help` imports Click and this module and nothing else of weight: no HTTP, no pydantic,
no Rich (a test holds it to that).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import windlass
from windlass.core.errors import WindlassError

START, DAILY, CLUSTER, ADMIN = "Start", "Daily", "Cluster", "Admin"

COMMANDS: dict[str, tuple[str, str]] = {
    "up": (START, "Start the server; harmless when it is up."),
    "down": (START, "Stop the server; jobs go on, or end with --kill."),
    "status": (START, "What runs here: address, version, nodes, jobs."),
    "demo": (START, "Train a small network on two workers, end to end."),
    "ui": (START, "Open the dashboard, logged in."),
    "doctor": (START, "Check this machine and print how to mend it."),
    "init": (START, "Write a commented job file."),
    "import": (START, "Convert a job file of Kubeflow, Slurm or Determined."),
    "run": (DAILY, "Run a command as a job and follow it."),
    "submit": (DAILY, "The same as run, detached: prints the id."),
    "apply": (DAILY, "Create what a YAML file describes; shows a plan first."),
    "ps": (DAILY, "Jobs, newest first."),
    "show": (DAILY, "One job: reason, attempts, curve."),
    "metrics": (DAILY, "What a job told: values, curves, every point."),
    "compare": (DAILY, "Differing params and metrics of jobs, side by side."),
    "tb": (DAILY, "Any job in TensorBoard, whatever it logged with."),
    "logs": (DAILY, "Print or follow what a job wrote."),
    "sync": (DAILY, "Bring runs that were made offline."),
    "events": (DAILY, "What happened to a job, in order."),
    "why": (DAILY, "Why it waits, failed, is slow or was stopped."),
    "wait": (DAILY, "Block until a job is done; exits with its code."),
    "stop": (DAILY, "Ask jobs to stop; they may save a checkpoint first."),
    "rerun": (DAILY, "Again, with changes: rerun JOB lr=0.01."),
    "restart": (DAILY, "End the attempt and go on from the checkpoint."),
    "release": (DAILY, "Let a held job start."),
    "checkpoint": (DAILY, "What jobs have saved: list, show, download, remove."),
    "rm": (DAILY, "Remove finished jobs with their files."),
    "debug": (DAILY, "Look into a running job: stack, profile, attach."),
    "study": (DAILY, "Searches over parameters: trials that are jobs."),
    "automl": (DAILY, "Find a good model for a table, and register it."),
    "bench": (DAILY, "Compare strategies on your own model, and frameworks on a small one."),
    "plan": (DAILY, "Plan how to train: strategy, cuts, workers, and what that gives."),
    "model": (DAILY, "Models: register, name by alias, show, compare, download."),
    "top": (CLUSTER, "Nodes and jobs, live."),
    "node": (CLUSTER, "Where jobs run, and what is free there."),
    "engine": (CLUSTER, "Where gangs run: this machine, and clusters added by name."),
    "queue": (CLUSTER, "Where jobs wait: the line, its order, pause and resume."),
    "quota": (CLUSTER, "What projects own, lend and borrow."),
    "limit": (CLUSTER, "How many live jobs projects and users may have."),
    "usage": (CLUSTER, "Who used what, and what it costs."),
    "simulate": (CLUSTER, "Replay a trace through the real scheduler."),
    "login": (ADMIN, "Keep a server and a key for it, and speak to it from now on."),
    "logout": (ADMIN, "Forget a server and the key for it."),
    "password": (ADMIN, "Set or change your password."),
    "browser": (ADMIN, "Browsers you are logged in with."),
    "whoami": (ADMIN, "Who the server takes you for, and what you may do."),
    "context": (ADMIN, "The servers you have logged in to, and which one is meant."),
    "project": (ADMIN, "Projects: whose jobs are apart from each other's."),
    "user": (ADMIN, "Users of the server: people and service accounts."),
    "key": (ADMIN, "Access keys: what the command line and scripts sign with."),
    "token": (ADMIN, "API tokens: for tools that cannot sign, narrow and for a time."),
    "secret": (ADMIN, "Secrets that jobs find in their environment."),
    "audit": (ADMIN, "Who did what, and proof that nobody changed it."),
    "config": (ADMIN, "Settings, and where each came from."),
    "backup": (ADMIN, "All that this machine's server keeps, in one file, and back."),
    "completion": (ADMIN, "The completion script for your shell."),
    "version": (ADMIN, "The version."),
}

OWN_CODES = {
    "usage": ("the command, a flag or its value is wrong; nothing was done", 2),
    "system": ("this machine refused: a file, the disk, the network", 1),
}
"""Errors of the command line itself, as `-o json` names them: what they mean, the exit code."""

EPILOG = """\b
Examples:
  windlass run train.py --lr 0.1
  windlass run --workers 4 --gpus 1 train.py
  windlass why -                        (- is the last job)
"""


class LazyGroup(click.Group):
    """Commands by name, imported when called; listed in panels without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module
        from keyword import iskeyword

        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        found = import_module(f"windlass.cli.{name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for panel in (START, DAILY, CLUSTER, ADMIN):
            rows = [(name, words) for name, (where, words) in COMMANDS.items() if where == panel]
            with formatter.section(panel):
                formatter.write_dl(rows, col_spacing=4)


def unknown(word: str, ctx: click.Context) -> click.UsageError:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, n=1)
    if near:
        hint = f"Did you mean `{near[0]}`?"
    elif word.endswith(".py"):
        hint = f"To run it as a job: windlass run {word}"
    else:
        hint = "`windlass --help` lists the commands."
    return click.UsageError(f"No command {word!r}. {hint}", ctx)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(windlass.__version__, "-V", "--version", message="windlass %(version)s")
def windlass_group() -> None:
    """Submit the training script you already have.

    Scheduled as a gang, started as its framework expects, watched, restarted from its checkpoint.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point: never a traceback, always a code of `exits`."""
    from windlass.cli.terminal import guard

    guard()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = windlass_group.main(
            arguments, prog_name="windlass", standalone_mode=False, windows_expand_args=False
        )
    except Exception as err:
        code = report(err, arguments)
    except KeyboardInterrupt:
        code = 130
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        from windlass.cli import output

        code = output.quiet_pipe()
    sys.exit(code if isinstance(code, int) else 0)


def report(err: Exception, arguments: Sequence[str]) -> int:
    """Say what went wrong, once, in the form asked for. Returns the exit code."""
    if os.environ.get("WINDLASS_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exception(err)
    from windlass.cli import exits

    if isinstance(err, click.Abort):
        click.echo("windlass: stopped", err=True)
        return 130
    if isinstance(err, click.exceptions.Exit):
        return err.exit_code
    code, error = _explain(err)
    if _json_wanted(arguments):
        import json

        click.echo(json.dumps({"api": 1, "error": error}, ensure_ascii=False))
    else:
        from windlass.cli.output import safe

        click.echo(safe(f"windlass: {error['message']}"), err=True)
        if error.get("hint"):
            click.echo(safe(f"  hint: {error['hint']}"), err=True)
        if isinstance(err, click.UsageError) and err.ctx and code == exits.USAGE:
            click.echo(f"  help: {err.ctx.command_path} --help", err=True)
    return code


def _explain(err: Exception) -> tuple[int, dict[str, Any]]:
    from windlass.cli import exits

    if isinstance(err, WindlassError):
        return exits.of_error(err), err.to_wire()["error"]
    if isinstance(err, click.ClickException):
        code = exits.USAGE if isinstance(err, click.UsageError) else exits.ERROR
        return code, {"code": "usage", "message": err.format_message()}
    if isinstance(err, OSError):
        where = f": {err.filename}" if err.filename else ""
        return exits.ERROR, {"code": "system", "message": f"{err.strerror or err}{where}"}
    return exits.ERROR, {
        "code": "internal",
        "message": f"this is a bug in windlass: {type(err).__name__}: {err}",
        "hint": "WINDLASS_DEBUG=1 shows where; please report it with `windlass doctor -o json`",
    }


def _json_wanted(arguments: Sequence[str]) -> bool:
    """From the words themselves: the error may be that they could not be parsed."""
    context = click.get_current_context(silent=True)
    if context is not None and isinstance(context.params.get("output"), str):
        return context.params["output"] in ("json", "jsonl")
    for at, word in enumerate(arguments):
        if word == "--" or word.endswith(".py"):
            break
        if word in ("-ojson", "-ojsonl", "--output=json", "--output=jsonl"):
            return True
        if word in ("-o", "--output") and arguments[at + 1 : at + 2] in (["json"], ["jsonl"]):
            return True
    return os.environ.get("WINDLASS_OUTPUT") in ("json", "jsonl")


if __name__ == "__main__":
    main()
