"""Numbers in what scripts print: few missed, none invented."""

from __future__ import annotations

import math
from typing import Any

import pytest

from windlass.patterns.groups import Pattern
from windlass.worker.pickup import intake, text
from windlass.worker.pickup.intake import Intake
from windlass.worker.pickup.steps import Steps

TELLING: list[tuple[str, dict[str, float], int]] = [
    ('{"loss": 0.3, "step": 10}', {"loss": 0.3}, 10),
    (
        '{"train": {"loss": 0.5}, "val": {"acc": 1}, "iter": 3}',
        {"train/loss": 0.5, "val/acc": 1},
        3,
    ),
    ('INFO:root:{"loss": 0.25, "global_step": 30}', {"loss": 0.25}, 30),
    ('{"bananas": 3.5}', {"bananas": 3.5}, 0),
    (
        "{'loss': 0.5, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}",
        {"loss": 0.5, "grad_norm": 1.2, "learning_rate": 5e-05},
        0,
    ),
    ("{'eval_loss': '0.5', 'epoch': '2'}", {"eval_loss": 0.5}, 2),
    ("epoch 3 step=10 loss=0.31 acc: 93.2%", {"loss": 0.31, "acc": 93.2}, 10),
    ("epoch=3 loss=inf", {"loss": math.inf}, 3),
    ("Epoch [3/10], Step [100/600], Loss: 0.3", {"loss": 0.3}, 100),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.305852", {"loss": 2.305852}, 640),
    (
        "Test set: Average loss: 0.0432, Accuracy: 9900/10000 (99%)",
        {"average_loss": 0.0432, "accuracy": 0.99},
        0,
    ),
    ("iter 100: loss 2.3456, time 12.3ms, mfu 10%", {"loss": 2.3456}, 100),
    (
        "step 250: train loss 1.9664, val loss 2.0490",
        {"train_loss": 1.9664, "val_loss": 2.049},
        250,
    ),
    ("[0]\tvalidation_0-logloss:0.55", {"validation_0-logloss": 0.55}, 0),
    ("[10]\tvalid_0's binary_logloss: 0.55", {"valid_0_binary_logloss": 0.55}, 10),
    ("Epoch 2: 40%|████  | 40/100 [00:01<00:02, 30.1it/s, v_num=0, loss=0.3]", {"loss": 0.3}, 40),
    (
        "32/32 ━━━━━━━━━━ 1s 2ms/step - accuracy: 0.9 - loss: 0.3 - val_loss: 0.4",
        {"accuracy": 0.9, "loss": 0.3, "val_loss": 0.4},
        0,
    ),
    ("32/32 [============] - 1s 2ms/step - loss: 0.3", {"loss": 0.3}, 0),
    ("32/32 - 0s - 2ms/step - loss: 0.3 - mae: 0.5", {"loss": 0.3, "mae": 0.5}, 0),
    ("2024-01-02 12:33:01,123 INFO train: epoch 3 loss 0.5", {"loss": 0.5}, 3),
    (
        "12:33:01 - step: 30 | loss: 0.5 | lr: 1e-4 | tokens/s: 1234.5",
        {"loss": 0.5, "lr": 1e-4, "tokens/s": 1234.5},
        30,
    ),
    ("Final test accuracy: 97.3%", {"test_accuracy": 97.3}, 0),
    (
        "Epoch 00012 | Loss 0.4321 | Train Acc 0.91 | Val Acc 0.88",
        {"loss": 0.4321, "train_acc": 0.91, "val_acc": 0.88},
        12,
    ),
    ("\x1b[32mloss = 0.25\x1b[0m", {"loss": 0.25}, 0),
    ("it: 300 reward=12 eps=0.1", {"reward": 12, "eps": 0.1}, 300),
]

SILENT = """\
2024-01-02 12:33:01,123 INFO server listening on 127.0.0.1:7400
Namespace(lr=0.1, batch_size=32, loss=3)
Adam(lr=0.001, betas=(0.9, 0.999))
lr: 0.001
    weight_decay: 0.1
learning_rate: 0.001
ValueError: 3
RuntimeError: CUDA error: 3
Traceback (most recent call last):
  File "train.py", line 33, in <module>
CUDA_VISIBLE_DEVICES=0,1
GET http://host:8080/?loss=3&x=2 HTTP/1.1
torch==2.3.1 numpy=1.26
version: 1.2.3
port: 8080
python train.py --lr=0.1 --loss=3
src/train.py:33: UserWarning: loss=3
Downloading: 100%|████| 440M/440M [00:10<00:00, 43.1MB/s]
100%|██████████| 100/100 [00:01<00:00, 90.1it/s]
Total params: 12345
batch_size=32
time: 12:30:11
Found 3 errors: 0 warnings
{"level": "info", "msg": "started", "pid": 123, "port": 80}
{"lr": 0.1, "batch_size": 32, "data": "/x"}
model: resnet50, params: 25.6M
[2024-01-02 12:00:00] INFO: starting
loss: mse
error: 2
Epochs: 10
GPU 0: 45% 3000MiB / 8000MiB
  (0): Linear(in_features=784, out_features=128, bias=True)
OMP_NUM_THREADS=1
eta: 0:12:33
2024-01-02T12:00:00.123Z
12/32 ━━━━━━━━━━ 1s 2ms/step - accuracy: 0.9 - loss: 0.3
{"loss": "mse", "opt": {"name": "adam"}}
checkpoint written to /tmp/loss=0.3/model.pt
E0102 12:00:00.000 1234 cuda.cc:12] ERROR: loss=3
"""


@pytest.mark.parametrize(("line", "values", "step"), TELLING)
def test_a_telling_line_gives_its_numbers_and_its_step(
    line: str, values: dict[str, float], step: int
) -> None:
    found = text.read(text.clean(line.encode()))
    assert found is not None
    assert found.values == values
    assert Steps().of(found) == step


@pytest.mark.parametrize("line", SILENT.splitlines())
def test_a_line_that_only_looks_like_a_metric_gives_none(line: str) -> None:
    assert text.read(text.clean(line.encode())) is None


def test_steps_rise_over_epochs_bars_and_bare_lines() -> None:
    def steps(lines: list[str]) -> list[int]:
        kept = Steps()
        found = []
        for line in lines:
            alone = text.epoch_alone(line)
            if alone is not None:
                kept.epoch = alone
                continue
            told = text.read(line)
            assert told is not None
            found.append(kept.of(told))
        return found

    places = [(epoch, at) for epoch in (1, 2) for at in (10, 20)]
    lines = [f"Epoch [{epoch}/2], Step [{at}/20], Loss: 1.5" for epoch, at in places]
    assert steps(lines) == [10, 20, 30, 40]
    assert steps([f"epoch {e} batch {s} loss=1.5" for e in (0, 1) for s in (0, 5)]) == [
        0,
        5,
        5,
        10,
    ]
    bars = [f"50%|██| {at}/10 [00:01<00:02, loss=0.3]" for at in (5, 10, 5, 10)]
    assert steps(bars) == [5, 10, 15, 20]
    assert steps(["loss=0.5", "loss=0.4", "acc=0.1", "loss=0.3"]) == [0, 1, 0, 2]
    assert steps(["epoch 1 loss=0.5", "epoch 1 loss=0.4", "epoch 1 loss=0.3"]) == [1, 2, 3]
    keras = ["Epoch 1/2", "9/9 ━━ 1s 2ms/step - loss: 0.3", "Epoch 2/2"]
    assert steps([*keras, "9/9 ━━ 1s 2ms/step - loss: 0.2"]) == [1, 2]


def test_a_jobs_own_patterns_find_what_they_name() -> None:
    patterns = [Pattern(r"gen (?P<step>\d+).*best (?P<best>[0-9.]+)"), Pattern(r"(?P<x>zz)")]
    found = text.matched("gen 7 of 9: best 3.25 zz", patterns)
    assert found is not None
    assert (found.values, found.step, found.form) == ({"best": 3.25}, 7, "pattern")
    assert text.matched("nothing here", patterns) is None


def taken(fed: Intake) -> list[bytes]:
    return [line for _, line in fed.take()]


def test_lines_that_come_in_pieces_are_whole_when_taken() -> None:
    fed = Intake()
    for piece in (b"no marks at all\nlo", b"ss=0.", b"5\nplain\nacc", b"=0.9\r\nlast=1"):
        fed.feed(memoryview(piece))
    assert taken(fed) == [b"loss=0.5", b"acc=0.9"]
    fed.end()
    assert taken(fed) == [b"last=1"]


def test_a_bar_that_is_drawn_again_counts_once_and_with_its_last_word() -> None:
    fed = Intake()
    for at in range(1, 10):
        fed.feed(memoryview(b"\r%d0%%|###| %d/10 [loss=0.%d]" % (at, at, at)))
    fed.feed(memoryview(b"\r100%|###| 10/10 [loss=0.1]\n"))
    found = taken(fed)
    assert len(found) == 2, "the first, and the last one"
    assert b"1/10" in found[0]
    assert b"10/10" in found[1]


def test_a_flood_is_looked_at_in_part_and_costs_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(intake.time, "monotonic", lambda: now[0])
    fed = Intake()
    block = memoryview(b"step 1 loss=0.5 acc=0.25\n" * 4000)
    for _ in range(50):
        fed.feed(block)
    assert len(taken(fed)) == intake.LINES_A_SECOND
    now[0] += 2
    fed.feed(memoryview(b"the rest of a line\nloss=0.125\n"))
    assert taken(fed) == [b"loss=0.125"]


def test_a_line_without_end_is_let_go_and_what_follows_is_found() -> None:
    fed = Intake()
    for _ in range(8):
        fed.feed(memoryview(b"x=" * 4096))
    fed.feed(memoryview(b"end\nloss=0.5\n"))
    assert taken(fed) == [b"loss=0.5"]


@pytest.mark.parametrize("junk", [b"\xff\xfe=1\n", b"{" * 5000 + b"}\n", b"=" * 8000 + b"\n"])
def test_junk_is_read_without_harm(junk: bytes) -> None:
    fed = Intake()
    fed.feed(memoryview(junk))
    for line in taken(fed):
        found: Any = text.read(text.clean(line))
        assert found is None
