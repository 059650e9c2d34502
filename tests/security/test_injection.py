"""R-S19, R-S22: what a user writes is a word, never a command and never a line of ours."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import windlass
from windlass.testing.platform import Platform, wait_for

SOURCE = Path(windlass.__file__).parent
SHELLS = ("sh", "bash", "dash", "zsh", "cmd", "powershell")
CALLS = ("run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec")
ALLOWED = {
    # MPI's launcher asks for a command line to be run by a shell: inside the job, by the job's own
    # user, for callers that have the attempt's key. Nothing of another's can come there.
    "worker/services/agent.py",
    # A browser for tests: the shell gives descriptors their numbers, the words are arguments.
    "testing/chromium.py",
}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_no_shell_is_ever_asked() -> None:
    """No `shell=True`, no string for a command, no `sh -c`, no os.system and its like."""
    wrong: list[str] = []
    looked = 0
    for where, tree in _trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = _name(node.func)
            line = f"{where}:{node.lineno}: {name}"
            if name in ("os.system", "os.popen", "asyncio.create_subprocess_shell", "pty.spawn"):
                wrong.append(line)
            if name.rpartition(".")[0] not in ("subprocess", "asyncio", "asyncio.subprocess"):
                continue
            if name.rpartition(".")[2] not in CALLS:
                continue
            looked += 1
            shell = [word.value for word in node.keywords if word.arg == "shell"]
            if shell and not (isinstance(shell[0], ast.Constant) and shell[0].value is False):
                wrong.append(f"{line}: shell=")
            command = node.args[0] if node.args else None
            if isinstance(command, ast.Constant | ast.JoinedStr | ast.BinOp):
                if not isinstance(command, ast.BinOp) or isinstance(command.op, ast.Mod):
                    wrong.append(f"{line}: a command in one text")
            if isinstance(command, ast.List) and command.elts and where not in ALLOWED:
                first = command.elts[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    if first.value.rpartition("/")[2] in SHELLS:
                        wrong.append(f"{line}: a shell")
    assert not wrong, wrong
    assert looked >= 10, "there are calls to look at"


META = [
    "; touch {}", "$(touch {})", "`touch {}`", "| touch {}", "&& touch {}", "\n touch {}\n",
    "' ; touch {} ; '", '" ; touch {} ; "', "$IFS touch {}", "%0atouch %s", "> {}",
    "*", "~", "!!", "-rf", "--help", "\\", "a b", "\t",
]  # fmt: skip


@pytest.mark.slow
def test_metacharacters_stay_what_they_are(tmp_path: Path) -> None:
    """In the command, its parameters, variables and reasons; nothing of them is run."""
    trap = tmp_path / "trap"
    words = [text.replace("{}", str(trap)) for text in META]
    say = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['TEXT']]))"
    # Not kept apart: in a room of its own a job would not find the trap, whatever it ran.
    with Platform(tmp_path / "home", "--isolation", "0") as platform:
        for text in words:
            job = platform.submit(
                [sys.executable, "-c", say, "--", text, "${value}"],
                params={"value": text}, environment={"vars": {"TEXT": text}},
            )  # fmt: skip
            assert platform.wait(job).state == "succeeded", (text, platform.logs(job))
            told, variable = json.loads(platform.logs(job))
            assert told == ["--", text, text]
            assert variable == text
        for text in words:
            held = platform.submit("true", hold=True)
            reason = {"reason": text}
            assert platform.call("POST", f"/jobs/{held.id}/stop", reason).status_code == 200
            for field in ("name", "framework", "queue"):
                spec: dict[str, Any] = {"run": "true", field: text}
                answer = platform.call("POST", "/jobs", {"spec": spec})
                assert answer.status_code == 422, (field, text, answer.text)
        missing = platform.submit([f"/no/such {words[0]}"])
        assert platform.wait(missing).state == "failed"
        assert not trap.exists()
        assert "Traceback" not in platform.log()


FORGED = "2026-01-01 00:00:00,000 ERROR windlass.server FORGED the server fell"
NASTY = [f"x\r\n{FORGED}\r\n", f"x\n{FORGED}", "\x1b[2J\x1b]0;owned\x07", "\x9b31m", "a\x00b",
         f"x\u2028{FORGED}", f"x\x85{FORGED}"]  # fmt: skip


@pytest.mark.slow
def test_no_field_of_a_user_forges_a_line_of_the_log_or_the_audit(tmp_path: Path) -> None:
    """Control characters come back escaped where they are told, and forge nothing."""
    with Platform(tmp_path / "home") as platform:
        for text in NASTY:
            spec = {"run": ["true", text], "hold": True, "environment": {"vars": {"A": text}}}
            made = platform.call("POST", "/jobs", {"spec": spec})
            assert made.status_code in (201, 422)
            if made.status_code == 201:
                ref = made.json()["id"]
                platform.call("POST", f"/jobs/{ref}/stop", {"reason": text})
            platform.call("POST", "/jobs", {"spec": {"run": "true", "name": text}})
            platform.call("POST", "/jobs", {"spec": {"run": "true", "project": text}})
            for path in ("/jobs/{}", "/queues/{}", "/secrets/{}", "/jobs?name={}"):
                platform.call("GET", path.format(quote(text, safe="")))
        assert platform.call("GET", "/jobs/=cmd()").status_code == 404
        odd = {"Authorization": "WL4-HMAC-SHA256 Credential=\x9bWL\t=1/20260101/x/y/z"}
        httpx.get(
            platform.url + "/api/v1/jobs", headers={k: v.encode("latin-1") for k, v in odd.items()}
        )
        loud = platform.submit(
            [sys.executable, "-c", f"import sys; sys.exit({FORGED!r} + chr(10) + chr(27))"]
        )
        platform.wait(loud)
        wait_for(lambda: platform.client.audit.list(outcome="refused"), 5, "refusals are told")
        for line in platform.log().splitlines():
            assert not line.startswith(FORGED[:30]), line
            assert "\x1b" not in line and "\x9b" not in line, line
        for chain in ("project", "server"):
            export = "".join(platform.client.audit.export(chain=chain))
            for line in export.splitlines():
                assert json.loads(line)["number"]
                assert line.isascii() and line.isprintable()
            table = "".join(platform.client.audit.export(chain=chain, format="csv"))
            assert not re.search(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]", table)
        shown = platform.cli("audit", "ls", "-n", "500").stdout + platform.cli("ps", "-a").stdout
        assert "\x1b" not in shown and "\x9b" not in shown
        assert not [line for line in shown.splitlines() if line.startswith(FORGED[:19])]


@pytest.mark.parametrize("text", ["=cmd|'/C calc'!A0", "+1", "-1", "@SUM(A1)"])
def test_no_cell_of_an_export_is_a_formula(text: str) -> None:
    from windlass.server.audit.service import csv_cell

    assert csv_cell(text) == "'" + text
    assert csv_cell("plain") == "plain" and csv_cell(5) == 5
