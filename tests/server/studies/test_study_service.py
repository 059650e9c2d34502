"""Studies in a real database of either kind: made, tended, stopped, without a process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update

from windlass.core.access import CallerKind, OrgRole, Principal
from windlass.core.errors import Conflict, Forbidden, InvalidInput, KeyReused, NotFound
from windlass.core.studies import StudySpec
from windlass.server.access.tables import users
from windlass.server.clock import Clock
from windlass.server.jobs import service as jobs_service
from windlass.server.jobs.tables import jobs
from windlass.server.limits.tables import limits
from windlass.server.runs import latest
from windlass.server.runs.tables import tracking as tracking_tables
from windlass.server.store.open import open_store
from windlass.server.studies import service, views
from windlass.server.studies.asking import Sampling
from windlass.server.studies.tables import studies
from windlass.server.studies.tuning import Tuning


class Now(Clock):
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


class Scene:
    """A study's owner over real stores; jobs end when a test says so."""

    def __init__(self, tenancy: Any, tracking: Any) -> None:
        self.tenancy, self.tracking = tenancy, tracking
        self.who = tenancy.who
        self.clock = Now()
        self.wished: list[str] = []
        tenancy.write(
            lambda conn: conn.execute(
                update(users).where(users.c.id == self.who.user_id).values(role=OrgRole.OWNER)
            )
        )

    def create(self, *, key: str | None = None, **fields: Any) -> Any:
        spec = StudySpec.model_validate(
            {"job": {"run": "train"}, "space": {"x": "float:0..1"}, "minimize": "loss",
             "sampler": "random", **fields}
        )  # fmt: skip
        return self.tenancy.write(
            lambda conn: service.create(
                conn, self.who, spec, "python", key=key,
                digest=jobs_service.digest_of(fields.get("trials")), now_ms=self.clock.ms,
            )
        )  # fmt: skip

    def turn(self, times: int = 1) -> int | None:
        """Each with an owner of its own: as if the server had died between any two."""

        async def one() -> int | None:
            sampling = Sampling()
            owner = Tuning(
                self.tenancy.store, self.tracking, self.clock, sampling,
                guard=lambda conn: None, wished=self.wished.append, checkpoints_of=Path,
            )  # fmt: skip
            try:
                return await owner.turn()
            finally:
                await sampling.close()

        due = None
        for _ in range(times):
            due = asyncio.run(one())
        return due

    def row(self, ref: str) -> dict[str, Any]:
        return self.tenancy.read(lambda conn: service.find(conn, self.who, ref))

    def listed_best(self, ref: str) -> list[int] | None:
        """As the list of studies tells it; None: it does not."""
        rows = [self.row(ref)]
        ids = views.with_one_objective(rows)
        results = self.tenancy.read(lambda conn: service.results(conn, ids))
        found = views.best_of(rows, results).get(rows[0]["id"])
        return None if found is None else [past.number for past in found]

    def trials(self, ref: str) -> list[dict[str, Any]]:
        return self.tenancy.read(
            lambda conn: service.trials_of(conn, service.find(conn, self.who, ref)["id"])
        )

    def states(self, ref: str) -> list[str]:
        return [row["state"] for row in self.trials(ref)]

    def job(self, trial: dict[str, Any]) -> dict[str, Any]:
        return self.tenancy.read(
            lambda conn: dict(
                conn.execute(select(jobs).where(jobs.c.id == trial["job_id"])).mappings().one()
            )
        )

    def log(self, trial: dict[str, Any], **values: float) -> None:
        self.report(trial, 1, **values)

    def report(self, trial: dict[str, Any], step: int, **values: float) -> None:
        points = [
            {"run_id": trial["job_id"], "key": key, "rank": 0, "attempt": 1, "offset": step,
             "step": step, "at_ms": step, "value": value}
            for key, value in values.items()
        ]  # fmt: skip
        asyncio.run(self.tracking.write(lambda conn: latest.add(conn, points, "windlass.log")))

    def becomes(self, trial: dict[str, Any], state: str, reason: str = "") -> None:
        """As the owners of jobs would do it; nothing runs here."""
        self.tenancy.write(
            lambda conn: conn.execute(
                update(jobs)
                .where(jobs.c.id == trial["job_id"])
                .values(state=state, reason=reason, wish=None)
            )
        )


@pytest.fixture
def scene(tenancy: Any, tmp_path: Any) -> Any:
    tracking = asyncio.run(
        open_store(f"sqlite:///{tmp_path}/tracking.db", migrate=False, create=tracking_tables)
    )
    yield Scene(tenancy, tracking)
    asyncio.run(tracking.close())


def test_a_trial_is_a_job_made_with_its_row(scene: Scene) -> None:
    scene.create(name="first", trials=5, parallel=2)
    scene.turn()
    made = scene.trials("first")
    assert [row["state"] for row in made] == ["running", "running"]
    assert [scene.job(row)["name"] for row in made] == ["first-0", "first-1"]
    assert scene.job(made[0])["spec"]["run"] == ["train", "--x", str(made[0]["params"]["x"])]
    scene.turn(3)
    assert len(scene.trials("first")) == 2, "no more than `parallel`"


def test_every_end_of_a_job_is_a_result_and_the_study_ends_with_the_last(scene: Scene) -> None:
    scene.create(name="ends", trials=5, parallel=5)
    scene.turn(2)
    good, silent, crashed, stopped, gone = scene.trials("ends")
    for trial in (good, stopped):
        scene.log(trial, loss=0.5)
    scene.becomes(good, "succeeded")
    scene.becomes(silent, "succeeded")
    scene.becomes(crashed, "failed", "it exited with 3")
    scene.becomes(stopped, "cancelled", "stopped by ann")
    scene.tenancy.write(lambda conn: conn.execute(delete(jobs).where(jobs.c.id == gone["job_id"])))
    scene.turn(2)
    assert scene.states("ends") == ["succeeded", "failed", "failed", "cancelled", "failed"]
    reasons = [row["reason"] for row in scene.trials("ends")]
    assert "windlass.log(loss=…)" in reasons[1] and reasons[2] == "it exited with 3"
    assert scene.row("ends")["state"] == "finished"
    shown = views.study_detail(scene.row("ends"), scene.trials("ends"))
    assert (shown.best, shown.best_values, shown.curve) == ((0,), (0.5,), ((0, 0.5),))
    assert scene.listed_best("ends") == [0]


def test_a_list_of_studies_tells_the_best_of_those_that_have_one(scene: Scene) -> None:
    scene.create(name="one", trials=3, parallel=3, maximize="acc", minimize=())
    scene.create(name="two", trials=1, objectives=None, minimize=("loss", "size"))
    scene.create(name="none", trials=1)
    scene.turn(2)
    for trial, acc in zip(scene.trials("one"), (0.2, 0.9, 0.5), strict=True):
        scene.log(trial, acc=acc)
        scene.becomes(trial, "succeeded")
    scene.turn(2)
    assert scene.listed_best("one") == [1], "the highest, where that is the aim"
    assert scene.listed_best("two") is None, "of two objectives there is no single best"
    assert scene.listed_best("none") == []


def test_a_paused_trial_frees_its_place_and_is_promoted_later(scene: Scene) -> None:
    scene.create(name="rungs", trials=3, parallel=1, pruner={"kind": "asha", "max_step": 9})
    for number, loss in enumerate((1.0, 5.0, 6.0)):
        scene.turn(2)
        trial = scene.trials("rungs")[number]
        scene.report(trial, 1, loss=loss)
        scene.turn()
        assert scene.states("rungs")[number] == "pausing"
        assert scene.job(trial)["wish"] == "hold" and trial["job_id"] in scene.wished
        scene.becomes(trial, "held")
    scene.turn(2)
    assert scene.states("rungs") == ["running", "paused", "paused"]
    first = scene.trials("rungs")[0]
    assert scene.job(first)["wish"] == "release" and first["rung"] == 1
    scene.becomes(first, "succeeded")
    scene.turn(2)
    assert scene.states("rungs") == ["succeeded", "stopping", "stopping"]
    for trial in scene.trials("rungs")[1:]:
        assert scene.job(trial)["wish"] == "cancel"
        scene.becomes(trial, "cancelled")
    scene.turn(2)
    assert scene.states("rungs") == ["succeeded", "pruned", "pruned"]
    assert scene.row("rungs")["state"] == "finished"


def test_a_paused_trial_that_somebody_released_is_a_running_one(scene: Scene) -> None:
    scene.create(name="hand", trials=1, pruner="asha")
    scene.turn()
    [trial] = scene.trials("hand")
    scene.report(trial, 1, loss=1.0)
    scene.turn()
    scene.becomes(trial, "held")
    scene.tenancy.write(  # more are to come: it is not pruned at once
        lambda conn: conn.execute(update(studies).values(target=9))
    )
    scene.turn()
    assert scene.states("hand")[0] == "paused"
    scene.becomes(trial, "running")
    scene.turn()
    assert scene.states("hand")[0] in ("running", "pausing")


def test_a_study_that_is_stopped_stops_its_trials_first(scene: Scene) -> None:
    scene.create(name="stop", trials=9, parallel=2)
    scene.turn()
    scene.tenancy.write(
        lambda conn: service.stop(conn, scene.who, "stop", "stopped by owner", scene.clock.ms)
    )
    scene.turn(3)
    assert scene.row("stop")["state"] == "stopping" and len(scene.trials("stop")) == 2
    assert [scene.job(row)["wish"] for row in scene.trials("stop")] == ["cancel", "cancel"]
    first, second = scene.trials("stop")
    scene.log(first, loss=1.0)
    scene.becomes(first, "succeeded")
    scene.becomes(second, "cancelled")
    scene.turn(2)
    assert scene.states("stop") == ["succeeded", "cancelled"]
    assert scene.row("stop")["state"] == "stopped"
    scene.tenancy.write(
        lambda conn: service.add_trials(conn, scene.who, "stop", 1, scene.clock.ms)
    )
    scene.turn(2)
    assert scene.row("stop")["state"] == "running" and len(scene.trials("stop")) == 4


def test_a_study_that_is_removed_stops_its_trials_and_goes(scene: Scene) -> None:
    scene.create(name="gone", trials=2, parallel=2)
    scene.turn()
    remove = lambda conn: service.remove(conn, scene.who, "gone", scene.clock.ms)  # noqa: E731
    scene.tenancy.write(remove)
    scene.turn(2)
    for trial in scene.trials("gone"):
        scene.becomes(trial, "cancelled")
    scene.turn(2)
    with pytest.raises(NotFound):
        scene.row("gone")
    scene.create(name="gone")  # its name is free again


def test_a_limit_on_live_jobs_is_waited_for_and_told(scene: Scene) -> None:
    held = [{"user": None, "kind": None, "jobs": 2}]
    scene.tenancy.write(
        lambda conn: conn.execute(
            insert(limits).values(project="default", limits=held, revision=1, changed_ms=0)
        )
    )
    scene.create(name="limited", trials=4, parallel=4)
    due = scene.turn(2)
    assert len(scene.trials("limited")) == 2 and due is not None
    assert "may have 2 live" in scene.row("limited")["reason"]
    for trial in scene.trials("limited"):
        scene.log(trial, loss=1.0)
        scene.becomes(trial, "succeeded")
    scene.turn(2)
    assert scene.states("limited") == ["succeeded", "succeeded", "running", "running"]


def test_when_its_time_is_over_a_study_ends_with_what_it_has(scene: Scene) -> None:
    scene.create(name="late", trials=50, parallel=1, max_time="10s")
    assert scene.turn() is not None
    scene.clock.ms += 10_000
    scene.turn(2)
    [trial] = scene.trials("late")
    scene.becomes(trial, "cancelled")
    scene.turn(2)
    row = scene.row("late")
    assert (row["state"], row["reason"]) == ("finished", "its time is over")


def test_an_owner_who_may_no_more_makes_no_more_trials(scene: Scene) -> None:
    scene.create(name="left", trials=50, parallel=1)
    scene.tenancy.write(lambda conn: conn.execute(update(users).values(disabled=True)))
    scene.turn(3)
    row = scene.row("left")
    assert row["state"] == "failed" and "may not submit" in row["reason"]
    assert scene.trials("left") == []


def test_a_study_whose_trials_all_crash_fails(scene: Scene) -> None:
    scene.create(name="broken", trials=50, parallel=2, max_failures=2)
    scene.turn()
    for trial in scene.trials("broken"):
        scene.becomes(trial, "failed", "it exited with 1")
    scene.turn(3)
    row = scene.row("broken")
    assert row["state"] == "failed" and "all failed" in row["reason"] and row["made"] == 2


def test_the_same_key_makes_one_study_and_a_name_is_taken_once(scene: Scene) -> None:
    first, new = scene.create(name="once", key="k", trials=3)
    again, anew = scene.create(name="once", key="k", trials=3)
    assert new and not anew and first["id"] == again["id"]
    with pytest.raises(KeyReused):
        scene.create(name="once", key="k", trials=4)
    with pytest.raises(Conflict, match="there is a study once"):
        scene.create(name="once")


def test_another_study_is_learnt_from_as_it_was(scene: Scene) -> None:
    scene.create(name="old", trials=2, parallel=2)
    scene.turn()
    good, bad = scene.trials("old")
    scene.log(good, loss=0.5)
    scene.becomes(good, "succeeded")
    scene.becomes(bad, "failed")
    scene.turn(2)
    made, _ = scene.create(name="new", **{"from": "old"})
    assert made["warm"] == [{"params": good["params"], "values": [0.5]}]
    with pytest.raises(InvalidInput, match="from: no study"):
        scene.create(name="other", **{"from": "nothing"})
    with pytest.raises(InvalidInput, match="other objectives"):
        scene.create(name="other", minimize="else", **{"from": "old"})


def test_what_is_anothers_is_not_there_or_not_to_be_changed(scene: Scene) -> None:
    scene.create(name="mine")
    stranger = Principal(
        kind=CallerKind.USER, project_id="0" * 32, project_name="other", user_id="1" * 32
    )
    with pytest.raises(NotFound):
        scene.tenancy.read(lambda conn: service.find(conn, stranger, "mine"))
    member = Principal(
        kind=CallerKind.USER, project_id=scene.who.project_id, project_name="default",
        user_id="1" * 32, user_name="ann",
    )  # fmt: skip
    with pytest.raises(Forbidden, match="owner's"):
        scene.tenancy.write(lambda conn: service.stop(conn, member, "mine", "", 0))


def test_whoever_looked_before_a_change_writes_nothing(scene: Scene) -> None:
    made, _ = scene.create(name="race", trials=4, parallel=2)
    from windlass.server.studies import writing

    scene.turn()
    with pytest.raises(Conflict, match="changed meanwhile"):
        scene.tenancy.write(
            lambda conn: writing.change(conn, made, [], [], 0, checkpoints_of=Path, reason="late")
        )
    assert scene.row("race")["reason"] == ""


@pytest.mark.parametrize("what", ["its spec", "a trial"])
def test_a_study_that_cannot_be_read_stops_alone_and_fails_with_the_reason(
    scene: Scene, what: str
) -> None:
    scene.create(name="bad", trials=3, parallel=2)
    scene.turn()
    first, second = scene.trials("bad")
    garbled = text("UPDATE studies SET spec = '{\"kind' WHERE name = 'bad'")
    if what == "a trial":
        garbled = text("UPDATE trials SET \"values\" = '7]' WHERE number = 0")
    scene.tenancy.write(lambda conn: conn.execute(garbled) and None)
    scene.create(name="good", trials=3, parallel=2)
    scene.turn()
    assert len(scene.trials("good")) == 2
    assert scene.row("bad")["state"] == "stopping"
    assert [scene.job(trial)["wish"] for trial in (first, second)] == ["cancel", "cancel"]
    listed = views.study_view(scene.row("bad"), {})
    assert "not JSON" in listed.reason or "cannot be read" in listed.reason
    for trial in (first, second):
        scene.becomes(trial, "cancelled")
    scene.turn(3)
    assert scene.row("bad")["state"] == "failed"
    assert any(words in scene.row("bad")["reason"] for words in ("not JSON", "cannot be read"))
    assert scene.row("good")["state"] == "running"
