"""Whose runs are brought in from offline folders: an id is a claim, and no proof."""

from __future__ import annotations

from typing import Any

import pytest
from runs_scene import Runs, run_id

from windlass.core.access import CallerKind, Principal, ProjectRole, rights_in
from windlass.core.errors import Forbidden, NotFound
from windlass.server.runs import jobs, offline
from windlass.server.runs.offline import OfflineLines
from windlass.server.runs.tables import experiments, params
from windlass.server.runs.tables import runs as rows

LINES = [{"kind": "metric", "t": 1, "step": 0, "values": {"loss": "NaN", "acc": 0.5}}]


def member(
    name: str, project: str = "d" * 32, role: ProjectRole = ProjectRole.MEMBER
) -> Principal:
    return Principal(
        kind=CallerKind.USER, project_id=project, project_name="p", user_id=name, user_name=name,
        rights=rights_in(None, role),
    )  # fmt: skip


def body(offset: int = 0, end: int = 80) -> OfflineLines:
    return OfflineLines(
        name="away", started_ms=5, offset=offset, end=end, lines=tuple(LINES),
        params={"argv": {"lr": "0.1"}},
    )  # fmt: skip


def test_a_folder_that_is_brought_twice_is_there_once(runs: Runs) -> None:
    for _ in range(2):
        assert runs.write(lambda conn: offline.keep(conn, member("ada"), run_id(1), body())) == 80
    assert [len(each.points) for each in runs.series(run_id(1))] == [1, 1]


def test_nobody_adds_to_a_run_that_another_brought(runs: Runs) -> None:
    runs.write(lambda conn: offline.keep(conn, member("ada"), run_id(1), body()))
    more = body(80, 160)
    with pytest.raises(Forbidden, match="brought by ada"):
        runs.write(lambda conn: offline.keep(conn, member("eve"), run_id(1), more))
    with pytest.raises(NotFound):
        other = member("ada", "e" * 32)
        runs.write(lambda conn: offline.keep(conn, other, run_id(1), more))
    chief = member("eve", role=ProjectRole.MAINTAINER)
    assert runs.write(lambda conn: offline.keep(conn, chief, run_id(1), more)) == 160


def test_the_run_of_a_job_or_of_a_client_is_no_offline_run(runs: Runs) -> None:
    for number, source in ((1, "job"), (2, "mlflow")):
        runs.run(number, source=source)
        with pytest.raises(NotFound):
            who = member("ada")
            runs.write(
                lambda conn, who=who, number=number: offline.keep(  # type: ignore[misc]
                    conn, who, run_id(number), body()
                )
            )


def test_a_run_is_made_once_and_says_so(runs: Runs) -> None:
    def make() -> bool:
        return runs.write(
            lambda conn: jobs.ensure(
                conn, run_id(7), project_id="d" * 32, name="n", user="ada", started_ms=1
            )
        )

    assert [make(), make()] == [True, False]


def test_a_job_gives_its_runs_its_parameters_and_its_experiment(runs: Runs) -> None:
    job = {
        "id": run_id(3), "project_id": "d" * 32, "name": "j", "started_ms": None,
        "spec": {"params": {"lr": 0.1}},
    }  # fmt: skip
    for at in range(2):  # a second attempt
        runs.write(
            lambda conn, at=at: jobs.begin(  # type: ignore[misc]
                conn, job, user="ada", experiment="long " * 200, now_ms=at
            )
        )
    given = runs.read(lambda conn: conn.execute(params.select()).mappings().all())
    assert [(row["key"], row["value"]) for row in given] == [("lr", "0.1")]
    made = runs.read(lambda conn: conn.execute(experiments.select()).mappings().one())
    home = runs.read(lambda conn: conn.execute(rows.select()).mappings().one())
    assert home["experiment_id"] == made["id"] and len(made["name"]) == 500


def test_a_job_that_waits_is_no_offline_run(tenancy: Any) -> None:
    job = tenancy.submit("waits")
    with pytest.raises(NotFound):
        tenancy.read(lambda conn: offline.refuse_jobs(conn, job))
    tenancy.read(lambda conn: offline.refuse_jobs(conn, run_id(9)))
