"""`windlass demo`: train a small network on two workers, end to end, and draw its curve."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from windlass.cli import exits, follow, jobflags
from windlass.cli.session import WORDS, Session, verb
from windlass.cli.show import metric_lines
from windlass.cli.specs import Plan, ranks_of
from windlass.client.bundle import scan
from windlass.core import plot

FOLDER = Path(__file__).parent / "demos"


@verb("demo", outputs=WORDS)
@click.option("--torch", is_flag=True, help="PyTorch DDP on scikit-learn's digits.")
@click.option("-w", "--workers", type=click.IntRange(1), default=2, show_default=True,
              help="On so many workers.")  # fmt: skip
def command(session: Session, torch: bool, workers: int) -> None:
    """Train a small network on two workers, end to end.

    Needs nothing but windlass (pure Python, made-up data); --torch needs torch and scikit-learn.
    """
    script = "train_torch.py" if torch else "train.py"
    spec = {
        "name": "demo",
        "run": ["python", script],
        "framework": "pytorch",
        "roles": {"worker": {"count": workers}},
        "environment": {"python": sys.executable, "vars": {"OMP_NUM_THREADS": "1"}},
    }
    job = jobflags.send(session, Plan(spec, FOLDER), scan(FOLDER))
    screen = follow.Screen(ranks_of(spec))
    session.say(f"{job.name} {job.state} · {workers} workers · {script}")
    code = follow.follow(session.client, job, screen, words=not session.quiet)
    if session.form != "table":
        session.one(session.client.jobs.detail(job.id))
        sys.exit(code)
    for line in metric_lines(session.client.jobs.metrics(job.id), "loss"):
        click.echo(line)
    if code == exits.OK:
        mark = "✓" if plot.unicode_wanted() else "ok:"
        click.echo(f"\n{mark} {job.name} · {session.client.url}/jobs/{job.name}")
        session.say("next: windlass show -, windlass rerun -, windlass run your_script.py")
    sys.exit(code)
