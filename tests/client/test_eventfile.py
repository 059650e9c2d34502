from __future__ import annotations

import math
from pathlib import Path

from windlass.client.eventfile import EventFile, crc32c
from windlass.worker.pickup.events import Events, Scalar


def scalars(path: Path) -> list[Scalar]:
    found: list[Scalar] = []
    reader = Events()
    reader.read(path.read_bytes(), found)
    assert reader.damaged == 0 and reader.offset == path.stat().st_size
    return found


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    with EventFile(tmp_path / "run", 1_700_000_000_000) as file:
        file.scalar("loss", 0, 1_700_000_000_500, 0.5)
        file.scalar("val/acc", 2**40, 1_700_000_001_000, -1.25)
        file.scalar("odd", 3, 1_700_000_002_000, math.inf)
        file.scalar("far", 4, 1_700_000_003_000, 1e300)
        file.scalar("nan", 5, 1_700_000_004_000, math.nan)
        file.flush()
    found = scalars(file.path)
    assert found[:2] == [
        Scalar("loss", 0, 1_700_000_000_500, 0.5),
        Scalar("val/acc", 2**40, 1_700_000_001_000, -1.25),
    ]
    assert [each.value for each in found[2:4]] == [math.inf, math.inf]
    assert math.isnan(found[4].value)


def test_a_file_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    for step in range(2):
        with EventFile(tmp_path, 5000) as file:
            file.scalar("loss", step, 6000, 1.0)
    assert [each.step for each in scalars(file.path)] == [0, 1]
