"""Queues and quotas against a real server: the commands, the SDK and the API itself."""

from __future__ import annotations

import json

import pytest

from windlass.core.errors import Conflict, NotFound
from windlass.testing.platform import Platform, wait_for


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    where = tmp_path_factory.mktemp("queues") / "home"
    with Platform(where, "--fake-nodes", "2", "--fake-gpus", "2") as running:
        yield running


def called(platform, *words, code=0):
    done = platform.cli(*words)
    assert done.returncode == code, done.stderr
    return done


def test_a_queue_lives_from_set_to_rm(platform):
    assert "night: strict, open" in called(platform, "queue", "set", "night", "--policy",
                                           "strict").stdout  # fmt: skip
    called(platform, "queue", "pause", "night")
    assert platform.client.queues.get("night").paused
    called(platform, "queue", "resume", "night")
    listed = json.loads(called(platform, "queue", "ls", "-o", "json").stdout)["items"]
    assert [queue["name"] for queue in listed] == ["default", "night"]
    held = platform.submit("true", name="in-night", queue={"name": "night"}, hold=True)
    assert (held.queue, held.priority, held.work) == ("night", 50, "train")
    refused = called(platform, "queue", "rm", "night", code=1)
    assert "queue night has 1 unfinished job" in refused.stderr
    platform.client.jobs.stop(held.id)
    platform.wait(held)
    called(platform, "queue", "rm", "night")
    called(platform, "queue", "show", "night", code=102)
    called(platform, "queue", "pause", "night", code=102)


def test_a_job_for_an_unknown_queue_is_refused_also_dry(platform):
    for words in (["submit"], ["submit", "--dry-run"]):
        done = called(platform, *words, "--no-code", "--queue", "defualt", "true", code=2)
        assert "no queue 'defualt'; known: default" in done.stderr
        assert "did you mean default?" in done.stderr


SLEEP = "sleep 600"
ALL = {"worker": {"count": 2, "gpus": 2, "nproc": 1}}
ONE = {"worker": {"gpus": 1, "nproc": 1}}


def end(platform, *names):
    for name in names:
        platform.client.jobs.stop(name, now=True)
        platform.wait(name)


def waits(platform, name, reason):
    """The job's place in the line, once it waits for this reason."""

    def look():
        line = platform.client.queues.line()["waiting"]
        return next((j for j in line if (j["name"], j["reason"]) == (name, reason)), None)

    return wait_for(look, 10, f"{name}: {reason}")


def test_a_paused_queue_starts_nothing_until_it_is_resumed(platform):
    called(platform, "queue", "pause")
    platform.submit("true", name="patient")
    waits(platform, "patient", "paused")
    assert "paused" in called(platform, "why", "patient").stdout
    called(platform, "queue", "resume")
    assert platform.wait("patient").state == "succeeded"


def test_a_quota_makes_jobs_wait_and_ends_none(platform):
    quotas = platform.client.quotas
    quotas.set("default", nominal={"gpus": 1})
    platform.submit(SLEEP, name="within", roles=ONE)
    platform.wait_state("within", "running")
    platform.submit(SLEEP, name="over", roles=ONE)
    assert waits(platform, "over", "waiting-quota")["missing"] == {"gpus": 1000}
    assert quotas.get("default").used == {"gpus": 1}
    quotas.set("default", nominal={"gpus": 2})
    platform.wait_state("over", "running")
    quotas.set("default", nominal={"gpus": 0})
    platform.submit(SLEEP, name="late", roles=ONE)
    platform.wait_state("late", "queued")
    assert {platform.client.jobs.get(name).state for name in ("within", "over")} == {"running"}
    quotas.delete("default")
    platform.wait_state("late", "running")
    end(platform, "within", "over", "late")


def test_who_is_moved_to_the_front_starts_first(platform):
    platform.submit(SLEEP, name="blocker", roles=ALL, queue={"preemptible": False})
    platform.wait_state("blocker", "running")
    for name in ("first", "second", "third"):
        platform.submit(SLEEP, name=name, roles=ALL)
        platform.wait_state(name, "queued")

    def line():
        found = platform.client.queues.line()
        assert found["order"] == "scheduler"
        return [job["name"] for job in found["waiting"]]

    wait_for(lambda: line() == ["first", "second", "third"], 10, "they wait in their order")
    called(platform, "queue", "move", "third", "--first")
    wait_for(lambda: line() == ["third", "first", "second"], 10, "the third is first")
    called(platform, "queue", "priority", "second", "90")
    wait_for(lambda: line() == ["second", "third", "first"], 10, "the second is first")
    end(platform, "blocker")
    platform.wait_state("second", "running")
    end(platform, "third", "first", "second")


def test_the_line_is_shown_and_changed(platform):
    jobs = platform.client.jobs
    for name in ("one", "two", "three"):
        platform.submit("true", name=name, hold=True, roles={"worker": {"gpus": 1}})
    called(platform, "queue", "move", "three", "--before", "two")
    called(platform, "queue", "priority", "two", "-7")
    line = json.loads(called(platform, "queue", "show", "-o", "json").stdout)
    assert [job["name"] for job in line["waiting"]] == ["one", "three", "two"]
    assert [job["position"] for job in line["waiting"]] == [1, 2, 3]
    assert line["waiting"][2]["priority"] == -7 and line["waiting"][0]["reason"] == "held"

    def gpus():
        found = platform.client.queues.line()["supply"]
        return next(each for each in found if each["resource"] == "gpus")

    whole = {"resource": "gpus", "total": 4.0, "free": 4.0}
    wait_for(lambda: gpus() == whole, 30, "the scheduler has heard of the last test's ends")
    drawn = called(platform, "queue", "show").stdout
    assert "Waiting (3)" in drawn and "4 free" in drawn
    kinds = [event["kind"] for event in jobs.events("two")]
    assert kinds == ["submitted", "requeued"]
    assert called(platform, "queue", "move", "two", code=2).stderr.startswith("windlass: move it")
    called(platform, "queue", "move", "nobody", "--first", code=102)
    for name in ("one", "two", "three"):
        jobs.stop(name)
        platform.wait(name)
    called(platform, "queue", "move", "two", "--first", code=1)
    called(platform, "queue", "priority", "two", "1", code=1)


def test_quotas_are_exported_changed_and_applied(platform, tmp_path):
    called(platform, "quota", "set", "research", "--as-cohort")
    called(platform, "quota", "set", "default", "--cohort", "research", "--gpus", "2",
           "--memory", "1GiB", "--borrow", "gpus=1", "--cap", "notebook:gpus=0.5")  # fmt: skip
    called(platform, "quota", "set", "default", "--weight", "2", "--borrow", "gpus=none")
    text = called(platform, "quota", "ls", "-o", "yaml").stdout
    path = tmp_path / "quotas.yaml"
    path.write_text(text)
    assert "nothing to change" in called(platform, "quota", "apply", "-f", str(path)).stderr
    path.write_text(text.replace("gpus: 2", "gpus: 3"))
    dry = called(platform, "quota", "apply", "-f", str(path), "--dry-run")
    assert "~ default: nominal gpus 2, memory 1GiB → gpus 3, memory 1GiB" in dry.stderr
    called(platform, "quota", "apply", "-f", str(path), code=2)
    called(platform, "quota", "apply", "-f", str(path), "-y")
    found = platform.client.quotas.get("default")
    assert found.nominal == {"gpus": 3, "memory": "1GiB"} and found.borrow == {}
    assert (found.weight, found.parent, found.exists) == (2, "research", True)
    assert found.caps == ({"kind": "notebook", "user": None, "limits": {"gpus": 0.5}},)
    assert "cap: notebook: gpus 0.5" in called(platform, "quota", "show", "default").stdout
    called(platform, "quota", "rm", "research", code=1)
    called(platform, "quota", "rm", "default", "research")
    called(platform, "quota", "show", "default", code=102)
    called(platform, "quota", "set", "x", "--gpus", "many", code=2)


def test_the_sdk_keeps_what_is_not_named_and_sees_conflicts(platform):
    quotas, queues = platform.client.quotas, platform.client.queues
    quotas.set("vision", nominal={"gpus": 4}, weight=3)
    quotas.set("vision", nominal={"cpus": 8})
    assert quotas.get("vision").nominal == {"gpus": 4, "cpus": 8}
    seen = quotas.revision()
    quotas.set("vision", nominal={"cpus": None})
    with pytest.raises(Conflict):
        quotas.set("vision", weight=1, revision=seen)
    assert quotas.export() == {"cohorts": {}, "tenants": {"vision": {"nominal": {"gpus": 4},
                                                                     "weight": 3}}}  # fmt: skip
    assert quotas.apply({"cohorts": {}}, revision=quotas.revision()) == []
    queue = queues.set("day", description="short")
    assert queues.set("day", policy="best-effort").description == "short"
    with pytest.raises(Conflict):
        queues.set("day", policy="strict", revision=queue.revision)
    queues.delete("day")
    with pytest.raises(NotFound):
        queues.delete("day")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/queues/Default", None, 422),
        ("GET", "/queues/default/jobs?limit=0", None, 422),
        ("GET", "/queues/default/jobs?limit=2000", None, 422),
        ("PUT", "/queues/default", {"policy": "fifo"}, 422),
        ("PUT", "/queues/a%2Fb", {}, 404),
        ("DELETE", "/queues/default", None, 409),
        ("PUT", "/quotas/a", {"nominal": {"gpus": -1}}, 422),
        ("PUT", "/quotas/a", {"nominal": {"gpus": 1e300}}, 422),
        ("PUT", "/quotas/a", {"nominal": {"tpus": 1}}, 422),
        ("PUT", "/quotas/a", {"parent": "nowhere"}, 422),
        ("PUT", "/quotas/a", {"parent": "a", "cohort": True}, 422),
        ("PUT", "/quotas", {"cohorts": {"a": {"parent": "b"}, "b": {"parent": "a"}}}, 422),
        ("PUT", "/quotas", {"tenants": {"é": {}}}, 422),
        ("POST", "/jobs/nobody/move", {"first": True}, 404),
        ("POST", "/jobs/nobody/move", {}, 422),
        ("POST", "/jobs/nobody/priority", {"priority": 2**40}, 422),
        ("POST", "/jobs/nobody/priority", {"priority": "5"}, 422),
    ],
)
def test_a_bad_call_is_answered_with_the_reason(platform, method, path, body, status):
    answer = platform.call(method, path, body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


def test_ten_thousand_quotas_pass_through_the_api(platform):
    tenants = {f"t{at}": {"nominal": {"gpus": at % 9}} for at in range(10_000)}
    assert len(platform.client.quotas.apply({"cohorts": {"all": {"tenants": tenants}}})) == 10_001
    assert platform.client.quotas.export()["cohorts"]["all"]["tenants"]["t17"] == {
        "nominal": {"gpus": 8}
    }
    platform.client.quotas.apply({"cohorts": {}})
