"""The words of quotas and queues: what is taken, what is refused and how it is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from windlass.core.explain import explain
from windlass.core.jobs import JobSpec
from windlass.core.queues import QueueBody
from windlass.core.quotas import MAX_BYTES, QuotaBody, QuotaFile, human, units
from windlass.core.strict import format_moment, parse_moment_ms


@given(some.integers(0, MAX_BYTES))
def test_memory_reads_back_as_it_was_written(amount):
    assert units("memory", human("memory", amount)) == amount


@given(some.integers(0, 10_000_000_000))
def test_thousandths_read_back_as_they_were_written(amount):
    for resource in ("gpus", "cpus", "gpus:NVIDIA H200"):
        assert units(resource, human(resource, amount)) == amount


BAD_AMOUNTS = [
    ({"gpus": -1}, "from 0 to"),
    ({"gpus": float("nan")}, "from 0 to"),
    ({"gpus": float("inf")}, "from 0 to"),
    ({"gpus": 10**9}, "from 0 to"),
    ({"gpus": 2**70}, "from 0 to"),
    ({"gpus": 0.0001}, "three decimals"),
    ({"gpus": True}, "a number"),
    ({"gpus": "8"}, "a number"),
    ({"gpus": None}, "a number"),
    ({"memory": -1}, "from 0 to 1 EiB"),
    ({"memory": "many"}, "512MiB"),
    ({"memory": "9999999TiB"}, "from 0 to 1 EiB"),
    ({"memory": 1.5}, "a size"),
    ({"memory": True}, "a size"),
    ({"tpus": 1}, "known: gpus, cpus, memory, gpus:MODEL"),
    ({"gpus:": 1}, "known: gpus"),
    ({"gpus:{x}": 1}, "known: gpus"),
    ({"GPUS": 1}, "known: gpus"),
    ({7: 1}, "known: gpus"),
    ([["gpus", 1]], "resources with amounts"),
    (8, "resources with amounts"),
    ({f"gpus:m{at}": 1 for at in range(65)}, "at most 64"),
]


@pytest.mark.parametrize(("amounts", "why"), BAD_AMOUNTS, ids=str)
@pytest.mark.parametrize("field", ["nominal", "borrow"])
def test_a_bad_amount_is_refused_by_name(amounts, why, field):
    with pytest.raises(ValidationError) as caught:
        QuotaFile.model_validate({"tenants": {"a": {field: amounts}}})
    message = explain(caught.value.errors(), QuotaFile).message
    assert message.startswith(f"tenants.a.{field}: ") and why in message


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (
            {"cohorts": {"a": {"tenants": {"t": {}}}, "b": {"tenants": {"t": {}}}}},
            "t stands twice",
        ),
        ({"cohorts": {"a": {"tenants": {"t": {}}}}, "tenants": {"t": {}}}, "t stands twice"),
        ({"cohorts": {"a": {"tenants": {"a": {}}}}}, "a cohort and a project cannot have one"),
        ({"cohorts": {"a": {"parent": "a"}}}, "in a circle: a → a"),
        ({"cohorts": {"a": {"parent": "b"}, "b": {"parent": "a"}}}, "in a circle: a → b → a"),
        ({"cohorts": {"a": {"parent": "x"}}}, "a belongs to x, which is no cohort; known: a"),
        (
            {"cohorts": {f"c{n}": {"parent": f"c{n + 1}"} if n < 9 else {} for n in range(10)}},
            "deeper than 4 cohorts",
        ),
        ({"tenants": {"A": {}}}, "a text matching"),
        ({"tenants": {"a": {"weight": 0}}}, "from 0.001"),
        ({"tenants": {"a": {"weight": float("nan")}}}, "from 0.001"),
        ({"tenants": {"a": {"weight": "1"}}}, "a number"),
        ({"tenants": {"a": {"nominal": {"gpus": 1}, "lend": {"gpus": 2}}}}, "2 of 1"),
        ({"tenants": {"a": {"lend": {"cpus": 1}}}}, "1 of 0"),
        ({"tenants": {"a": {"caps": [{"limits": {"gpus": 1}}]}}}, "names a `kind`"),
        ({"tenants": {"a": {"caps": [{"kind": "train", "limits": {}}]}}}, "caps nothing"),
        ({"tenants": {"a": {"caps": [{"kind": "x", "limits": {"gpus": 1}}]}}}, "'notebook'"),
        (
            {"tenants": {"a": {"caps": [{"user": "b", "limits": {"gpus": 1}}] * 2}}},
            "two caps for the same",
        ),
        ({"tenant": {}}, "did you mean tenants?"),
        ({"tenants": {"a": {"nominl": {}}}}, "did you mean nominal?"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_file_is_refused_with_the_reason(file, why):
    with pytest.raises(ValidationError) as caught:
        QuotaFile.model_validate(file)
    assert why in explain(caught.value.errors(), QuotaFile).message


def test_a_cohort_may_lend_more_than_it_owns_itself():
    QuotaBody.model_validate({"cohort": True, "lend": {"gpus": 4}})


@pytest.mark.parametrize("body", [{"policy": "fifo"}, {"paused": 1}, {"description": "x" * 1001},
                                  {"revision": -1}, {"policies": "strict"}])  # fmt: skip
def test_a_bad_queue_is_refused(body):
    with pytest.raises(ValidationError):
        QueueBody.model_validate(body)


# -- what a job may say ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"roles": {"w": {"gpus": 1, "gpu_share": 0.5}}}, "give one"),
        ({"roles": {"w": {"gpu_share": 1}}}, "less than 1"),
        ({"roles": {"w": {"gpu_share": -0.5}}}, "less than 1"),
        ({"roles": {"w": {"gpu_share": 0.12345}}}, "thousandths"),
        ({"roles": {"w": {"gpu_share": float("nan")}}}, "thousandths"),
        ({"roles": {"w": {"gpu_share": True}}}, "thousandths"),
        ({"roles": {"w": {"gpu_model": ["H200"]}}}, "no GPU is asked for"),
        ({"roles": {"w": {"gpus": 1, "gpu_model": ["{}"]}}}, "matching"),
        ({"after": ["a", "a"]}, "names a job twice"),
        ({"after": "a"}, "tuple"),
        ({"after": ["A b"]}, "matching"),
        ({"begin": "tomorrow"}, "ISO-8601"),
        ({"begin": "2026-11-20T02:00:00"}, "its zone is missing"),
        ({"begin": 5}, "ISO-8601"),
        ({"begin": "0001-01-01T00:00:00+14:00"}, "not before 1970"),
        ({"placement": {"required": True}}, "needs a `level`"),
        ({"placement": {"level": "room"}}, "'host', 'rack' or 'block'"),
        ({"work": "play"}, "'train', 'notebook' or 'serve'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_job_that_asks_for_nonsense_is_refused(spec, why):
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate({"run": "x", **spec})
    assert why in explain(caught.value.errors(), JobSpec).message


def test_a_time_to_begin_is_kept_in_utc():
    spec = JobSpec.model_validate({"run": "x", "begin": "2026-11-20T02:00:00+02:00"})
    assert spec.model_dump(mode="json")["begin"] == "2026-11-20T00:00:00.000Z"
    assert JobSpec.model_validate(spec.model_dump(mode="json")) == spec


@given(some.integers(0, 253_402_300_799_999))
def test_a_moment_reads_back_as_it_was_written(ms):
    assert parse_moment_ms(format_moment(ms)) == ms


def test_a_share_of_a_gpu_is_counted_in_thousandths():
    role = JobSpec.model_validate({"run": "x", "roles": {"w": {"gpu_share": 0.29}}}).roles["w"]
    assert (role.gpu_milli, role.gpus, role.ranks_per_member) == (290, 0, 1)
