"""What a job file may say: each mistake is told with its field, the value and the choices."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from windlass.core.errors import InvalidInput
from windlass.core.explain import explain, found, plain
from windlass.core.jobs import JobSpec
from windlass.core.strict import format_duration, parse_bytes, parse_duration_ms


def refused(spec, as_json=False):
    """The error for a spec that must not be taken, from Python values or from JSON."""
    with pytest.raises(ValidationError) as caught:
        if as_json:
            JobSpec.model_validate_json(json.dumps(spec))
        else:
            JobSpec.model_validate(spec)
    return explain(caught.value.errors(), JobSpec)


RUN = {"run": "python train.py"}


def role(**fields):
    return {**RUN, "roles": {"worker": fields}}


BAD = [
    # what is given, the field, what was found, what is allowed
    ({}, "(the whole)", "", "nothing to run: give `run`"),
    ({"run": ""}, "(the whole)", "", "nothing to run"),
    ({"run": 7}, "run", "7", "tuple"),
    ({"run": ["a", 7]}, "run.1", "7", "a valid string"),
    ({"run": "echo 'open"}, "run", "\"echo 'open\"", "cannot be split into words"),
    ({"run": "a\0b"}, "run.0", "'a\\x00b'", "NUL"),
    ({"run": ["\ud800"]}, "run.0", "'\\ud800'", "surrogate"),
    ({**RUN, "nmae": "x"}, "nmae", "'x'", "did you mean name?"),
    ({**RUN, "name": "Not Allowed"}, "name", "'Not Allowed'", "a text matching"),
    ({**RUN, "name": "x" * 41}, "name", "x" * 41, "at most 40"),
    ({**RUN, "name": 7}, "name", "7", "a valid string"),
    ({**RUN, "kind": "study"}, "kind", "'study'", "'job'"),
    ({**RUN, "workers": 0}, "workers", "0", "greater than or equal to 1"),
    ({**RUN, "workers": 2**70}, "workers", str(2**70), "less than or equal to 100000"),
    ({**RUN, "workers": True}, "workers", "true", "a valid integer"),
    ({**RUN, "workers": "2"}, "workers", "'2'", "a valid integer"),
    ({**RUN, "workers": 2.5}, "workers", "2.5", "a valid integer"),
    ({**RUN, "workers": 2, "roles": {"worker": {"count": 3}}}, "(the whole)", "", "disagree"),
    (role(gpus=-1), "roles.worker.gpus", "-1", "greater than or equal to 0"),
    (role(gpus=True), "roles.worker.gpus", "true", "a valid integer"),
    (role(cpus=math.nan), "roles.worker.cpus", "nan", "finite"),
    (role(cpus=math.inf), "roles.worker.cpus", "inf", "finite"),
    (role(cpus="2"), "roles.worker.cpus", "'2'", "a number of CPUs"),
    (role(cpus=-0.5), "roles.worker.cpus", "-0.5", "greater than or equal to 0"),
    (role(memory="8 Gigs"), "roles.worker.memory", "'8 Gigs'", "such as 512MiB"),
    (role(memory=-1), "roles.worker.memory", "-1", "greater than or equal to 0"),
    (role(memory="9" * 15 + "TiB"), "roles.worker.memory", "TiB", "less than or equal"),
    (role(memory=True), "roles.worker.memory", "true", "a valid integer"),
    (role(min=2, count=1), "(the whole)", "", "`min` is more than `count`"),
    (role(finish="never"), "(the whole)", "", "no role decides the end"),
    (role(finish="last"), "roles.worker.finish", "'last'", "'all', 'first' or 'never'"),
    (role(gpu=1), "roles.worker.gpu", "1", "did you mean gpus?"),
    (role(vars={"1BAD": "x"}), "roles.worker.vars.1BAD", "'1BAD'", "a text matching"),
    (role(vars={"A": 1}), "roles.worker.vars.A", "1", "a valid string"),
    (role(vars={"A": "x\0"}), "roles.worker.vars.A", "'x\\x00'", "NUL"),
    ({**RUN, "roles": {"Bad Role": {}}}, "roles.Bad Role", "'Bad Role'", "a text matching"),
    ({**RUN, "roles": []}, "roles", "a list of 0", "dictionary"),
    ({**RUN, "params": {"lr": None}}, "params.lr", "null", "a valid boolean or a valid integer"),
    ({**RUN, "params": {"lr": math.nan}}, "params.lr", "nan", "finite"),
    ({"run": "x ${lr}", "params": {"a": 1}}, "(the whole)", "", "uses lr, which `params` lacks"),
    ({**RUN, "limits": {"time": "6 hours"}}, "limits.time", "'6 hours'", "1h30m"),
    ({**RUN, "limits": {"time": -1}}, "limits.time", "-1", "greater than or equal to 0"),
    ({**RUN, "limits": {"time": True}}, "limits.time", "true", "a valid integer"),
    ({**RUN, "limits": {"time": math.nan}}, "limits.time", "nan", ""),
    ({**RUN, "limits": {"time": math.inf}}, "limits.time", "inf", ""),
    ({**RUN, "limits": {"time": 1e300}}, "limits.time", "1e+300", ""),
    ({**RUN, "limits": {"time": "9" * 12 + "w"}}, "limits.time", "w'", ""),
    ({**RUN, "limits": {"cost": math.inf}}, "limits.cost", "inf", "finite"),
    ({**RUN, "retry": {"on": ["sometimes"]}}, "retry.on", "a list of 1", "known: lost, oom"),
    ({**RUN, "retry": {"on": ["log:("]}}, "retry.on", "a list of 1", "bad pattern"),
    ({**RUN, "retry": {"times": -1}}, "retry.times", "-1", "greater than or equal to 0"),
    ({**RUN, "outputs": {"keep": 1}}, "outputs.keep", "1", "greater than or equal to 2"),
    ({**RUN, "isolation": {"network": "some"}}, "isolation.network", "'some'", "'host' or 'none'"),
    ({**RUN, "code": {"bundle": "zz"}}, "code.bundle", "'zz'", "a text matching"),
    ({**RUN, "on_member_loss": "ignore"}, "on_member_loss", "'ignore'", "'restart' or 'continue'"),
    ({**RUN, "hold": 1}, "hold", "1", "a valid boolean"),
]  # fmt: skip


@pytest.mark.parametrize("spec, field, value, allowed", BAD, ids=lambda v: str(v)[:40])
def test_a_mistake_in_a_job_is_told_with_field_value_and_choices(spec, field, value, allowed):
    error = refused(spec)
    entries = error.details["fields"]
    entry = next((one for one in entries if one["field"] == field), None)
    assert entry is not None, entries
    assert value in entry["found"]
    assert allowed in entry["allowed"], entry
    assert field in error.message
    json.dumps(error.to_wire(), allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize("spec, field, value, allowed", BAD, ids=lambda v: str(v)[:40])
def test_the_same_mistakes_are_refused_as_json(spec, field, value, allowed):
    assert isinstance(refused(spec, as_json=True), InvalidInput)


GOOD = [
    RUN,
    {"run": ["python", "train.py"]},
    {"run": "train --lr ${lr}", "params": {"lr": 0.1, "n": 3, "on": True, "name": "x"}},
    {"roles": {"worker": {"run": "a"}, "ps": {"run": "b", "count": 2, "finish": "never"}}},
    {**RUN, "workers": 4, "roles": {"worker": {"gpus": 1, "cpus": 2, "memory": "8GiB", "min": 2}}},
    {**RUN, "limits": {"time": "1h30m", "cost": 3, "idle": None}, "ttl": 60},
    {**RUN, "retry": {"times": 0, "on": ["lost", "exit:33", "log:CUDA error"], "never": []}},
    {**RUN, "environment": {"vars": {"OMP_NUM_THREADS": "1"}, "secrets": ["HF_TOKEN"]}},
]


@pytest.mark.parametrize("spec", GOOD, ids=lambda v: str(v)[:40])
def test_a_good_job_is_the_same_from_python_from_json_and_after_a_journey(spec):
    here = JobSpec.model_validate(spec)
    assert JobSpec.model_validate_json(json.dumps(spec)) == here
    assert JobSpec.model_validate_json(here.model_dump_json()) == here
    assert JobSpec.model_validate(here.model_dump(mode="json")) == here


@pytest.mark.parametrize(
    "text, size",
    [("8GiB", 8 * 2**30), ("512m", 512 * 10**6), ("1.5g", 1_500_000_000), ("7", 7), ("0b", 0),
     (" 2 KiB ", 2048), ("1TB", 10**12)],
)  # fmt: skip
def test_sizes_are_read(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text, ms",
    [("90s", 90_000), ("20m", 1_200_000), ("1h30m", 5_400_000), ("2d", 172_800_000),
     ("250ms", 250), (3, 3000), (0.5, 500), ("1.5h", 5_400_000)],
)  # fmt: skip
def test_durations_are_read(text, ms):
    assert parse_duration_ms(text) == ms


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_is_written_as_it_is_read(ms):
    assert parse_duration_ms(format_duration(ms)) == ms


@settings(deadline=None)
@given(st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.none())
def test_any_value_can_be_told(value):
    for given_value in (value, [value], {"k": value}, {value: 1}):
        text = found(given_value)
        assert len(text) < 1000
        text.encode("utf-8")
    plain(str(value)).encode("utf-8")


def test_a_long_list_of_mistakes_stays_short():
    spec = {**RUN, **{f"unknown{number}": number for number in range(500)}}
    error = refused(spec)
    assert "more" in error.message and len(error.message) < 2000
    assert len(error.details["fields"]) == 20


def test_huge_values_are_told_in_few_words():
    spec = {**RUN, "name": "x" * 10**6, "workers": 10**6000}
    assert len(json.dumps(refused(spec).to_wire())) < 4000
