"""scikit-learn's `cross_validate` with a job for each fold.

The estimator and the data travel with the jobs, pickled by the caller and opened by the caller's
own jobs alone. The folds are cut here, so that they are the same as without Windlass.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.client.config import loopback
from windlass.core.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.client import Client

METRICS = ("test_score", "fit_time", "score_time")
FOLD = '''"""One fold: made by windlass.client.crossvalidation."""
import json, os, time
import joblib
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.utils import _safe_indexing as taken

given = joblib.load("given.joblib")
train, test = given["folds"][json.loads(os.environ["WINDLASS_PARAMS"])["fold"]]
X, y = given["X"], given["y"]
model = clone(given["estimator"])
began = time.perf_counter()
labels = () if y is None else (taken(y, train),)
model.fit(taken(X, train), *labels)
fitted = time.perf_counter()
labels = () if y is None else (taken(y, test),)
score = check_scoring(model, scoring=given["scoring"])(model, taken(X, test), *labels)
times = {"fit_time": fitted - began, "score_time": time.perf_counter() - fitted}
print(json.dumps({"test_score": float(score), **times}), flush=True)
'''


def cross_validate(
    client: Client,
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    cv: Any = 5,
    scoring: str | None = None,
    parallel: int | None = None,
    job: Mapping[str, Any] | None = None,
    name: str | None = None,
    timeout_seconds: float | None = None,
) -> dict[str, Any]:
    """`test_score`, `fit_time` and `score_time`, each with one number for each fold, in order.

    `job` has more fields of a job file for the folds (`roles`, `environment`, `queue` …),
    `parallel` says how many run at once. Raises InvalidInput, naming the jobs, when a fold failed.
    """
    import joblib  # type: ignore[import-untyped]
    import numpy
    from sklearn.base import is_classifier  # type: ignore[import-untyped]
    from sklearn.model_selection import check_cv  # type: ignore[import-untyped]

    cut = check_cv(cv, y, classifier=is_classifier(estimator))
    folds = [(train, test) for train, test in cut.split(X, y, groups)]
    given = {"estimator": estimator, "X": X, "y": y, "scoring": scoring, "folds": folds}
    whole: dict[str, Any] = {"framework": "sklearn", **(job or {}), "run": ["python", "fold.py"]}
    if "environment" not in whole and loopback(client.url):
        whole["environment"] = {"python": sys.executable}
    spec: dict[str, Any] = {
        "job": whole, "space": {"fold": list(range(len(folds)))}, "sampler": "grid",
        "maximize": METRICS[0], "trials": len(folds), "give": "environment",
        "parallel": parallel or len(folds), **({"name": name} if name else {}),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "fold.py").write_text(FOLD, encoding="utf-8")
        joblib.dump(given, os.path.join(folder, "given.joblib"))
        study = client.studies.create(spec, code=folder)
    client.studies.wait(study.name, timeout_seconds=timeout_seconds)
    trials = sorted(client.studies.trials(study.name), key=lambda each: each["params"]["fold"])
    bad = [trial for trial in trials if trial["state"] != "succeeded"]
    if bad or len(trials) < len(folds):
        first = f"fold {bad[0]['params']['fold']} {bad[0]['reason']}" if bad else "it was stopped"
        raise InvalidInput(
            f"{study.name}: {first}",
            hint=f"windlass logs {bad[0]['job']}" if bad else "",
        )
    runs = client.runs.of([trial["job"] for trial in trials])
    return {
        metric: numpy.array([runs[trial["job"]].metrics[metric]["last"] for trial in trials])
        for metric in METRICS
    }
