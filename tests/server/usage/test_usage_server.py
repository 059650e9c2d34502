"""Metering on a real server with real jobs: over kills, budgets, and what others may see."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.client import Client
from windlass.core.errors import Forbidden, InvalidInput, NotFound
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for

GPU = {"worker": {"count": 2, "gpus": 1, "cpus": 0.1, "memory": "64MiB"}}


ARGS = ("--fake-nodes", "2", "--fake-gpus", "2", "--currency", "EUR")


@pytest.fixture(scope="module")
def _spending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("spending") / "home", *ARGS) as platform:
        platform.client.usage.set_price("gpu", "3600")
        yield platform
        invariants.check(platform)


@pytest.fixture
def platform(_spending: Platform, tmp_path: Path) -> Iterator[Platform]:
    """One server for those who spend, each with gates of its own and nobody's budget."""
    _spending.evidence = tmp_path / "evidence"
    yield _spending
    invariants.one_live_attempt(_spending)
    for budget in _spending.client.usage.budgets():
        _spending.client.usage.delete_budget(budget["name"], kind=budget["kind"])


@pytest.fixture
def any_platform(tmp_path: Path, dialect: str, database_url: str) -> Iterator[Platform]:
    url = "" if dialect == "sqlite" else database_url
    with Platform(tmp_path / "home", *ARGS, database=url) as platform:
        yield platform
        invariants.check(platform)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One server for those who only look."""
    home = tmp_path_factory.mktemp("usage") / "home"
    with Platform(home, *ARGS) as platform:
        platform.client.usage.set_price("gpu", "3600")
        platform.client.usage.set_price("cpu", "36")
        platform.wait(platform.client.jobs.submit(run="true", roles=GPU, name="first"))
        yield platform


def test_a_killed_server_loses_no_second_and_counts_none_twice(any_platform: Platform) -> None:
    """S-I14 over kill -9: before the start is committed, while the job runs, before its end is."""
    platform = any_platform
    platform.client.usage.set_price("gpu", "36")
    gate = platform.gate()
    runs = platform.witness("until", gate, roles=GPU, name="runs")
    platform.wait_state(runs, "running")
    platform.kill()
    platform.env["WINDLASS_FAILPOINT"] = "before-start-commit:kill"
    platform.start()
    other = platform.witness("exit", 0, name="other", roles=GPU)
    assert platform.process is not None and platform.process.wait(120) == -9
    platform.kill()
    platform.env["WINDLASS_FAILPOINT"] = "before-over-commit:kill"
    platform.start()
    gate.touch()
    assert platform.process is not None and platform.process.wait(120) == -9
    platform.kill()
    platform.env.pop("WINDLASS_FAILPOINT")
    platform.start()
    for job in (runs, other):
        assert platform.wait(job).state == "succeeded"
    invariants.metered(platform)
    lines = platform.client.usage.report("job").lines
    assert {line.job for line in lines} == {"runs", "other"}
    assert all(line.gpu_seconds > 0 and line.cost_micro > 0 for line in lines)


def test_a_spent_budget_holds_what_is_new_and_lets_go_again(platform: Platform) -> None:
    client = platform.client
    gate = platform.gate()
    runs = platform.witness("until", gate, roles=GPU)
    platform.wait_state(runs, "running")
    wait_for(lambda: client.usage.report().total.cost_micro > 2_000_000, 20, "it costs something")
    client.usage.set_budget("default", "1")
    waits = client.jobs.submit(run="true", name="waits")
    why = platform.wait_why(waits, "budget of project default is spent")
    assert client.jobs.get(waits.id).state == "queued"
    assert client.jobs.get(runs.id).state == "running", "what runs goes on"
    assert why["next"] == "windlass usage budget ls"
    assert [item["warned"] for item in client.usage.budgets()] == [[50, 80, 100]]
    client.usage.set_budget("default", "1000000")
    assert platform.wait(waits).state == "succeeded"
    gate.touch()
    platform.wait(runs)


def test_a_budget_that_stops_makes_what_runs_save_and_wait(platform: Platform) -> None:
    client = platform.client
    gate = platform.gate()
    runs = platform.witness("until", gate, roles=GPU)
    platform.wait_state(runs, "running")
    client.usage.set_budget("owner", "0.5", kind="user", on_spent="stop")
    platform.wait_state(runs, "queued", seconds=40)
    platform.wait_why(runs, "budget of user owner is spent")
    gate.touch()
    client.usage.delete_budget("owner", kind="user")
    over = platform.wait(runs)
    assert (over.state, over.attempt) == ("succeeded", 2)


def test_a_job_is_stopped_at_its_limit_of_cost(platform: Platform) -> None:
    job = platform.witness("until", platform.gate(), roles=GPU, limits={"cost": 1})
    over = platform.wait(job, seconds=60)
    assert over.state == "cancelled" and over.reason.startswith("cost-limit: it cost ")
    shown = platform.cli("show", job.id).stdout
    assert " EUR" in shown and "cost" in shown


def test_a_report_says_what_was_held_and_used(quiet: Platform) -> None:
    report = quiet.client.usage.report("job")
    [line] = [line for line in report.lines if line.job == "first"]
    # Each is told in whole milliseconds; 10 x the CPU's has ten times the rounding.
    assert line.gpu_seconds == pytest.approx(10 * line.cpu_seconds, rel=0.01, abs=0.01)
    assert line.memory_byte_seconds == pytest.approx(2**26 * line.gpu_seconds, rel=0.01)
    assert line.peak_memory_bytes > 10**6
    assert report.currency == "EUR" and report.total.cost_micro >= line.cost_micro > 0


def test_what_is_asked_for_wrongly_is_refused(quiet: Platform) -> None:
    usage = quiet.client.usage
    with pytest.raises(InvalidInput, match="from: .*ISO-8601"):
        usage.report(since="yesterday")
    with pytest.raises(InvalidInput, match="before"):
        usage.report(since="2026-01-02T00:00:00Z", until="2026-01-01T00:00:00Z")
    with pytest.raises(NotFound, match="no project nowhere"):
        usage.report(project="nowhere")
    with pytest.raises(InvalidInput):
        usage.set_price("gold", "1")
    with pytest.raises(InvalidInput):
        usage.set_price("gpu", "-1")
    with pytest.raises(InvalidInput, match="past"):
        usage.set_price("gpu", "1", effective="2020-01-01T00:00:00Z")
    with pytest.raises(NotFound, match="no user nobody"):
        usage.set_budget("nobody", "1", kind="user")


def test_csv_is_what_spreadsheets_read(quiet: Platform) -> None:
    entries = quiet.cli("usage", "--by", "entry", "-o", "csv")
    assert entries.returncode == 0
    [text] = ["".join(quiet.client.usage.csv("entry"))]
    assert text.endswith("\r\n") and text.count("\r\n") == text.count("\n")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["job"] == "first" and rows[0]["currency"] == "EUR"
    assert float(rows[0]["gpu_seconds"]) > 0
    for by in ("project", "user", "job", "gpu", "pool", "day"):
        made = list(csv.DictReader(io.StringIO("".join(quiet.client.usage.csv(by)))))
        assert sum(float(row["gpu_seconds"]) for row in made) > 0


def test_the_command_line_shows_tables_and_json(quiet: Platform) -> None:
    for by in ("project", "user", "job", "gpu", "pool", "day"):
        shown = quiet.cli("usage", "--by", by, "--from", "2d")
        assert shown.returncode == 0 and "total" in shown.stdout, shown.stderr
    found = json.loads(quiet.cli("usage", "--by", "user", "-o", "json").stdout)
    assert found["api"] == 1 and found["rows"][0]["key"] == "owner"
    priced = quiet.cli("usage", "price", "set", "gpu:H200", "2.50", "--from", "2h")
    assert "coming" in priced.stdout and "2.50" in priced.stdout
    assert quiet.cli("usage", "price", "ls", "--all").returncode == 0
    assert quiet.cli("usage", "budget", "set", "default", "5000").returncode == 0
    listed = json.loads(quiet.cli("usage", "budget", "ls", "-o", "json").stdout)
    assert [item["amount"] for item in listed["items"]] == ["5000.00"]
    assert quiet.cli("usage", "budget", "rm", "default").returncode == 0
    wrong = quiet.cli("usage", "--by", "entry")
    assert wrong.returncode == 2 and "-o csv" in wrong.stderr
    assert quiet.cli("usage", "--from", "soon").returncode == 2


def test_others_see_their_project_alone(quiet: Platform) -> None:
    client = quiet.client
    client.projects.create("speech")
    client.users.create("bob", project="speech", project_role="maintainer")
    with client.http.speaking_for("speech"):
        key = client.keys.create(user="bob")
    with Client(
        quiet.url, access_key=key["access_key"], secret_key=key["secret_key"], project="speech"
    ) as bob:
        assert bob.usage.report().lines == ()
        assert "".join(bob.usage.csv("entry")).count("\n") == 1
        with pytest.raises(NotFound, match="no project default"):
            bob.usage.report(project="default")
        with pytest.raises(Forbidden):
            bob.usage.set_price("gpu", "0")
        with pytest.raises(Forbidden):
            bob.usage.set_budget("speech", "1")
        client.usage.set_budget("default", "900000")
        assert bob.usage.budgets() == []
        client.usage.delete_budget("default")
        assert bob.jobs.wait(bob.jobs.submit(run="true").id).state == "succeeded"
        assert [line.key for line in bob.usage.report().lines] == ["speech"]
    assert {line.key for line in client.usage.report().lines} == {"default", "speech"}
    assert [line.key for line in client.usage.report(project="speech").lines] == ["speech"]
