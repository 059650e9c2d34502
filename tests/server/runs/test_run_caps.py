"""How many names a run may have: what is past that is cut and told, or refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from runs_scene import PROJECT, Runs, run_id
from sqlalchemy import select

from windlass.server.runs import caps, jobs, service
from windlass.server.runs.tables import experiments, latest, params, tags
from windlass.server.runs.tables import runs as runs_table


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caps, "MOST", 5)
    monkeypatch.setattr(caps, "MOST_EXPERIMENTS", 2)


def spool(runs: Runs, lines: list[Any], offset: int = 0) -> None:
    batch = service.sort(lines, job_id=run_id(1), attempt=1, rank=0, offset=offset)
    end = offset + len(lines)
    runs.write(
        lambda conn: service.keep(conn, batch, job_id=run_id(1), attempt=1, rank=0, end=end)
    )


def keys(runs: Runs, table: Any) -> dict[str, Any]:
    query = select(table.c.key, table.c.value).where(table.c.run_id == run_id(1))
    return {row.key: row.value for row in runs.read(lambda conn: conn.execute(query).all())}


def metric(**values: float) -> dict[str, Any]:
    return {"kind": "metric", "t": 1, "values": values}


def test_keys_past_the_most_are_left_out_and_the_run_says_so(runs: Runs) -> None:
    spool(runs, [metric(**{f"k{at}": at for at in range(4)})])
    spool(runs, [metric(k0=9, k9=1), metric(k8=1, k7=1)], offset=1)
    spool(runs, [metric(k1=8, k7=2)], offset=3)
    assert keys(runs, latest) == {"k0": 9, "k1": 8, "k2": 2, "k3": 3, "k9": 1}, "old ones go on"
    told = keys(runs, tags)
    assert told == {caps.LEFT_OUT: (
        "metric keys past 5 are left out, such as k8\nmetric keys past 5 are left out, such as k7"
    )}  # fmt: skip


def test_parameters_and_tags_too(runs: Runs) -> None:
    many = {f"p{at}": at for at in range(7)}
    spool(runs, [{"kind": "param", "values": many}, {"kind": "tag", "values": many}])
    assert set(keys(runs, params)) == {f"p{at}" for at in range(5)}
    found = keys(runs, tags)
    assert set(found) == {*(f"p{at}" for at in range(5)), caps.LEFT_OUT}
    assert "parameters past 5" in found[caps.LEFT_OUT] and "tags past 5" in found[caps.LEFT_OUT]


def test_a_job_whose_experiment_has_no_room_runs_in_the_default_one_and_says_so(
    runs: Runs,
) -> None:
    def begin(number: int, name: str) -> None:
        job = {
            "id": run_id(number), "project_id": PROJECT, "name": "x", "spec": {}, "started_ms": 1,
        }  # fmt: skip
        runs.write(lambda conn: jobs.begin(conn, job, user="a", experiment=name, now_ms=1))

    for number, name in ((2, "one"), (3, "two"), (1, "three"), (4, "two")):
        begin(number, name)
    joined = experiments.c.id == runs_table.c.experiment_id
    query = select(runs_table.c.id, experiments.c.name).outerjoin(experiments, joined)
    rows = runs.read(lambda conn: conn.execute(query).all())
    found = {row.id: row.name for row in rows}
    assert found == {run_id(2): "one", run_id(3): "two", run_id(1): None, run_id(4): "two"}
    assert "the project has 2" in keys(runs, tags)[caps.LEFT_OUT]


def test_what_is_known_of_keys_is_bounded() -> None:
    known = caps.Known(most=4)
    known.add("a", ["x", "y", "z"])
    known.add("b", ["x", "y"])
    assert known.missing("a", ["x"]) == ["x"], "forgotten: it is looked up again"
    assert known.missing("b", ["x", "q"]) == ["q"]
