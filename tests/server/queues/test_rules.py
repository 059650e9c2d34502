"""The scheduler's rules are the rows of queues and quotas, word for word."""

from __future__ import annotations

import pytest

from windlass.core.queues import QueueBody
from windlass.core.quotas import QuotaFileBody
from windlass.scheduler.events import Cap, Queue, Quota, Rules
from windlass.server.options import _scheduling, parser
from windlass.server.queues import service as queues
from windlass.server.queues.rules import rules
from windlass.server.quotas import service as quotas


def test_a_new_server_has_one_queue_and_no_quotas(tenancy):
    assert tenancy.read(rules) == Rules()


def test_rows_become_rules(tenancy):
    def write(conn):
        queues.put(conn, "night", QueueBody(policy="strict", paused=True), by="o", now_ms=1)
        file = QuotaFileBody.model_validate(
            {
                "cohorts": {
                    "all": {"nominal": {"gpus": 4}},
                    "research": {
                        "parent": "all",
                        "tenants": {
                            "vision": {
                                "nominal": {"gpus": 8, "memory": "1GiB", "gpus:H200": 0.5},
                                "borrow": {"gpus": 0}, "lend": {"gpus": 4}, "weight": 2.5,
                                "reclaim_any": True,
                                "caps": [
                                    {"kind": "notebook", "limits": {"gpus": 2}},
                                    {"user": "ann", "kind": "serve", "limits": {"cpus": 1.5}},
                                ],
                            }
                        },
                    },
                },
                "tenants": {"alone": {"nominal": {"cpus": 16}}},
            }
        )  # fmt: skip
        quotas.replace(conn, file, by="o", now_ms=1)

    tenancy.write(write)
    base = Rules(order="fifo", reservations=3)
    assert tenancy.read(lambda conn: rules(conn, base)) == Rules(
        order="fifo",
        reservations=3,
        queues=(Queue("default"), Queue("night", "strict", True)),
        quotas=(
            Quota("all", nominal={"gpus": 4000}),
            Quota("research", "all"),
            Quota("alone", nominal={"cpus": 16_000}),
            Quota(
                "vision", "research", {"gpus": 8000, "memory": 2**30, "gpus:H200": 500},
                {"gpus": 0}, {"gpus": 4000}, 2500, True,
            ),
        ),
        caps=(
            Cap("vision", {"gpus": 2000}, kind="notebook"),
            Cap("vision", {"cpus": 1500}, kind="serve", user="ann"),
        ),
    )  # fmt: skip


def test_the_servers_settings_are_the_rest_of_the_rules():
    assert _scheduling(parser().parse_args([])) == Rules()
    words = [
        "--scheduler-order", "fifo", "--scheduler-preemption", "off", "--scheduler-starving",
        "2h", "--scheduler-min-run", "90s", "--scheduler-preemption-cap", "7",
        "--scheduler-cool-down", "1m", "--scheduler-reservations", "4", "--scheduler-half-life",
        "1d",
    ]  # fmt: skip
    assert _scheduling(parser().parse_args(words)) == Rules(
        order="fifo", preemption=False, starving_ms=7_200_000, min_run_ms=90_000,
        preemption_cap=7, cool_down_ms=60_000, reservations=4, half_life_ms=86_400_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WINDLASS_SCHEDULER_ORDER", "random"),
        ("WINDLASS_SCHEDULER_PREEMPTION", "maybe"),
        ("WINDLASS_SCHEDULER_STARVING", "soon"),
        ("WINDLASS_SCHEDULER_RESERVATIONS", "-1"),
    ],
)
def test_a_wrong_setting_in_the_environment_is_refused(monkeypatch, capsys, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        parser().parse_args([])
    assert value in capsys.readouterr().err


def test_a_setting_comes_from_the_environment_too(monkeypatch):
    monkeypatch.setenv("WINDLASS_SCHEDULER_ORDER", "fifo")
    assert _scheduling(parser().parse_args([])).order == "fifo"
    given = parser().parse_args(["--scheduler-order", "fair"])
    assert _scheduling(given).order == "fair"
