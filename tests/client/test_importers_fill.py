"""What an importer cannot know is left to fill in: no file becomes a job that does nothing."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from windlass.client import documents
from windlass.client.importers.base import Fate
from windlass.client.importers.jobtext import render
from windlass.client.importers.registry import convert
from windlass.core.jobs import FILL_IN, JobSpec

HEAD = "#!/bin/bash\n#SBATCH --job-name=x\n"
ARRAY = HEAD + "#SBATCH --array=0-2\nLRS=(0.1 0.2 0.3)\nLR=${LRS[$SLURM_ARRAY_TASK_ID]}\n"
UNKNOWN = {
    "an element of an array": ARRAY + "srun python train.py --lr $LR\n",
    "the index itself": HEAD + "python train.py --fold ${SLURM_ARRAY_TASK_ID}\n",
    "a loop over one": ARRAY + "for s in 1 2; do\npython train.py --lr $LR --seed $s\ndone\n",
    "an argument": HEAD + "CONFIG=${1}\npython train.py --config $CONFIG\n",
    "all arguments": HEAD + 'python train.py "$@"\n',
    "a program in the script": HEAD + "python - <<EOF\nprint(1)\nEOF\n",
    "a trial class": "name: x\nentrypoint: model_def:Trial\nresources: {slots_per_trial: 1}\n",
    "the image's entry point": (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: x}\nspec:\n"
        "  pytorchReplicaSpecs:\n    Master:\n      template:\n        spec:\n"
        "          containers: [{name: pytorch, image: a/b, args: ['--epochs', '3']}]\n"
    ),
}
KNOWN = {
    "a default": HEAD + "python train.py --config ${1:-base.yaml}\n",
    "a variable of the script": HEAD + "LR=0.1\npython train.py --lr $LR\n",
    "what Windlass sets": HEAD + "python train.py --rank $SLURM_PROCID\n",
    "args that are a command": UNKNOWN["the image's entry point"].replace(
        "'--epochs', '3'", "python, train.py"
    ),
}


def commands(spec: dict[str, object]) -> list[list[str]]:
    roles = spec.get("roles")
    assert isinstance(roles, dict)
    found = [spec.get("run"), *(role.get("run") for role in roles.values())]
    return [each for each in found if isinstance(each, list | tuple)]


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_known_is_left_to_fill_in_and_refused_until_it_is(what: str) -> None:
    [job] = convert(UNKNOWN[what])
    assert any("fill in `run`" in note.what for note in job.having(Fate.BY_HAND))
    text = render([job], "file")
    [document] = documents.load(text, "job.yaml")
    with pytest.raises(ValidationError, match="left to fill in by `windlass import`"):
        JobSpec.model_validate(document)
    [filled] = documents.load(text.replace(FILL_IN, "python train.py"), "job.yaml")
    JobSpec.model_validate(filled)


@pytest.mark.parametrize("what", KNOWN)
def test_what_is_known_needs_no_hand(what: str) -> None:
    [job] = convert(KNOWN[what])
    JobSpec.model_validate(job.spec)
    assert not any("fill in" in note.what for note in job.notes)
    assert all(FILL_IN not in words for words in commands(job.spec))


def test_every_line_of_a_script_is_in_the_report() -> None:
    [job] = convert(
        HEAD + "DATA=/data\nUNUSED=1\nmodule load cuda && cd /work\nrm -rf old; mkdir new\n"
        "python train.py --data $DATA 2>&1 | tee log.txt\n"
    )
    told = {(note.field, note.fate): note.value for note in job.notes}
    assert "DATA=/data" in told["line 3", Fate.MAPPED]
    assert "UNUSED=1" in told["line 4", Fate.DROPPED]
    values = " ".join(note.value for note in job.having(Fate.BY_HAND))
    for command in ("module load cuda", "cd /work", "rm -rf old", "mkdir new"):
        assert command in values
    assert "tee log.txt" in told["line 7", Fate.DROPPED]
    assert commands(job.spec) == [["python", "train.py", "--data", "/data"]]


def test_what_follows_the_program_is_not_dropped_as_output() -> None:
    [job] = convert(HEAD + "python train.py | python post.py\n")
    assert any("python post.py" in note.value for note in job.having(Fate.BY_HAND))
