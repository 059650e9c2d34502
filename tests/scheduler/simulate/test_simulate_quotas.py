"""Quotas from YAML and by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from windlass.core.errors import InvalidInput
from windlass.core.quotas import QuotaFile
from windlass.scheduler.events import Quota
from windlass.scheduler.simulate.quotas import changed, read_quotas

GOOD = """
cohorts:
  research:
    tenants:
      vision: {nominal: {gpus: 8, cpus: 1.5, memory_gb: 2}, borrow: {gpus: 4}, lend: {gpus: 0}}
      speech: {nominal: {"gpus:H100": 2}, weight: 2, reclaim: any}
      guest:
"""


def put(folder: Path, text: str) -> str:
    path = folder / "quotas.yaml"
    path.write_text(text)
    return str(path)


def test_tenants_and_cohorts_become_quotas_in_milli_units(tmp_path: Path) -> None:
    (cohort, vision, speech, guest), _ = read_quotas(put(tmp_path, GOOD))
    assert (cohort.name, cohort.parent) == ("research", "")
    assert vision.nominal == {"gpus": 8000, "cpus": 1500, "memory": 2 * 2**30}
    assert (vision.borrow, vision.lend, vision.parent) == ({"gpus": 4000}, {"gpus": 0}, "research")
    assert speech.nominal == {"gpus:H100": 2000}
    assert (speech.weight_milli, speech.reclaim_any) == (2000, True)
    assert guest == Quota("guest", "research")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("[1]", "is not a mapping"),
        ("cohort: {}", "unknown field 'cohort'; known: cohorts"),
        ("cohorts: {a: {tenants: {t: {nominal: {gpu: 8}}}}}", "unknown resource 'gpu'"),
        ("cohorts: {a: {tenants: {t: {nominal: {gpus: -1}}}}}", "t.nominal.gpus: -1 is not"),
        ("cohorts: {a: {tenants: {t: {nominal: {gpus: .nan}}}}}", "nan is not a number"),
        ("cohorts: {a: {tenants: {t: {nominal: {gpus: true}}}}}", "True is not a number"),
        ("cohorts: {a: {tenants: {t: {nominal: 8}}}}", "t.nominal: 8 is not a mapping"),
        ("cohorts: {a: {tenants: {t: {weight: 0}}}}", "t.weight: 0 is not a number from 0.001"),
        ("cohorts: {a: {tenants: {t: {quota: 8}}}}", "unknown field 'quota'"),
        ("cohorts: {a: {tenants: {t: {reclaim: all}}}}", "'all' is not one of lower, any"),
        ("cohorts: {a: {tenants: {a: {}}}}", "the name 'a' is there twice"),
        ("cohorts: {a: {tenants: {t: {}}}, b: {tenants: {t: {}}}}", "'t' is there twice"),
        ("cohorts:\n  a: {}\n  a: {}\n", "is there twice (line 3)"),
        ("cohorts: {a: {parent: b}}", "there is no cohort 'b'"),
        ("cohorts: [", "is not YAML"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as err:
        read_quotas(put(tmp_path, text))
    assert words in err.value.message


def test_one_amount_can_be_set_by_hand(tmp_path: Path) -> None:
    quotas, _ = read_quotas(put(tmp_path, GOOD))
    by_name = {quota.name: quota for quota in changed(quotas, "vision.gpus=16")}
    assert by_name["vision"].nominal["gpus"] == 16_000
    assert by_name["vision"].nominal["cpus"] == 1500
    by_name = {quota.name: quota for quota in changed(quotas, "vision.borrow.gpus=0")}
    assert by_name["vision"].borrow == {"gpus": 0}
    by_name = {quota.name: quota for quota in changed(quotas, "speech.weight=3")}
    assert by_name["speech"].weight_milli == 3000
    assert changed((), "new.one.gpus=2") == (Quota("new.one", nominal={"gpus": 2000}),)


@pytest.mark.parametrize(
    "change", ["gpus=1", "t.gpus", "t.gpus=x", "t.gpu=1", ".gpus=1", "t.gpus=-1"]
)
def test_a_change_that_makes_no_sense_is_refused(change: str) -> None:
    with pytest.raises(InvalidInput, match="--set"):
        changed((), change)


def test_what_quota_ls_exports_can_be_simulated(tmp_path: Path) -> None:
    """One file form: `windlass quota ls -o yaml`, `windlass simulate --quotas`, `quota apply`."""
    exported = QuotaFile.model_validate(
        {
            "cohorts": {
                "research": {
                    "nominal": {"gpus": 4},
                    "tenants": {
                        "vision": {
                            "nominal": {"gpus": 8, "memory": "64GiB"},
                            "reclaim_any": True,
                            "caps": [{"kind": "notebook", "limits": {"gpus": 2}}],
                        }
                    },
                }
            },
            "tenants": {"lone": {"nominal": {"cpus": 16}}},
        }
    )
    text = yaml.safe_dump(exported.model_dump(mode="json", exclude_none=True))
    (cohort, vision, lone), caps = read_quotas(put(tmp_path, text))
    assert cohort.nominal == {"gpus": 4000}
    assert vision.nominal == {"gpus": 8000, "memory": 64 * 2**30}
    assert vision.reclaim_any and vision.parent == "research"
    assert (lone.name, lone.parent, lone.nominal) == ("lone", "", {"cpus": 16_000})
    assert [(cap.tenant, cap.kind, cap.limits) for cap in caps] == [
        ("vision", "notebook", {"gpus": 2000})
    ]
