"""A script's own checkpoints by their names, and whether a file has its end."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from windlass.worker.filesets import base_of, found, step_in
from windlass.worker.formats import whole
from windlass.worker.writers import writers_of


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ckpt-400.pt", 400),
        ("epoch=3-step=400.ckpt", 400),
        ("checkpoint-500", 500),
        ("model_0012.pth", 12),
        ("checkpoint_0003.pth.tar", 3),
        ("weights.10-0.53.hdf5", 10),
        ("ckpt-7.data-00000-of-00001", 7),
        ("iter_0001000", 1000),
        ("global_step1200", 1200),
        ("epoch_3_acc_91.pt", 3),
        ("last.ckpt", None),
        ("events.out.tfevents.1700000000.host", None),
        ("results-3.json", None),
        ("best_model.pt", None),
    ],
)
def test_the_step_is_in_the_name(name: str, step: int | None) -> None:
    assert step_in(base_of(name)) == step


def test_files_of_one_step_are_one_checkpoint_and_ours_and_drafts_are_left_out(
    tmp_path: Path,
) -> None:
    for name in (
        "ckpt-7.index", "ckpt-7.data-00000-of-00001", "ckpt-8.pt", "model-9.pt",
        "optim-state-9.pt", "ckpt-10.pt.tmp", ".ckpt-11.pt", "tmp-checkpoint-12",
        "logs/version_0/epoch=1-step=20.ckpt",
        "checkpoint-30/model.safetensors", "checkpoint-30/deep/rng.pth",
        "step-000000000040-000001/x", ".windlass/step-000000000001-000001.json",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * (2 if "model-9" in name else 1))
    (tmp_path / "ckpt-50.pt").symlink_to("/etc/hostname")
    assert {each.step: each.path for each in found(str(tmp_path)).values()} == {
        7: "ckpt-7", 8: "ckpt-8.pt", 9: "model-9.pt",
        20: "logs/version_0/epoch=1-step=20.ckpt", 30: "checkpoint-30",
    }  # fmt: skip
    [folder] = [each for each in found(str(tmp_path)).values() if each.step == 30]
    assert [entry[0] for entry in folder.entries] == [
        "checkpoint-30/deep/rng.pth", "checkpoint-30/model.safetensors",
    ]  # fmt: skip


def test_who_writes_is_seen_and_who_reads_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1")
    about = path.stat()
    place = (about.st_dev, about.st_ino)
    with open(path, "rb"):
        assert writers_of([place])[place] == set()
    with open(path, "ab"):
        assert writers_of([place])[place] == {os.getpid()}


def test_a_file_that_was_cut_short_is_told_by_its_format() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", b"x" * 200_000)
    data = buffer.getvalue()
    header = json.dumps({"w": {"data_offsets": [0, 8]}}).encode()
    tensors = len(header).to_bytes(8, "little") + header + b"12345678"
    for name, content in (("a.pt", data), ("a.safetensors", tensors)):
        for size in (1, len(content) // 2, len(content) - 1):
            if size > 8 or name.endswith("safetensors"):
                assert not whole(name, io.BytesIO(content[:size]), size), (name, size)
        assert whole(name, io.BytesIO(content), len(content))
    assert whole("a.h5", io.BytesIO(b"x"), 1) and not whole("a.h5", io.BytesIO(b""), 0)
