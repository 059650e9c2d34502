"""`windlass init`: a commented job file to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.session import WORDS, Session, verb
from windlass.core.errors import Conflict

TEMPLATE = """\
# A job of windlass. Submit it:  windlass apply -f {file}    (or: windlass run -f {file})
# Every field is optional but `run`.
kind: job
name: {name}
run: python {script} --lr ${{lr}}      # no shell runs it; ${{lr}} comes from params
params: {{lr: 0.1}}                    # change one: windlass rerun - lr=0.01
workers: 1                           # short for roles: {{worker: {{count: 1}}}}

# framework: pytorch                 # guessed from what the script imports
# roles:                             # instead of workers, when members differ
#   worker: {{count: 2, gpus: 1, cpus: 2, memory: 8GiB}}
#   ps: {{count: 1, memory: 2GiB}}

code:
  dir: .                             # sent by content; .gitignore and .windlassignore are honoured
  # ignore: [data/]
  # git: https://git.example.org/me/code.git   # instead of dir: the nodes fetch it
  # ref: main                        # a branch, a tag or a commit
environment:
  vars: {{OMP_NUM_THREADS: "1"}}       # values are text
limits:
  # time: 6h                         # stop after this long
  idle: 30m                          # silent this long: reported with every rank's stack
  grace: 30s                         # from the stop signal to the kill: save a checkpoint
retry:
  times: 3
  on: [lost, signal]                 # also: oom, hung, failed, "exit:33", "log:CUDA error"
  resume: true                       # from the newest checkpoint in $WINDLASS_CHECKPOINT_DIR
"""


@verb("init", outputs=WORDS)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--dry-run", is_flag=True, help="Print it, write nothing.")
@click.argument("file", default="job.yaml")
def command(session: Session, file: str, force: bool, dry_run: bool) -> None:
    """Write a commented job file."""
    text = TEMPLATE.format(file=file, name=_name(), script=_script())
    if dry_run or file == "-":
        click.echo(text, nl=False)
        return
    path = Path(file)
    if path.exists() and not force:
        raise Conflict(f"{file} is there already", hint="--force writes over it")
    path.write_text(text, encoding="utf-8")
    if not session.one({"file": str(path)}):
        session.say(f"wrote {file} · next: windlass apply -f {file}")


def _name() -> str:
    """The directory's name, as far as it can be a job's."""
    letters = [c if c.isascii() and c.isalnum() else "-" for c in Path.cwd().name.lower()]
    return "".join(letters).strip("-")[:40].strip("-") or "job"


def _script() -> str:
    scripts = sorted(path.name for path in Path.cwd().glob("*.py"))
    return next(
        (name for name in scripts if "train" in name), scripts[0] if scripts else "train.py"
    )
