"""Whatever a schema takes is written and read byte for byte, by JSON and by both databases, and
no sum over it leaves what a BIGINT holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy import Column, MetaData, Table, delete, insert, select

from windlass.core.explain import explain
from windlass.core.jobs import JobSpec
from windlass.core.limits import LimitsBody
from windlass.core.queues import MoveBody, PriorityBody, QueueBody
from windlass.core.quotas import QuotaBody, QuotaFile
from windlass.core.strict import MAX_INT, DurationMs, format_duration, parse_duration_ms
from windlass.core.usage import BudgetBody, PriceBody
from windlass.server.clock import stamp
from windlass.server.jobs import asking
from windlass.server.store.base import Store
from windlass.server.store.metadata import AutoNumber, Json, JsonText
from windlass.server.store.open import open_store
from windlass.testing.valid import raw

NOW_MS = 4_102_444_800_000  # 2100
tables = MetaData()
kept = Table("kept", tables, Column("id", AutoNumber, primary_key=True), Column("data", Json))

_CODE = some.just({}) | some.fixed_dictionaries(
    {"git": some.just("https://example.org/a.git"), "ref": some.sampled_from(["main", "v1.2"])}
)
JOB = raw(
    JobSpec,
    {
        "kind": some.just("job"),
        "run": some.lists(some.text("abc ö'\"", min_size=1), min_size=1, max_size=3),
        "workers": some.none(),
        "code": _CODE,
        "metrics.goal": some.sampled_from(["max acc", "min loss"]),
        "metrics.parse": some.lists(some.just("loss=(?P<loss>[0-9.]+)"), max_size=1),
        "retry.on": some.lists(some.sampled_from(["lost", "exit:33", "log:CUDA error"])),
        "retry.never": some.lists(some.sampled_from(["oom", "exit:1"])),
        "roles.gpu_share": some.integers(0, 0),
        "roles.gpu_model": some.just([]),
        "roles.min": some.none() | some.just(1),
        "roles.finish": some.sampled_from([None, "all", "first"]),
        "isolation.network": some.just("host"),
        "placement": some.sampled_from([{}, {"level": "rack", "required": True}]),
        "start_from": some.sampled_from([None, {"job": "a", "step": 2**63 - 1}, {"model": "m@3"}]),
        "after": some.lists(some.from_regex(r"[a-z0-9]{1,40}", fullmatch=True), unique=True),
    },
)
QUOTA = raw(QuotaBody, {"lend": some.just({}), "caps": some.just([])})
MODELS: dict[type[BaseModel], some.SearchStrategy] = {
    JobSpec: JOB,
    QuotaBody: QUOTA,
    QueueBody: raw(QueueBody, {}),
    PriorityBody: raw(PriorityBody, {}),
    MoveBody: raw(MoveBody, {}),
    BudgetBody: raw(BudgetBody, {}),
    PriceBody: raw(PriceBody, {"price": some.integers(0, 10**6)}),
    LimitsBody: raw(LimitsBody, {}),
}
slow = settings(
    max_examples=40,
    suppress_health_check=[
        HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)  # fmt: skip


@pytest.fixture
def plain(database_url: str) -> Iterator[Store]:
    store = asyncio.run(open_store(database_url, migrate=False, create=tables))
    yield store
    asyncio.run(store.close())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_what_is_taken_is_written_and_read_byte_for_byte(model: type[BaseModel], plain) -> None:
    @slow
    @given(MODELS[model])
    def journey(value: object) -> None:
        first = model.model_validate(value)
        assert model.model_validate_json(json.dumps(value)) == first
        text = first.model_dump_json()
        assert model.model_validate_json(text).model_dump_json() == text

        async def through() -> tuple[object, object]:
            def write(conn) -> None:
                conn.execute(delete(kept))
                conn.execute(insert(kept).values(data=JsonText(text)))
                conn.execute(insert(kept).values(data=json.loads(text)))

            await plain.write(write)
            return tuple(await plain.read(lambda c: c.scalars(select(kept.c.data)).all()))

        for found in asyncio.run(through()):
            assert model.model_validate(found).model_dump_json() == text

    journey()


@slow
@given(JOB)
def test_no_sum_over_a_job_leaves_what_a_bigint_holds(value: dict) -> None:
    spec = JobSpec.model_validate(value)
    needs = asking.needs_of(spec)
    for amount in ("memory_bytes", "cpus_milli", "gpus", "gpu_milli", "slots"):
        assert 0 <= sum(need.count * getattr(need, amount) for need in needs) <= MAX_INT
    gpus = sum(role.count * role.gpus for role in spec.roles.values())
    assert sum(role.count for role in spec.roles.values()) < 2**31 and gpus < 2**31
    limits, retry = spec.limits, spec.retry
    later = [limits.time, limits.idle, limits.grace, spec.ttl, retry.backoff, retry.backoff_cap]
    whole = NOW_MS + sum(each or 0 for each in later)
    assert whole <= MAX_INT
    stamp(whole)
    stamp(spec.begin or 0)


@given(some.integers(0, 2**70) | some.floats(allow_nan=True) | some.text("0123456789.wdhms "))
def test_a_duration_that_is_taken_is_written_as_it_is_read(value: object) -> None:
    try:
        ms = TypeAdapter(DurationMs).validate_python(value)
    except ValidationError:
        return
    assert parse_duration_ms(format_duration(ms)) == ms


TOO_MUCH = [
    ({"limits": {"time": "999999999999.5s"}}, "limits.time", "'999999999999.5s'", "100 years"),
    ({"limits": {"time": 1e300}}, "limits.time", "1e+300", "100 years"),
    ({"limits": {"time": "36525d1ms"}}, "limits.time", "'36525d1ms'", "100 years"),
    ({"ttl": 9007199254740993}, "ttl", "9007199254740993", "100 years"),
    ({"ttl": "15250284452w"}, "ttl", "'15250284452w'", "100 years"),
    ({"begin": "9999-12-31T23:59:59.999999-14:00"}, "begin", "-14:00'", "not after 9999"),
    ({"begin": "1970-01-01T00:00:00+14:00"}, "begin", "+14:00'", "not before 1970"),
    ({"params": {"seed": 2**63}}, "params.seed", str(2**63), "2^63 - 1"),
    ({"roles": {"worker": {"memory": "65TiB"}}}, "roles.worker.memory", "'65TiB'", str(2**46)),
    ({"limits": {"disk": "2000000TiB"}}, "limits.disk", "'2000000TiB'", str(2**60)),
    ({"limits": {"cost": 1e10}}, "limits.cost", "10000000000.0", "1000000000"),
]  # fmt: skip


@pytest.mark.parametrize("fields, field, value, bound", TOO_MUCH, ids=lambda v: str(v)[:40])
def test_what_is_too_much_is_refused_with_field_value_and_bound(fields, field, value, bound):
    for read in (JobSpec.model_validate, lambda v: JobSpec.model_validate_json(json.dumps(v))):
        with pytest.raises(ValidationError) as caught:
            read({"run": "true", **fields})
        told = explain(caught.value.errors(), JobSpec).details["fields"]
        assert [field] == [entry["field"] for entry in told], told
        assert value in told[0]["found"] and bound in told[0]["allowed"], told


def test_a_gang_is_bounded_as_a_whole() -> None:
    roles = {f"r{number}": {"count": 60_000} for number in range(2)}
    with pytest.raises(ValidationError, match="120000 members in all, at most 100000"):
        JobSpec.model_validate({"run": "true", "roles": roles})


@slow
@given(some.data())
def test_a_file_of_quotas_reads_back(data: some.DataObject) -> None:
    names = data.draw(some.lists(some.from_regex("[a-z]{1,8}", fullmatch=True), unique=True))
    tenants = {name: _without(data.draw(QUOTA)) for name in names[1:]}
    cohorts = {name: {"tenants": tenants} for name in names[:1]}
    first = QuotaFile.model_validate({"cohorts": cohorts})
    text = first.model_dump_json()
    assert QuotaFile.model_validate_json(text).model_dump_json() == text


def _without(quota: dict) -> dict:
    """A tenant in a file: what only a call of its own says is left out."""
    return {k: v for k, v in quota.items() if k not in ("cohort", "parent", "revision")}
