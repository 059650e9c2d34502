"""`windlass simulate`: figures to stdout, words to stderr, errors that name the cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from standin import Call

JOBS = "job,submit_s,duration_s,workers,gpus,tenant\n" + "".join(
    f"j{at},{at},{20 + at % 7},1,{1 + at % 2},t{at % 2}\n" for at in range(60)
)
NODES = "node,count,cpus,memory_gb,gpus\ng,2,32,64,4\n"


@pytest.fixture(autouse=True)
def files(home: Path) -> None:
    Path("jobs.csv").write_text(JOBS)
    Path("nodes.csv").write_text(NODES)


def test_the_figures_are_a_table_for_people(cli: Call) -> None:
    done = cli("simulate", "jobs.csv", "--nodes", "nodes.csv")
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].split() == ["jobs", "60"]
    assert "wait, mean" in done.out and "utilisation" not in done.err


def test_json_has_the_fixed_keys_and_says_what_was_asked(cli: Call) -> None:
    done = cli("simulate", "jobs.csv", "--nodes", "nodes.csv", "--limit", "20", "-o", "json")
    answer = json.loads(done.out)
    assert (answer["jobs"], answer["finished"]) == (20, 20)
    assert answer["invariant_violations"] == 0
    assert set(answer["by_tenant"]) == {"t0", "t1"}
    assert answer["plan"]["limit"] == 20


def test_what_if_stands_beside_what_is(cli: Call) -> None:
    done = cli(
        "simulate", "jobs.csv", "--nodes", "nodes.csv",
        "--what-if", "nodes=2", "--what-if", "policy=strict,order=fifo",
    )  # fmt: skip
    assert done.out.splitlines()[0].split() == [
        "AS",
        "GIVEN",
        "NODES=2",
        "POLICY=STRICT,ORDER=FIFO",
    ]
    done = cli(
        "simulate", "jobs.csv", "--nodes", "nodes.csv", "--what-if", "nodes=2", "-o", "json"
    )
    answer = json.loads(done.out)
    assert answer["what_if"][0]["change"] == "nodes=2"
    assert answer["what_if"][0]["wait_s"]["mean"] < answer["wait_s"]["mean"]


def test_quotas_can_be_read_and_set(cli: Call) -> None:
    Path("q.yaml").write_text(
        "cohorts: {c: {tenants: {t0: {nominal: {gpus: 1}, borrow: {gpus: 0}}, "
        "t1: {nominal: {gpus: 7}}}}}"
    )
    base = ("simulate", "jobs.csv", "--nodes", "nodes.csv", "--quotas", "q.yaml", "-o", "json")
    tight = json.loads(cli(*base).out)
    wide = json.loads(cli(*base, "--set", "t0.gpus=4", "--set", "t1.gpus=4").out)
    waits = [answer["by_tenant"]["t0"]["wait_s"]["mean"] for answer in (tight, wide)]
    assert waits[0] > waits[1]


def test_the_report_is_written(cli: Call) -> None:
    done = cli("simulate", "jobs.csv", "--nodes", "nodes.csv", "--report", "out.html")
    assert "wrote out.html" in done.err
    assert Path("out.html").read_text().startswith("<!doctype html>")


def test_a_generated_workload_needs_no_file(cli: Call) -> None:
    done = cli("simulate", "--generate", "mmc", "--limit", "200", "-o", "json")
    assert json.loads(done.out)["finished"] == 200


def test_jobs_that_can_never_fit_are_told(cli: Call) -> None:
    Path("big.csv").write_text("job,duration_s,gpus\na,1,1\nb,1,9\n")
    done = cli("simulate", "big.csv", "--nodes", "nodes.csv")
    assert done.code == 0
    assert "1 jobs can never fit" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give it a file of jobs"),
        (("jobs.csv",), "--nodes is missing"),
        (("none.csv", "--nodes", "nodes.csv"), "none.csv cannot be read"),
        (("bad.csv", "--nodes", "nodes.csv"), "bad.csv line 2, column gpus: 'x' is not"),
        (("jobs.csv", "--generate", "mmc"), "give it no file of jobs"),
        (("jobs.csv", "--nodes", "nodes.csv", "--what-if", "x=1"), "'x' is not known"),
        (("jobs.csv", "--nodes", "nodes.csv", "--what-if", "nodes=-1"), "'-1' is not a number"),
        (("jobs.csv", "--nodes", "nodes.csv", "--what-if", "policy=lax"), "is not one of strict"),
        (("jobs.csv", "--nodes", "nodes.csv", "--set", "gpus"), "--set gpus"),
        (("jobs.csv", "--nodes", "nodes.csv", "--load", "0"), "0"),
        (("jobs.csv", "--nodes", "nodes.csv", "--report", "no/such/x.html"), "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_and_the_code_is_2(
    cli: Call, words: tuple[str, ...], message: str
) -> None:
    Path("bad.csv").write_text("job,duration_s,gpus\na,1,x\n")
    done = cli("simulate", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_tenants_that_stand_in_one_file_alone_are_told(cli: Call) -> None:
    Path("q.yaml").write_text("cohorts: {c: {tenants: {t0: {nominal: {gpus: 8}}, to: {}}}}\n")
    done = cli("simulate", "jobs.csv", "--nodes", "nodes.csv", "--quotas", "q.yaml")
    assert done.code == 0, done.err
    assert "1 tenants of the jobs without a quota, which are not limited: t1" in done.err
    assert "1 tenants with a quota and without a job: to" in done.err


def test_limits_of_the_engine_show_as_time_in_which_nothing_is_done(cli: Call) -> None:
    words = ("simulate", "jobs.csv", "--nodes", "nodes.csv", "--engine-gangs", "3")
    answer = json.loads(cli(*words, "-o", "json").out)
    engine = answer["details"]["engine"]
    assert engine["gangs_max"] == 3 and engine["wait_s"]["max"] > 0
    assert answer["utilisation"]["useful"] < answer["utilisation"]["allocated"]
    assert "the engine ran at most 3 members in 3 gangs" in cli(*words).err


def test_a_burst_without_a_rate_is_refused(cli: Call) -> None:
    done = cli("simulate", "jobs.csv", "--nodes", "nodes.csv", "--engine-burst", "5")
    assert done.code == 2, done.err
    assert "--engine-calls" in done.err


def test_a_named_engine_has_its_limits(cli: Call) -> None:
    done = cli("simulate", "jobs.csv", "--nodes", "nodes.csv", "--engine", "ray", "-o", "json")
    assert json.loads(done.out)["details"]["engine"]["wait_s"]["max"] == 0
