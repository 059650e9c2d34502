"""What a traceback says, however it was printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from windlass.patterns.tracebacks import error_of, last_traceback

PLAIN = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
  File "train.py", line 2, in main
    raise ValueError("no such luck")
ValueError: no such luck
"""
LAUNCHER = """\
E1119 20:41:01.100000 17 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1)
Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 99)
============================================================
"""


def marked(text: str, prefix: str) -> str:
    return "".join(prefix + line + "\n" for line in text.splitlines())


def test_torch_writes_the_rank_before_each_line() -> None:
    found = last_traceback(
        "step 1\n" + marked(PLAIN, "[rank1]: ") + "[W1119 20:41:01] bye\n", 4096
    )
    assert found == PLAIN.strip()


def test_two_ranks_that_fail_at_once_are_not_mixed_up() -> None:
    other = PLAIN.replace("no such luck", "another")
    mixed = "".join(
        f"[rank0]: {a}\n[rank1]: {b}\n"
        for a, b in zip(PLAIN.splitlines(), other.splitlines(), strict=True)
    )
    found = last_traceback(mixed, 4096)
    assert found is not None
    assert found.startswith("Traceback") and found.count("File") == 2


def test_a_launcher_that_fails_is_looked_through_to_the_rank_that_failed_first() -> None:
    first = marked(PLAIN, "[rank1]: ")
    later = marked(PLAIN.replace("no such luck", "connection closed by peer"), "[rank0]: ")
    found = last_traceback(first + later + LAUNCHER, 4096)
    assert found is not None and error_of(found) == "ValueError: no such luck"


def test_a_launcher_whose_child_said_nothing_says_all_it_knows() -> None:
    found = last_traceback(LAUNCHER, 4096)
    assert found is not None
    assert "exitcode  : 1 (pid: 99)" in found


@pytest.mark.parametrize(
    "message",
    ["one line", "it does not fit:\n  asked for 3 GiB\n\n  free: 1 GiB\ntry a smaller batch"],
)
def test_the_whole_message_of_a_real_exception_is_kept(tmp_path: Path, message: str) -> None:
    script = tmp_path / "fails.py"
    script.write_text(f"def f():\n    raise RuntimeError({message!r})\nf()\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    found = last_traceback("some output\n" + done.stderr, 4096)
    assert found == done.stderr.strip()
    assert error_of(found) == "RuntimeError: " + " ".join(message.split())


def test_of_a_chain_the_last_is_told_and_a_long_one_loses_frames_not_its_message() -> None:
    chained = PLAIN + "\nDuring handling of the above exception, another exception occurred:\n\n"
    chained += PLAIN.replace("ValueError: no such luck", "KeyError: 'x'")
    assert error_of(last_traceback(chained, 4096) or "") == "KeyError: 'x'"
    deep = PLAIN.replace("main()", "main()" + " " * 5000)
    found = last_traceback(deep, 200) or ""
    assert len(found) <= 200 and found.endswith("ValueError: no such luck")


def test_a_script_that_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("def f(:\n    pass\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    found = last_traceback(done.stderr, 4096)
    assert found is not None and "line 1" in found and "SyntaxError" in error_of(found)


def test_no_traceback_is_none() -> None:
    assert last_traceback("nothing here", 4096) is None
    assert error_of("") == ""
