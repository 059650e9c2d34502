"""A random forest on handwritten digits, its trees grown by joblib on the CPUs of the job."""

from __future__ import annotations

import joblib
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score


def main() -> None:
    digits = load_digits()
    workers = joblib.cpu_count()
    for trees in (1, 5, 25):
        forest = RandomForestClassifier(n_estimators=trees, random_state=0)
        scores = cross_val_score(forest, digits.data, digits.target, cv=3, n_jobs=workers)
        print(f"trees {trees} loss {1 - scores.mean():.4f} workers {workers}", flush=True)


if __name__ == "__main__":
    main()
