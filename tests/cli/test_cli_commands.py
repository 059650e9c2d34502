"""Every command against a stand-in server: what goes to stdout, what to stderr, which code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from standin import Call, StandIn

import windlass
from windlass.cli.main import COMMANDS

END_WELL = [
    ("event", {"kind": "moved", "job_name": "j", "data": {"to": "running"}, "reason": "on local"}),
    ("log", {"rank": "worker-0-0", "stream": "out", "text": "hello\n"}),
    ("log", {"rank": "worker-0-0", "stream": "err", "text": "careful\n"}),
    ("end", {"state": "succeeded", "exit_code": 0}),
]


@pytest.fixture
def script(home: Path) -> Path:
    path = Path("train.py")
    path.write_text("print('hello')")
    return path


# -- run and submit --------------------------------------------------------------------------


def test_run_shows_the_output_and_returns_the_code(
    cli: Call, server: StandIn, script: Path
) -> None:
    server.outcome = list(END_WELL)
    done = cli("run", "--workers", "1", "train.py", "--lr", "0.1", "-o", "x", "--help")
    assert done.code == 0
    assert done.out == "hello\n"
    assert "careful" in done.err and "j running: on local" in done.err
    (job,) = server.jobs.values()
    assert job["spec"]["run"] == [
        "python", "train.py", "--lr", "0.1", "-o", "x", "--help",
    ], "the user's own command is untouched"  # fmt: skip
    assert server.blobs, "the code travelled"


def test_run_takes_its_command_after_two_dashes_too(
    cli: Call, server: StandIn, script: Path
) -> None:
    server.outcome = list(END_WELL)
    assert cli("run", "--name", "a", "--", "bash", "-c", "exit 0", "--", "-q").code == 0
    assert next(iter(server.jobs.values()))["spec"]["run"] == ["bash", "-c", "exit 0", "--", "-q"]


def test_a_failed_run_says_why_and_gives_the_jobs_code(
    cli: Call, server: StandIn, script: Path
) -> None:
    server.outcome = [("end", {"state": "failed", "exit_code": 3, "name": "j"})]
    done = cli("run", "train.py")
    assert done.code == 3
    assert "failed: rank 1 of j failed first" in done.err and "next: look" in done.err


def test_run_survives_a_server_that_goes_away(cli: Call, server: StandIn, script: Path) -> None:
    server.outcome = [END_WELL[1], ("break", {}), *END_WELL[2:]]
    done = cli("run", "train.py")
    assert (done.code, done.out) == (0, "hello\n")
    assert "the server went away" in done.err


def test_run_quiet_prints_nothing_of_its_own(cli: Call, server: StandIn, script: Path) -> None:
    server.outcome = list(END_WELL)
    done = cli("run", "-q", "train.py")
    assert (done.out, done.err) == ("hello\n", "careful\n")


def test_submit_prints_the_id_and_dash_is_that_job(
    cli: Call, server: StandIn, script: Path
) -> None:
    done = cli("submit", "-q", "train.py")
    assert done.out.strip() in server.jobs and done.err == ""
    server.job(name="someone-elses-newer-job")
    assert cli("show", "-q", "-").out == done.out
    loud = cli("submit", "train.py")
    assert loud.out.strip() in server.jobs and "follow: windlass logs -f" in loud.err
    found = json.loads(cli("submit", "-o", "json", "train.py").out)
    assert found["api"] == 1 and found["state"] == "queued"


def test_a_dry_run_makes_nothing_and_sends_no_code(
    cli: Call, server: StandIn, script: Path
) -> None:
    done = cli("submit", "--dry-run", "--gpus", "1", "train.py")
    assert done.code == 0 and "starts now" in done.out and "gpus: 1" in done.out
    assert not server.jobs and not server.blobs
    assert "a single rank keeps all cores" in done.err
    gang = cli("run", "--dry-run", "-w", "2", "train.py")
    assert "each rank gets its share of the cores, OMP_NUM_THREADS" in gang.err
    own = cli("run", "--dry-run", "-w", "2", "-e", "OMP_NUM_THREADS=3", "train.py")
    assert "as you say (OMP_NUM_THREADS=3)" in own.err


def test_a_held_job_says_how_it_starts(cli: Call, server: StandIn, script: Path) -> None:
    cli("submit", "--hold", "train.py")
    assert next(iter(server.jobs.values()))["state"] == "held"
    done = cli("release", "-")
    assert done.code == 0 and "queued" in done.out


def test_a_job_file_with_flags_over_it(cli: Call, server: StandIn, script: Path) -> None:
    Path("job.yaml").write_text("run: python train.py --n ${n}\nparams: {n: 1}\nworkers: 2\n")
    assert cli("submit", "-f", "job.yaml", "--param", "n=7", "-w", "4").code == 0
    spec = next(iter(server.jobs.values()))["spec"]
    assert spec["params"] == {"n": 7} and spec["roles"] == {"worker": {"count": 4}}


# -- look ------------------------------------------------------------------------------------


def test_ps_in_every_form(cli: Call, server: StandIn) -> None:
    one, two = server.job("running", reason="on local"), server.job("queued")
    table = cli("ps")
    assert table.out.splitlines()[0].split()[:3] == ["ID", "NAME", "STATE"]
    assert one["name"] in table.out and "on local" in table.out
    assert cli("ps", "-q").out.split() == [two["id"], one["id"]]
    assert cli("ps", "-o", "name").out.split() == [two["name"], one["name"]]
    assert [item["id"] for item in json.loads(cli("ps", "-o", "json").out)["items"]] == [
        two["id"], one["id"],
    ]  # fmt: skip
    assert len(cli("ps", "-o", "jsonl").out.splitlines()) == 2
    assert cli("ps", "-o", "csv").out.startswith("id,name,state,")
    assert f"id: {two['id']}" in cli("ps", "-o", "yaml").out
    assert cli("ps", "--state", "running", "-q").out.split() == [one["id"]]


def test_ps_hides_old_ends_and_says_so(cli: Call, server: StandIn) -> None:
    for _ in range(12):
        server.job("succeeded")
    done = cli("ps")
    assert len(done.out.splitlines()) == 11 and "2 finished jobs are not shown" in done.err
    assert len(cli("ps", "-a").out.splitlines()) == 13
    assert cli("ps", "-q", "--state", "held").out == ""


def test_show_draws_attempts_and_the_curve(cli: Call, server: StandIn) -> None:
    attempt = {"number": 1, "state": "over", "outcome": "oom", "reason": "rank 0: out of memory",
               "exit_code": None, "nodes": ["local"], "created": ""}  # fmt: skip
    job = server.job("failed", attempts=[attempt], exit_code=137)
    points = [[step, 0, 1 / (step + 1)] for step in range(50)]
    server.series = [{"key": "loss", "rank": 0, "points": points},
                     {"key": "acc", "rank": 0, "points": points}]  # fmt: skip
    done = cli("show", job["name"])
    assert "rank 0: out of memory" in done.out and "oom" in done.out
    assert "└" in done.out and "acc" in done.out
    assert json.loads(cli("show", job["id"][:6], "-o", "json").out)["id"] == job["id"]


def test_logs_with_prefixes_streams_and_filters(cli: Call, server: StandIn) -> None:
    job = server.job("succeeded", spec={"run": ["x"], "roles": {"worker": {"count": 2}}})
    server.lines = [
        {"rank": "worker-0-0", "stream": "out", "at": "2026-11-15T09:00:00Z", "text": "a"},
        {"rank": "worker-1-0", "stream": "err", "at": "2026-11-15T09:00:01Z", "text": "b\n"},
    ]
    done = cli("logs", job["id"], "--since", "1h", "--grep", "a|b", "-n", "5")
    assert (done.out, done.err) == ("worker-0 │ a\n", "worker-1 │ b\n")
    asked = server.paths("GET")[-1]
    assert "grep=a%7Cb" in asked and "tail=5" in asked and "since=" in asked
    assert [
        json.loads(line)["text"] for line in cli("logs", "-o", "jsonl", job["id"]).out.splitlines()
    ] == ["a", "b\n"]


def test_logs_follow_one_rank_with_the_jobs_code(cli: Call, server: StandIn) -> None:
    server.outcome = [
        ("log", {"rank": "worker-0-0", "stream": "out", "text": "zero\n"}),
        ("log", {"rank": "worker-1-0", "stream": "out", "text": "one\n"}),
    ]
    two = {"run": ["x"], "roles": {"worker": {"count": 2}}}
    job = server.job("failed", exit_code=9, spec=two)
    server.finish(job["id"], "failed", exit_code=9)
    done = cli("logs", "-f", "--rank", "1", job["id"])
    assert (done.code, done.out) == (9, "one\n")
    assert cli("logs", "-f", "--rank", "worker-0", job["id"]).out == "zero\n"
    assert cli("logs", "-f", "--grep", "^z", job["id"]).out == "worker-0 │ zero\n"
    assert cli("logs", "-f", "--grep", "(", job["id"]).code == 2
    assert cli("logs", "-f", "--attempt", "1", job["id"]).code == 2
    wrong = cli("logs", "--rank", "7", job["id"])
    assert wrong.code == 2 and "no rank '7'; there are 0 to 1: worker-0, worker-1" in wrong.err


def test_events_why_and_nodes(cli: Call, server: StandIn) -> None:
    job = server.job("failed")
    assert "queued → running: placed" in cli("events", job["id"]).out
    why = cli("why", job["id"])
    assert why.out.splitlines() == [
        f"rank 1 of {job['name']} failed first", "  - exit code 3", "  next: look",
    ]  # fmt: skip
    assert cli("why", "-q", job["id"]).out.count("\n") == 1
    assert "1/2" in cli("node", "ls").out
    assert json.loads(cli("node", "ls", "-o", "json").out)["items"][0]["name"] == "local"


def test_top_without_a_terminal_prints_one_frame(cli: Call, server: StandIn) -> None:
    job = server.job("running")
    done = cli("top")
    assert "local" in done.out and job["name"] in done.out
    assert json.loads(cli("top", "-o", "json").out)["jobs"][0]["id"] == job["id"]


def test_the_frame_of_top_can_be_drawn(server: StandIn) -> None:
    from rich.console import Console
    from standin import NODE

    from windlass.cli.top import frame
    from windlass.client import Job, Node

    console = Console(width=160, record=True, file=open(os.devnull, "w"))
    console.print(frame("http://x", [Node.read(NODE)], [Job.read(server.job("running"))]))
    console.file.close()
    assert "brisk-otter" in console.export_text()


# -- steer -----------------------------------------------------------------------------------


def test_stop_restart_rm_and_rerun(cli: Call, server: StandIn) -> None:
    spec = {"run": ["python", "t.py", "--lr", "0.1"], "roles": {"worker": {}}}
    job = server.job("running", spec=spec)
    assert "not finished" in cli("rm", "-y", job["id"]).err or cli("rm", "-y", job["id"]).code == 1
    assert cli("restart", job["id"]).code == 0
    assert cli("stop", "--dry-run", job["id"]).code == 0 and job["state"] == "queued"
    assert "cancelled" in cli("stop", job["id"], "--reason", "enough").out
    again = cli("stop", job["id"])
    assert again.code == 1 and "cancelled already" in again.err
    new = cli("rerun", job["id"], "lr=0.5", "--memory", "2GiB").out.strip()
    assert server.jobs[new]["spec"]["run"][-1] == "0.5"
    assert server.jobs[new]["spec"]["roles"]["worker"]["memory"] == "2GiB"
    assert cli("rerun", job["id"], "momentum=1").code == 2
    assert cli("rm", job["id"]).code == 2, "nobody to ask: -y is needed"
    assert cli("rm", "-y", job["id"]).code == 0 and job["id"] not in server.jobs


def test_wait_returns_the_jobs_code_or_101(cli: Call, server: StandIn) -> None:
    good, bad = server.job("succeeded"), server.job("failed", exit_code=7)
    assert cli("wait", good["id"]).code == 0
    assert cli("wait", good["id"], bad["id"]).code == 7
    running = server.job("running")
    done = cli("wait", "--timeout", "0.1s", running["id"])
    assert done.code == 101 and "is running after" in done.err
    server.finish(running["id"], "succeeded")


def test_debug_shows_stacks_and_writes_profiles(cli: Call, server: StandIn) -> None:
    job = server.job("running")
    server.debugged = {"ranks": [{"rank": 0, "text": "main (t.py:3)", "svg": "<svg/>",
                                  "host": "127.0.0.1", "port": 5678}]}  # fmt: skip
    assert "  main (t.py:3)" in cli("debug", "stack", job["id"]).out
    done = cli("debug", "profile", "--seconds", "1", "--out", "flame", job["id"])
    assert done.out.strip() == "flame-0.svg" and Path("flame-0.svg").read_text() == "<svg/>"
    assert "127.0.0.1:5678" in cli("debug", "attach", job["id"]).out


def test_apply_shows_a_plan_checks_all_and_asks(cli: Call, server: StandIn, script: Path) -> None:
    Path("jobs.yaml").write_text(
        "name: a\nrun: python train.py\n---\nname: b\nrun: [python, train.py]\n"
    )
    done = cli("apply", "-f", "jobs.yaml")
    assert done.code == 2 and "-y" in done.err and not server.jobs
    assert cli("apply", "-f", "jobs.yaml", "--dry-run").code == 0 and not server.jobs
    done = cli("apply", "-f", "jobs.yaml", "-y", "-o", "name")
    assert done.out.split() == ["a", "b"]
    assert "+ job a: python train.py" in done.err or "+ job a" in done.err
    Path("bad.yaml").write_text("name: c\nrun: x\n---\nname: d\nrunn: x\n")
    done = cli("apply", "-f", "bad.yaml", "-y")
    assert done.code == 2 and "did you mean 'run'?" in done.err and len(server.jobs) == 2


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["nope"], 2, "No command 'nope'"),
        (["stpo"], 2, "Did you mean `stop`?"),
        (["train.py"], 2, "windlass run train.py"),
        (["ps", "--stat", "x"], 2, "No such option"),
        (["ps", "--state", "sleeping"], 2, "'held', 'queued', 'starting'"),
        (["ps", "-o", "xml"], 2, "'table', 'json'"),
        (["run"], 2, "nothing to run"),
        (["run", "missing.py"], 2, "no such file: missing.py"),
        (["run", "--workers", "0", "x"], 2, "--workers"),
        (["apply", "-f", "missing.yaml"], 2, "missing.yaml cannot be read: No such file"),
        (["show", "nothing"], 102, "no job 'nothing'"),
        (["show", "-"], 102, "no last job yet"),
        (["submit", "--name", "bad", "true"], 2, "spec.name: 'bad' is not allowed"),
        (["wait", "--timeout", "soon", "x"], 2, "--timeout: 'soon'"),
        (["config", "get", "colour"], 2, "no setting 'colour'; known: url"),
    ],
)
def test_mistakes_are_one_line_and_a_hint_never_a_trace(
    cli: Call, server: StandIn, words: list[str], code: int, says: str
) -> None:
    done = cli(*words)
    assert done.code == code
    assert says in done.err and "Traceback" not in done.err
    assert done.out == ""
    assert len(done.err.splitlines()) <= 3


def test_errors_in_json_are_json(cli: Call, server: StandIn) -> None:
    for words in (["show", "nothing", "-o", "json"], ["ps", "--bad", "-o", "json"]):
        done = cli(*words)
        assert set(json.loads(done.out)["error"]) >= {"code", "message"}
        assert done.err == ""


def test_no_server_is_105_and_names_the_next_step(
    cli: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WINDLASS_ACCESS_KEY", "a")
    monkeypatch.setenv("WINDLASS_SECRET_KEY", "b")
    done = cli("ps")
    assert done.code == 105 and "windlass up" in done.err


def test_a_bug_of_ours_is_owned_up_to_and_traced_only_on_wish(
    cli: Call, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("kaput")

    monkeypatch.setattr("windlass.client.jobs.Jobs.list", broken)
    done = cli("ps")
    assert done.code == 1 and "bug in windlass" in done.err and "Traceback" not in done.err
    monkeypatch.setenv("WINDLASS_DEBUG", "1")
    assert "Traceback" in cli("ps").err


# -- the rest --------------------------------------------------------------------------------


def test_config_tells_where_a_setting_came_from(cli: Call, home: Path) -> None:
    assert cli("config", "set", "project", "vision").code == 0
    assert cli("config", "get", "project").out == "vision\n"
    done = cli("config", "get", "--origin")
    assert "config.toml" in done.out and "default" in done.out
    assert str(home) in cli("config", "path").out
    items = json.loads(cli("config", "get", "-o", "json").out)["items"]
    assert {"name": "project", "value": "vision", "origin": str(home / "config.toml")} in items


def test_init_writes_once(cli: Call, script: Path) -> None:
    assert cli("init").code == 0
    assert "python train.py --lr ${lr}" in Path("job.yaml").read_text()
    assert cli("init").code == 1
    assert cli("init", "--force").code == 0
    assert cli("init", "--dry-run").out.startswith("# A job of windlass")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_the_shells_own(cli: Call, shell: str) -> None:
    done = cli("completion", shell)
    assert done.code == 0 and "_WINDLASS_COMPLETE" in done.out


def test_tab_offers_jobs_from_the_cache_and_never_hangs(
    cli: Call, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    import click

    from windlass.cli.completion import complete_job
    from windlass.cli.show import command

    job = server.job("running")
    context = click.Context(command)
    offered = complete_job(context, command.params[0], "bris")
    assert [item.value for item in offered] == [job["name"]], "asked once"
    asked = len(server.requests)
    assert [i.value for i in complete_job(context, command.params[0], job["id"][:4])] == [
        job["id"][:12]
    ]
    assert len(server.requests) == asked, "then from the cache"
    monkeypatch.setenv("WINDLASS_URL", "http://127.0.0.1:9")
    assert complete_job(context, command.params[0], "") == []


def test_status_doctor_and_version(cli: Call, server: StandIn) -> None:
    status = json.loads(cli("status", "-o", "json").out)
    assert {"pid", "url", "version"} <= set(status)
    assert "1 of 2 GPU free" in cli("status").out
    doctor = json.loads(cli("doctor", "-o", "json").out)
    names = {check["name"]: check for check in doctor["checks"]}
    assert {"python", "disk", "key", "server", "sign-in", "gpu", "cgroups"} <= set(names)
    assert names["sign-in"]["state"] == "ok"
    assert cli("version", "-q").out.strip() == windlass.__version__
    assert cli("--version").out.strip() == f"windlass {windlass.__version__}"


def test_every_command_of_the_table_exists_and_says_the_same_of_itself(cli: Call) -> None:
    import click

    from windlass.cli.main import windlass_group

    context = click.Context(windlass_group)
    for name, (_, words) in COMMANDS.items():
        found = windlass_group.get_command(context, name)
        assert found is not None and (found.help or "").splitlines()[0] == words, name
        done = cli(name, "--help")
        assert done.code == 0 and words.split(":")[0] in done.out.replace("\n ", "")
