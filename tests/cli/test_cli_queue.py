"""What `queue show` draws, and the flags and the file of `quota`: pure parts, without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from windlass.cli import moments, queueline, quotafile
from windlass.cli.quota import quota_rows, tree
from windlass.cli.specs import Flags, build
from windlass.client.quotas import Quota, file_of
from windlass.core.errors import InvalidInput


def soon(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def job(position, **fields):
    wants = {"members": 2, "gpus": 8.0, "cpus": 0.5, "memory": 2**30, "gpu_model": ["H200"]}
    return {
        "position": position, "id": "a" * 32, "name": "brisk-otter", "user": "ann",
        "project": "vision", "state": "queued", "priority": 50, "work": "train",
        "wants": wants, "since": soon(-48 * 3600 - 60), "reason": "waiting-nodes",
        "sentence": "needs 8 GPUs, 2 free", "missing": {}, "expected_start": None, "nodes": [],
        **fields,
    }  # fmt: skip


LINE = {
    "queue": {
        "name": "night", "policy": "strict", "paused": True, "description": "long runs",
        "waiting": 9, "running": 1,
    },
    "supply": [
        {"resource": "gpus", "total": 8.0, "free": 2.0},
        {"resource": "cpus", "total": 1.5, "free": None},
        {"resource": "memory", "total": 2.0**34, "free": 2.0**34},
    ],
    "waiting": [
        job(1, expected_start=soon(100 * 3600 + 1800), nodes=["n1", "n2", "n3", "n4", "n5", "n6"]),
        job(2, name=None, user=None, project=None, sentence=""),
    ],
    "running": [job(0, state="running", name="calm-heron")],
    "order": "scheduler",
}  # fmt: skip


def test_a_queue_is_drawn_with_bars_reservations_and_the_line(capsys):
    queueline.draw(LINE)
    out = capsys.readouterr().out
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == "night  strict, paused · long runs"
    assert "  gpus    ██████████████████░░░░░░  6 of 8 used, 2 free" in lines
    assert "  cpus    1.5" in lines, "unknown is not drawn as free"
    assert "  memory  ░░░░░░░░░░░░░░░░░░░░░░░░  0B of 16G used, 16G free" in lines
    assert "  brisk-otter in 4d 4h on n1, n2, n3, n4 and 2 more" in lines
    assert "Running (1)" in lines and "Waiting (9)" in lines
    assert "  … and 7 more: -n 9" in lines
    first = next(line for line in lines if line.startswith("  1  "))
    for word in (
        "brisk-otter",
        "ann",
        "vision",
        "50",
        "2× 8 GPU H200 0.5 CPU 1G",
        "2d",
        "in 4d 4h",
    ):
        assert word in first
    other = next(line for line in lines if line.startswith("  2  "))
    assert "(of another project)" in other and "waiting-nodes" in other


def test_an_empty_queue_is_drawn_without_tables(capsys):
    queueline.draw({**LINE, "waiting": [], "running": [],
                    "queue": {**LINE["queue"], "waiting": 0, "running": 0}})  # fmt: skip
    out = capsys.readouterr().out
    assert out.count("  none") == 2 and "JOB" not in out


# -- quotas ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpus=8", ("gpus", 8)),
        ("gpus=0.5", ("gpus", 0.5)),
        ("gpus:NVIDIA H200=4", ("gpus:NVIDIA H200", 4)),
        ("memory=64GiB", ("memory", "64GiB")),
        ("memory=1024", ("memory", 1024)),
        ("cpus=none", ("cpus", None)),
    ],
)
def test_an_amount_is_read(text, found):
    assert quotafile.amount("--nominal", text) == found


@pytest.mark.parametrize("text", ["gpus", "=8", "gpus=", "gpus=x", "gpus=-1", "gpus=nan", "x=1",
                                  "memory=x", "gpus=1e9"])  # fmt: skip
def test_a_bad_amount_is_refused_with_its_flag(text):
    with pytest.raises(InvalidInput, match="--borrow"):
        quotafile.amount("--borrow", text)


def test_caps_are_added_changed_and_taken_out():
    known = [{"kind": "notebook", "user": None, "limits": {"gpus": 2, "cpus": 4}}]
    assert quotafile.with_caps(known, ["notebook:gpus=1", "serve,user=ann:gpus=0.5"]) == [
        {"kind": "notebook", "user": None, "limits": {"gpus": 1, "cpus": 4}},
        {"kind": "serve", "user": "ann", "limits": {"gpus": 0.5}},
    ]
    assert quotafile.with_caps(known, ["notebook:gpus=none", "notebook:cpus=none"]) == []
    for wrong in ("notebook", "play:gpus=1", "user=ann"):
        with pytest.raises(InvalidInput, match="--cap"):
            quotafile.with_caps((), [wrong])


def test_the_plan_of_a_file_says_what_comes_goes_and_changes():
    old = {"cohorts": {"c": {"tenants": {"a": {"nominal": {"gpus": 1}}}}}, "tenants": {"b": {}}}
    new = {
        "cohorts": {"c": {"tenants": {"a": {"nominal": {"gpus": 2}, "weight": 2}}}},
        "tenants": {"d": {"nominal": {"memory": "1024MiB"}}},
    }
    assert quotafile.plan(old, new) == [
        "~ a: nominal gpus 1 → gpus 2; weight 1 → 2",
        "- b",
        "+ d: nominal memory 1GiB, weight 1, reclaim_any False",
    ]
    assert quotafile.plan(new, new) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "one document"),
        ("- 1", "one document"),
        ("cohorts: {}\n---\ncohorts: {}", "one document"),
        ("cohorts: {a: {}, a: {}}", "stands twice"),
        ("cohort: {}", "did you mean cohorts"),
        ("tenants: {a: {nominal: {gpus: .nan}}}", "a number such as 8"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text, why):
    path = tmp_path / "quotas.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=why):
        quotafile.read(str(path))


def test_a_tenant_with_nothing_behind_it_is_a_quota_with_nothing_in_it(tmp_path: Path):
    path = tmp_path / "quotas.yaml"
    path.write_text("cohorts:\n  c:\n    tenants:\n      a:\n  d:\n")
    assert set(quotafile.read(str(path))["cohorts"]) == {"c", "d"}
    with pytest.raises(InvalidInput, match="cannot be read"):
        quotafile.read(str(tmp_path / "nowhere.yaml"))


def test_the_simulators_spellings_are_read_too(tmp_path: Path):
    path = tmp_path / "quotas.yaml"
    path.write_text(
        "cohorts: {c: {tenants: {a: {nominal: {gpus: 8, memory_gb: 1.5}, reclaim: any},"
        " b: {borrow: {memory_gb: 2}, reclaim: lower}}}}"
    )
    a, b = quotafile.read(str(path))["cohorts"]["c"]["tenants"].values()
    assert a["nominal"] == {"gpus": 8, "memory": "1536MiB"} and a["reclaim_any"] is True
    assert b["borrow"] == {"memory": "2GiB"} and b["reclaim_any"] is False
    for wrong in ("{reclaim: some}", "{nominal: {memory_gb: x}}", "{nominal: {memory_gb: -1}}",
                  "{nominal: {memory_gb: 1, memory: 1GiB}}"):  # fmt: skip
        path.write_text(f"tenants: {{a: {wrong}}}")
        with pytest.raises(InvalidInput):
            quotafile.read(str(path))


def test_quotas_are_listed_below_their_cohort():
    quotas = [
        Quota("top", cohort=True, nominal={"gpus": 2}),
        Quota("low", cohort=True, parent="top"),
        Quota("a", parent="low", nominal={"gpus": 8, "memory": "1GiB"}, borrow={"gpus": 0}),
        Quota("b"),
    ]
    assert [(quota.name, depth) for quota, depth in tree(quotas)] == [
        ("top", 0), ("low", 1), ("a", 2), ("b", 0),
    ]  # fmt: skip
    rows = quota_rows(quotas[2], 2)
    assert rows[0][:6] == ["    a", "gpus", 0, 8, 0, "any"]
    assert rows[1][:6] == ["", "memory", 0, "1GiB", "any", "any"]
    assert file_of(quotas) == {
        "cohorts": {
            "top": {"nominal": {"gpus": 2}},
            "low": {
                "parent": "top",
                "tenants": {
                    "a": {"nominal": {"gpus": 8, "memory": "1GiB"}, "borrow": {"gpus": 0}}
                },
            },
        },
        "tenants": {"b": {}},
    }


# -- flags of run and submit -----------------------------------------------------------------


def test_the_scheduling_flags_become_fields_of_the_job():
    flags = Flags(
        command=("true",), queue="night", priority=-3, not_preemptible=True, work="notebook",
        after=("a", "b"), begin="2026-11-20T02:00:00Z", placement="rack!", gpu_share=0.25,
        gpu_model=("H200", "A100"),
    )  # fmt: skip
    spec = build(flags, local=False).spec
    assert spec["queue"] == {"name": "night", "priority": -3, "preemptible": False}
    assert spec["placement"] == {"level": "rack", "required": True}
    assert (spec["work"], spec["after"]) == ("notebook", ["a", "b"])
    assert spec["begin"] == "2026-11-20T02:00:00.000+00:00"
    assert spec["roles"]["worker"] == {"gpu_share": 0.25, "gpu_model": ["H200", "A100"]}


def test_a_role_may_ask_for_a_share_and_for_models():
    flags = Flags(command=("true",), role=("worker=2,gpu=1,gpu_model=H200,gpu_model=A100",))
    assert build(flags, local=False).spec["roles"]["worker"] == {
        "count": 2, "gpus": 1, "gpu_model": ["H200", "A100"],
    }  # fmt: skip
    flags = Flags(command=("true",), role=("worker=1,gpu_share=0.5",))
    assert build(flags, local=False).spec["roles"]["worker"]["gpu_share"] == 0.5


def test_a_time_to_begin_may_be_given_from_now():
    assert moments.coming("--begin", "2h", now=0.0) == "1970-01-01T02:00:00.000+00:00"
    here = datetime.fromisoformat(moments.coming("--begin", "2026-11-20T02:00"))
    assert here == datetime(2026, 11, 20, 2).astimezone()
    with pytest.raises(InvalidInput, match="--begin"):
        moments.coming("--begin", "soon")


def test_completion_is_silent_without_a_server(monkeypatch, tmp_path: Path):
    from windlass.cli.completion import complete_queue, complete_quota

    monkeypatch.setenv("WINDLASS_HOME", str(tmp_path))
    monkeypatch.setenv("WINDLASS_URL", "http://127.0.0.1:1")
    context = click.Context(click.Command("x"))
    for complete in (complete_queue, complete_quota):
        assert complete(context, click.Option(["--x"]), "") == []
