"""docs/reference/settings.md: what a server and a client can be told, and where it is said."""

from __future__ import annotations

import argparse

from docs.writers.markdown import code, table
from windlass.client.config import DEFAULTS, ENVIRONMENT, IN_PROJECT_FILE
from windlass.core.strict import format_duration
from windlass.server.options import SCHEDULER, parser

SERVER_FLAGS = {
    "--host": "the address to listen on; beyond loopback only with `--insecure`",
}
CLIENT = {
    "url": "the server's address",
    "project": "the project that commands are about; by default the one of the key",
    "context": "a server named in `config.toml`, with its key",
    "output": "the form of output: table, json, jsonl, yaml, csv or name",
    "access_key": "the access key; normally in `credentials.json`",
    "secret_key": "the secret key; normally in `credentials.json`",
    "token": "an API token (`wl_…`) instead of a key",
}
VARIABLES = {
    "WINDLASS_HOME": "all state of one installation, credentials too; default `~/.windlass`, and "
    "`~/.config/windlass` for credentials and settings",
    "WINDLASS_DATABASE": "as `--database` of the server",
    "WINDLASS_CURRENCY": "as `--currency` of the server",
    "WINDLASS_ISOLATION": "as `--isolation` of the server",
    "WINDLASS_JOB_DISK": "as `--job-disk` of the server",
    "WINDLASS_ARTIFACT_BYTES": "as `--artifact-bytes` of the server",
    "WINDLASS_STORAGE": "as `--storage` of the server",
    "WINDLASS_STORAGE_CACHE": "as `--storage-cache` of the server",
    **{
        "WINDLASS_" + flag[2:].upper().replace("-", "_"): f"as `{flag}` of the server"
        for flag, *_ in SCHEDULER
    },
    "WINDLASS_LOG": "how much the server writes to its log: DEBUG, INFO, WARNING",
    "WINDLASS_DEBUG": "1: the CLI shows a traceback with an error of its own",
    "NO_COLOR": "any value: the CLI writes without colour",
}


def server_flags() -> dict[str, tuple[str, str]]:
    """Flag → (default, words)."""
    found = {}
    for action in parser()._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        flag = action.option_strings[-1]
        found[flag] = (_default(flag, action.default), action.help or SERVER_FLAGS[flag])
    return found


def page() -> str:
    flags = [(code(flag), code(d), words) for flag, (d, words) in server_flags().items()]
    client = [
        (
            code(name), code(ENVIRONMENT[name]), "yes" if name in IN_PROJECT_FILE else "no",
            code(default), CLIENT[name],
        )
        for name, default in DEFAULTS.items()
    ]  # fmt: skip
    return "\n".join(
        [
            "# Settings\n",
            "## The server\n",
            "Flags of `python -m windlass.server`. `windlass up` starts it and passes on the ones "
            "it has itself (`windlass up --help`). What `up` was given is kept in `up.json` of "
            "the home for the next `up`, and for a server that `run` starts; `up --reset` "
            "forgets it. A running server is never changed by it: `up` with other settings says "
            "so and exits with 1. Without `--port` a second home takes a free port, and keeps "
            "that. `up --install` writes a systemd unit with the same settings.\n",
            table(("flag", "default", "what it is"), flags),
            "## The client\n",
            "Order: flag, environment variable, project file (`windlass.toml`, or "
            "`[tool.windlass]` in `pyproject.toml`), user file (`config.toml`), default. "
            "`windlass config get --origin` tells which won.\n",
            table(("setting", "variable", "in a project file", "default", "what it is"), client),
            "## Other environment variables\n",
            table(("variable", "what it is"), [(code(k), v) for k, v in VARIABLES.items()]),
        ]
    )


def _default(flag: str, value: object) -> str:
    if flag == "--ttl" and isinstance(value, int):
        return format_duration(value)
    if flag == "--home":
        return "~/.windlass"
    return "" if value in (None, "", [], False) else str(value)
