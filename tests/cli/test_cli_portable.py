"""Client and CLI run on Windows, too, and start quickly: held by looking at what they import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "windlass"
SHIPPED = {"board_program.py"}
"""Goes with a job as its code and runs there, on the server's machine; nobody imports it here."""
MODULES = sorted(
    path
    for path in [*SOURCE.glob("client/*.py"), *SOURCE.glob("cli/*.py")]
    if path.name not in SHIPPED
)
MISSING_MODULES = {
    "fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "posix", "syslog", "curses",
    "readline", "crypt", "spwd",
}  # fmt: skip
MISSING_NAMES = {
    "os": {
        "fork", "forkpty", "setsid", "getuid", "geteuid", "getpgid", "killpg", "mkfifo", "setpgid",
        "getpgrp", "openpty", "chown", "lchown", "uname", "nice", "wait", "WNOHANG", "statvfs",
    },
    "signal": {
        "SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGALRM", "SIGPIPE", "SIGWINCH",
        "SIGSTOP", "SIGCONT", "alarm", "pause", "sigwait",
    },
    "socket": {"AF_UNIX", "socketpair"},
}  # fmt: skip


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_a_module_uses_nothing_that_windows_lacks(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
            assert not names & MISSING_MODULES, f"line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            root = (node.module or "").split(".")[0]
            assert root not in MISSING_MODULES, f"line {node.lineno}"
            taken = {alias.name for alias in node.names}
            assert not taken & MISSING_NAMES.get(root, set()), f"line {node.lineno}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            lacking = MISSING_NAMES.get(node.value.id, set())
            assert node.attr not in lacking, f"line {node.lineno}: {node.value.id}.{node.attr}"


def loaded(code: str) -> set[str]:
    code = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "never"),
    [
        (
            "from windlass.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass",
            {"httpx", "http.client", "pydantic", "rich", "yaml", "sqlalchemy", "windlass.client"},
        ),
        ("import windlass.cli.run", {"httpx", "pydantic", "rich", "yaml", "sqlalchemy", "psutil"}),
        ("import windlass; windlass.Client", {"httpx", "pydantic", "rich", "yaml", "click"}),
    ],
    ids=["help", "run", "sdk"],
)
def test_what_is_heavy_is_not_imported_on_the_way(code: str, never: set[str]) -> None:
    assert not loaded(code) & never
