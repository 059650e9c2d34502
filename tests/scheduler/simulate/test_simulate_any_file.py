"""Any file at all: it is read, or refused with a sentence that names the place; never a trace."""

from __future__ import annotations

import csv
import gzip
import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from windlass.core.errors import InvalidInput
from windlass.scheduler.events import Offer
from windlass.scheduler.simulate.quotas import changed, read_quotas
from windlass.scheduler.simulate.run import Options, simulate
from windlass.scheduler.simulate.traces import (
    JOB_FORM,
    NODE_FORM,
    PHILLY,
    PODS,
    SEATED,
    read_jobs,
    read_nodes,
)
from windlass.scheduler.simulate.variants import Plan, what_if
from windlass.scheduler.simulate.workload import Workload

MANY = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CELLS = st.one_of(
    st.sampled_from(
        [
            "", " ", "0", "1", "2", "-1", "3.0", "0.5", "1e3", "1e300", "1e-300", "-0", "inf",
            "nan", "1_000", "0x10", "1,5", "9" * 400, "train", "serve", "batch", "a|b", "|", "a,b",
            "a\nb", '"', "'", "\x00", "\x1b[31m", "é", "٣", "=1+1", "n0", "true", "None", "1000",
            "500", "999", "10000000000", "10000000", "1000000",
        ]
    ),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(str),
    st.text(max_size=8),
)  # fmt: skip
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
HEADERS = [JOB_FORM, NODE_FORM, PHILLY, PODS, SEATED, ("job", "duration_s"), ("node", "gpus")]


def table(header: tuple[str, ...], rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([list(header), *rows])
    return out.getvalue()


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    known = draw(st.sampled_from(HEADERS))
    names = st.lists(st.sampled_from([*known, "bogus", ""]), min_size=1, max_size=6)
    header = draw(st.one_of(st.just(known), names.map(tuple)))
    width = st.just(len(header)) if draw(st.booleans()) else st.integers(0, 8)
    rows = [
        draw(st.lists(CELLS, min_size=n, max_size=n)) for n in draw(st.lists(width, max_size=4))
    ]
    text = table(header, rows)
    if draw(st.booleans()):
        text = text.replace("\r\n", draw(st.sampled_from(["\n", "\r", "\n\n", "\r\n\r\n"])))
    data = text.encode("utf-8", "surrogatepass")
    how = draw(st.sampled_from(["plain", "plain", "mark", "gzip", "cut", "utf-16", "flip"]))
    if how == "mark":
        return b"\xef\xbb\xbf" + data
    if how == "gzip":
        return gzip.compress(data, mtime=0)
    if how == "cut":
        return gzip.compress(data, mtime=0)[: draw(st.integers(0, len(data)))]
    if how == "utf-16":
        return text.encode("utf-16", "surrogatepass")
    if how == "flip":
        packed = bytearray(gzip.compress(data, mtime=0))
        packed[draw(st.integers(2, len(packed) - 1))] ^= 0xFF
        return bytes(packed)
    return data


def refused(err: InvalidInput, path: Path) -> None:
    said = str(err)
    assert str(path) in said, said
    assert len(said) < 1000, said
    given = path.read_bytes()
    for word in ("Traceback", "Error"):  # but what the file itself holds may be quoted
        assert word not in QUOTED.sub("", said) or word.encode() in given, said


@MANY
@given(data=tables())
def test_a_file_of_jobs_is_read_or_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(data)
    try:
        jobs = read_jobs(str(path))
    except InvalidInput as err:
        refused(err, path)
        return
    assert [job.submit_ms for job in jobs] == sorted(job.submit_ms for job in jobs)
    assert len({job.name for job in jobs}) == len(jobs)
    nodes = [Offer(f"n{at}", 1 << 50, 1 << 50, gpus=8) for at in range(2)]
    few = [job for job in jobs if job.workers < 10_000]
    if few:
        result = simulate(Workload(few, nodes), Options(audit="all")).result
        assert result["details"]["violations"] == []
        done = result["finished"] + result["rejected"] + result["details"]["unfinished"]
        assert done == len(few)


@MANY
@given(data=tables())
def test_a_file_of_nodes_is_read_or_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(data)
    try:
        offers = read_nodes(str(path))
    except InvalidInput as err:
        refused(err, path)
        return
    assert len({offer.name for offer in offers}) == len(offers) > 0
    assert all(min(o.cpus_milli, o.memory_bytes, o.gpus) >= 0 for o in offers)


KEYS = st.sampled_from(
    [
        "cohorts", "tenants", "nominal", "borrow", "lend", "weight", "reclaim", "reclaim_any",
        "parent", "caps", "limits", "kind", "user", "gpus", "cpus", "memory", "memory_gb",
        "gpus:a100", "a", "b", "bogus", 7, None, True, 1.5,
    ]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=6),
    st.sampled_from(["any", "lower", "64GiB", "8", "a"]),
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)
AMOUNTS = st.dictionaries(KEYS, LEAVES, max_size=3)
TENANT = st.fixed_dictionaries({}, optional={
    "nominal": st.one_of(AMOUNTS, TREES), "borrow": AMOUNTS, "lend": AMOUNTS,
    "weight": LEAVES, "reclaim": LEAVES, "caps": TREES, "bogus": LEAVES,
})  # fmt: skip
FILES = st.one_of(
    TREES,
    st.fixed_dictionaries(
        {"cohorts": st.dictionaries(KEYS, st.fixed_dictionaries(
            {"tenants": st.dictionaries(KEYS, TENANT, max_size=3)},
            optional={"parent": LEAVES, "nominal": AMOUNTS},
        ), max_size=3)}
    ),
)  # fmt: skip


@MANY
@given(tree=FILES)
def test_a_file_of_quotas_is_read_or_refused_by_name(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    try:
        quotas, caps = read_quotas(str(path))
    except InvalidInput as err:
        refused(err, path)
        return
    names = {quota.name for quota in quotas}
    assert len(names) == len(quotas)
    for quota in quotas:
        assert not quota.parent or quota.parent in names
        assert all(amount >= 0 for amount in quota.nominal.values())
    assert all(cap.tenant in names for cap in caps)


@settings(MANY, max_examples=80)
@given(data=st.binary(max_size=200))
@example(data=b"Traceback")
@example(data=b"Error")
def test_bytes_that_are_no_file_at_all_are_refused(tmp_path: Path, data: bytes) -> None:
    for name, read in (("j.csv", read_jobs), ("n.csv", read_nodes), ("q.yaml", read_quotas)):
        path = tmp_path / name
        path.write_bytes(data)
        try:
            read(str(path))  # type: ignore[operator]
        except InvalidInput as err:
            refused(err, path)


@settings(MANY, max_examples=100)
@given(text=st.one_of(st.text(max_size=20), st.lists(CELLS, max_size=3).map("=".join)))
def test_a_question_or_change_is_understood_or_refused(text: str) -> None:
    for ask in (lambda: what_if(Plan(), text), lambda: changed((), text)):
        try:
            ask()
        except InvalidInput as err:
            assert "--what-if" in str(err) or "--set" in str(err)


@pytest.mark.parametrize("circle", ["a", "b"])
def test_cohorts_that_belong_to_each_other_are_refused(tmp_path: Path, circle: str) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(f"cohorts:\n  a: {{parent: {circle}}}\n  b: {{parent: a}}\n")
    with pytest.raises(InvalidInput, match="parent"):
        read_quotas(str(path))


def test_no_amount_is_too_large_for_the_core(tmp_path: Path) -> None:
    """The largest cells that the readers let pass, all at once; and in sums past 64 bits of
    memory, past 32 of thousandths of a GPU."""
    jobs, nodes = tmp_path / "jobs.csv", tmp_path / "nodes.csv"
    jobs.write_text(
        "submit_s,duration_s,workers,gpus,cpus,memory_gb,walltime_s\n"
        "10000000000,10000000000,1000000,100000,10000000,10000000,10000000000\n"
        "0,10000000000,250,10000,10000000,10000000,10000000000\n"
        "1,10000000000,1000,1,10000000,10000000,10000000000\n"
        "1,1,1,1,1,1,\n"
    )
    nodes.write_text(
        "node,count,cpus,memory_gb,gpus\n"
        "a,250,10000000,10000000,10000\nb,1250,10000000,10000000,1\n"
    )
    made = Workload(read_jobs(str(jobs)), read_nodes(str(nodes)))
    result = simulate(made, Options(audit="sampled")).result
    assert result["details"]["violations"] == []
    assert (result["finished"], result["rejected"]) == (3, 1)
