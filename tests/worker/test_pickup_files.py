"""TensorBoard's event files, and parameters in commands and the files that they name."""

from __future__ import annotations

import base64
import os
import struct
from pathlib import Path

import pytest

from windlass.worker.pickup import arguments, events
from windlass.worker.pickup.events import Damaged, Events, Scalar, masked_crc
from windlass.worker.pickup.folders import EventFiles

GOLDEN = base64.b64decode(
    b"SAAAAAAAAAD+kkidCdURTDmpvtpBGg1icmFpbi5FdmVudDoyUi4KLHRlbnNvcmJvYXJkLnN1bW1hcnkud3Jp"
    b"dGVyLmV2ZW50X2ZpbGVfd3JpdGVy6hbwYS0AAAAAAAAAPEGK+wkjFkw5qb7aQSoiCiAKA2FjY0IKCAESACoE"
    b"AAAAAEoNCgkKB3NjYWxhcnMgAcqjY2EvAAAAAAAAAG1dHVAJmRhMOam+2kEQASoiCiAKA2FjY0IKCAESACoE"
    b"zczMPUoNCgkKB3NjYWxhcnMgAVnFLFMvAAAAAAAAAG1dHVAJNhlMOam+2kEQAioiCiAKA2FjY0IKCAESACoE"
    b"zcxMPkoNCgkKB3NjYWxhcnMgAcxhgnsvAAAAAAAAAG1dHVAJqxlMOam+2kEQAyoiCiAKA2FjY0IKCAESACoE"
    b"mpmZPkoNCgkKB3NjYWxhcnMgAduyTEAvAAAAAAAAAG1dHVAJFBpMOam+2kEQBCoiCiAKA2FjY0IKCAESACoE"
    b"zczMPkoNCgkKB3NjYWxhcnMgAeGSVrA="
)
"""By tensorboard.summary.Writer of TensorBoard 2.21: `acc` at steps 0 to 4, as tensors."""


def record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    checks = struct.pack("<I", masked_crc(length)), struct.pack("<I", masked_crc(event))
    return length + checks[0] + event + checks[1]


def scalar(tag: str, value: float, step: int) -> bytes:
    """An event with one simple value, as `SummaryWriter.add_scalar` writes it."""
    inner = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    when = b"\x09" + struct.pack("<d", 1_700_000_000.5)
    return record(when + b"\x10" + varint(step) + b"\x2a" + bytes([len(summary)]) + summary)


def varint(number: int) -> bytes:
    found = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def read(data: bytes) -> list[Scalar]:
    found: list[Scalar] = []
    Events().read(data, found)
    return found


def told(files: EventFiles, last: bool = True) -> list[tuple[str, int, float, str]]:
    return [
        (each.key, each.scalar.step, round(each.scalar.value, 6), each.source)
        for each in files.read(last)
    ]


def test_the_checksum_is_castagnolis() -> None:
    assert events.crc32c(b"123456789") == 0xE3069283
    assert events.crc32c(b"") == 0


def test_a_file_of_the_real_writer_is_read() -> None:
    found = read(GOLDEN)
    assert [(each.tag, each.step, round(each.value, 6)) for each in found] == [
        ("acc", step, step / 10) for step in range(5)
    ]
    assert all(each.at_ms > 1_700_000_000_000 for each in found)


def test_simple_values_negative_steps_and_nan_are_read() -> None:
    data = scalar("loss", 0.5, 3) + scalar("loss", float("nan"), -1)
    first, second = read(data)
    assert first == ("loss", 3, 1_700_000_000_500, 0.5)
    assert (second.step, second.value != second.value) == (-1, True)


def test_every_cut_of_a_file_gives_a_beginning_of_what_the_whole_gives() -> None:
    whole = read(GOLDEN)
    for size in range(0, len(GOLDEN), 7):
        reader, found = Events(), list[Scalar]()
        reader.read(GOLDEN[:size], found)
        assert found == whole[: len(found)]
        reader.read(GOLDEN[reader.offset :], found)
        assert found == whole


def test_a_damaged_event_is_passed_over_and_a_damaged_length_ends_it() -> None:
    good = scalar("loss", 0.5, 1)
    event = bytearray(good)
    event[20] ^= 1
    assert [each.step for each in read(bytes(event) + scalar("loss", 0.25, 2))] == [2]
    length = bytearray(good)
    length[0] ^= 1
    found: list[Scalar] = []
    with pytest.raises(Damaged):
        Events().read(good + bytes(length) + good, found)
    assert len(found) == 1


@pytest.mark.parametrize("byte", range(12, 60, 3))
def test_no_byte_of_an_event_can_do_harm(byte: int) -> None:
    event = bytearray(scalar("loss", 0.5, 1)[12:-4])
    event[byte % len(event)] = 0xFF
    read(record(bytes(event)))


def test_files_that_appear_and_grow_are_followed_and_old_ones_are_not(tmp_path: Path) -> None:
    old = tmp_path / "old" / "events.out.tfevents.1"
    old.parent.mkdir()
    old.write_bytes(scalar("loss", 9.0, 1))
    files = EventFiles([str(tmp_path)], None)
    path = tmp_path / "runs" / "x" / "events.out.tfevents.2.host"
    path.parent.mkdir(parents=True)
    large = record(b"\x1a" + varint(100_000) + b"x" * 100_000)
    path.write_bytes(scalar("loss", 0.5, 1) + large + scalar("loss", 0.25, 2)[:10])
    source = "tensorboard runs/x"
    assert told(files) == [("loss", 1, 0.5, source)]
    with open(path, "ab") as file:
        file.write(scalar("loss", 0.25, 2)[10:])
    assert told(files) == [("loss", 2, 0.25, source)]
    assert told(files) == []
    other = tmp_path / "runs" / "validation" / "events.out.tfevents.3.host"
    other.parent.mkdir()
    other.write_bytes(scalar("loss", 0.75, 1))
    assert told(files) == [("validation/loss", 1, 0.75, "tensorboard runs/validation")]


def test_links_and_what_is_no_file_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "events.out.tfevents.1").write_bytes(scalar("secret", 1.0, 1))
    root = tmp_path / "work"
    root.mkdir()
    files = EventFiles([str(root)], None)
    (root / "linked").symlink_to(outside)
    (root / "events.out.tfevents.2").symlink_to(outside / "events.out.tfevents.1")
    os.mkfifo(root / "events.out.tfevents.3")
    assert told(files) == []


def test_arguments_of_all_spellings_are_parameters(tmp_path: Path) -> None:
    command = "torchrun --nproc_per_node 2 train.py --lr 0.1 --layers=3 --amp -b 32 --shift -1"
    words = [
        *command.split(),
        "optim.momentum=0.9",
        "+seed=7",
        "--sizes",
        "1",
        "2",
        "--name",
        "a b",
    ]
    (found,) = arguments.of_command(words, str(tmp_path))
    assert found.source == "argv"
    assert found.values == {
        "lr": "0.1", "layers": "3", "amp": "true", "b": "32", "shift": "-1",
        "optim.momentum": "0.9", "seed": "7", "sizes": "1 2", "name": "a b",
    }  # fmt: skip


def test_what_looks_like_a_password_is_left_out(tmp_path: Path) -> None:
    words = ["python", "t.py", "--api-key", "x", "--token=y", "--max_tokens", "5", "db.password=z"]
    (found,) = arguments.of_command(words, str(tmp_path))
    assert found.values == {"max_tokens": "5"}


def test_settings_in_files_that_the_command_names_are_parameters(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.json").write_text('{"lr": 0.1, "net": {"depth": 3, "act": "relu"}}')
    (tmp_path / "b.yaml").write_text(
        "# settings\nlr: 0.2   # faster\nnet:\n  depth: 4\n  name: 'big one'\n"
        "layers:\n  - 16\n  - 32\nstages:\n  - kind: conv\n    size: 3\ntext: |\n  a: b\n"
        "last: yes\n"
    )
    words = ["python", "-m", "pkg.train", "--config", "conf/a.json", "b.yaml", "/etc/x.json"]
    first, second, argv = arguments.of_command(words, str(tmp_path))
    assert first == (
        "config file conf/a.json",
        {"lr": "0.1", "net.depth": "3", "net.act": "relu"},
    )
    assert second == (
        "config file b.yaml",
        {
            "lr": "0.2", "net.depth": "4", "net.name": "big one", "layers": "[16, 32]",
            "last": "yes",
        },
    )  # fmt: skip
    assert argv.values == {"config": "conf/a.json"}


@pytest.mark.parametrize("name", ["../x.json", "linked.json", "absent.yaml", "broken.json"])
def test_a_file_elsewhere_or_broken_gives_nothing(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "x.json").write_text('{"lr": 1}')
    (work / "linked.json").symlink_to(tmp_path / "x.json")
    (work / "broken.json").write_text('{"lr": ')
    assert arguments.of_command(["python", "t.py", name], str(work)) == []
