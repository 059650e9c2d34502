"""`compile=True` compiles, changes nothing but the pace, and says when it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from alone import Alone, make
from torch import nn

import windlass.train as wt
from windlass.train.compiling import why_not
from windlass.train.runners.collective import AllReduce

CPU = torch.device("cpu")


def weights(run: wt.Run) -> torch.Tensor:
    found: torch.Tensor = run.state["weight"]
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch's own, of its own parts
def test_what_is_compiled_trains_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = why_not(nn.Linear(1, 1), Alone(), CPU)
    if why is not None:
        pytest.skip(f"compile: {why}")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool that outlives the test
    # Headers that are compiled ahead cost more than they save for one small network.
    monkeypatch.setattr("torch._inductor.config.cpp_cache_precompile_headers", False)
    whole = wt.fit(make, Alone(), steps=4, progress=False)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    run = wt.fit(make, Alone(), steps=4, progress=False, compile=True)
    assert not [each for each in run.warnings if each.startswith("compile")]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0, "it was compiled"
    assert any(tmp_path.rglob("*.so")), "by the C++ compiler"
    assert torch.allclose(weights(run), weights(whole), rtol=1e-9, atol=1e-12)
    torch._dynamo.reset()


def test_without_a_compiler_it_says_so_and_trains_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    run = wt.fit(make, Alone(), steps=4, progress=False, compile=True)
    [told] = [each for each in run.warnings if each.startswith("compile")]
    assert "there is no C++ compiler" in told
    assert told in run.report(), "the report says it too"
    assert torch.equal(weights(run), weights(wt.fit(make, Alone(), steps=4, progress=False)))


class LikeKeras(nn.Linear):
    """Keras models are torch modules whose compile() sets their optimiser and loss."""

    def compile(self, optimizer: str = "rmsprop", **_: Any) -> None:  # type: ignore[override]
        raise AssertionError("not the one that was meant")


def like_keras() -> wt.Task:
    task = make()
    model = LikeKeras(5, 2, dtype=torch.float64)
    return wt.Task(model, task.loss, torch.optim.SGD(model.parameters(), 0.5), task.data)


def test_a_compile_of_the_models_own_is_not_called() -> None:
    run = wt.fit(like_keras, Alone(), steps=2, progress=False, compile=True)
    assert "LikeKeras has a compile() of its own" in " ".join(run.warnings)


class InParts(Alone):
    places_model = True


def test_a_strategy_that_runs_parts_and_missing_headers_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(1, 1)
    assert "alone runs parts of a model" in str(why_not(model, InParts(), CPU))
    compiler = tmp_path / "g++"
    compiler.touch(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert "headers" in str(why_not(model, AllReduce(), CPU))
    (tmp_path / "Python.h").touch()
    assert why_not(model, AllReduce(), CPU) is None
