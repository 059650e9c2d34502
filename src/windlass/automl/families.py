"""Kinds of models, the parameters that each is searched over, and the fixed pipeline before it.

A parameter exists only where `family` is its own: the space is written as a study file writes it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from typing import Any

SPACES: dict[str, dict[str, Any]] = {
    "linear": {"linear_c": "log:1e-3..1e3"},
    "forest": {
        "forest_trees": "int:50..300/50",
        "forest_features": "float:0.2..1",
        "forest_leaf": "logint:1..20",
    },
    "boosting": {
        "boosting_rate": "log:0.02..0.4",
        "boosting_leaves": "logint:4..64",
        "boosting_rounds": "int:40..240/40",
        "boosting_l2": "log:1e-6..10",
    },
    "neighbours": {"neighbours_k": "logint:1..50", "neighbours_weights": ["uniform", "distance"]},
    "svm": {"svm_c": "log:1e-1..1e3", "svm_gamma": "log:1e-4..1"},
    "lightgbm": {
        "lightgbm_rate": "log:0.02..0.3",
        "lightgbm_leaves": "logint:4..128",
        "lightgbm_rounds": "int:40..400/40",
    },
    "xgboost": {
        "xgboost_rate": "log:0.02..0.4",
        "xgboost_depth": "int:2..10",
        "xgboost_rounds": "int:40..400/40",
    },
    "net": {
        "net_width": "logint:16..256",
        "net_depth": "int:1..3",
        "net_rate": "log:3e-4..3e-2",
        "net_decay": "log:1e-6..1e-1",
    },
}
NEEDS = {"lightgbm": "lightgbm", "xgboost": "xgboost", "net": "torch"}
"""What must be installed beside scikit-learn."""
SLOW_ABOVE = {"svm": 10_000, "neighbours": 100_000}
"""Rows beyond which a family is not tried."""


def available(rows: int) -> tuple[list[str], list[str]]:
    """Families that can be tried here, and why others are not."""
    found, notes = [], []
    for family in SPACES:
        if family in NEEDS and importlib.util.find_spec(NEEDS[family]) is None:
            notes.append(f"no {family}: {NEEDS[family]} is not installed where jobs run")
        elif rows > SLOW_ABOVE.get(family, rows):
            notes.append(f"no {family}: too slow for {rows} rows")
        else:
            found.append(family)
    return found, notes


def space_of(families: Iterable[str]) -> dict[str, Any]:
    """One study's space: the family, and for each its own parameters."""
    names = list(families)
    space: dict[str, Any] = {"family": names}
    for family in names:
        for name, values in SPACES[family].items():
            kind = "choices" if isinstance(values, list) else "range"
            space[name] = {kind: values, "when": {"family": [family]}}
    return space


def pipeline(
    params: Mapping[str, Any], task: str, numbers: int, categories: int, seed: int
) -> Any:
    """A model for rows as `table.features` makes them: `numbers` columns, then `categories`."""
    from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]
    from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]
    from sklearn.pipeline import Pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import (  # type: ignore[import-untyped]
        OneHotEncoder,
        StandardScaler,
    )

    steps: list[tuple[str, Any, list[int]]] = []
    if numbers:
        fill = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        scaled = Pipeline([("fill", fill), ("scale", StandardScaler())])
        steps.append(("numbers", scaled, list(range(numbers))))
    if categories:
        coded = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=40, sparse_output=False
        )
        steps.append(("categories", coded, list(range(numbers, numbers + categories))))
    return Pipeline(
        [("columns", ColumnTransformer(steps)), ("model", estimator(params, task, seed))]
    )


def estimator(params: Mapping[str, Any], task: str, seed: int) -> Any:
    """The model that one trial's parameters name."""
    family = params["family"]
    own = {name.partition("_")[2]: value for name, value in params.items() if "_" in name}
    classes = task == "classification"
    made: Any
    if family == "linear":
        from sklearn.linear_model import LogisticRegression, Ridge  # type: ignore[import-untyped]

        made = LogisticRegression(C=own["c"], max_iter=2000) if classes else Ridge(1 / own["c"])
    elif family == "forest":
        from sklearn import ensemble  # type: ignore[import-untyped]

        kind = ensemble.RandomForestClassifier if classes else ensemble.RandomForestRegressor
        made = kind(
            own["trees"], max_features=own["features"], min_samples_leaf=own["leaf"],
            random_state=seed,
        )  # fmt: skip
    elif family == "boosting":
        from sklearn import ensemble

        kind = ensemble.HistGradientBoostingRegressor
        kind = ensemble.HistGradientBoostingClassifier if classes else kind
        made = kind(
            learning_rate=own["rate"], max_leaf_nodes=own["leaves"], max_iter=own["rounds"],
            l2_regularization=own["l2"], random_state=seed,
        )  # fmt: skip
    elif family == "neighbours":
        from sklearn import neighbors

        kind = neighbors.KNeighborsClassifier if classes else neighbors.KNeighborsRegressor
        made = kind(own["k"], weights=own["weights"])
    elif family == "svm":
        made = _svm(own, classes, seed)
    elif family == "lightgbm":
        made = _lightgbm(own, classes, seed)
    elif family == "xgboost":
        made = _xgboost(own, classes, seed)
    else:
        from windlass.automl.net import Net

        made = Net(
            classes=classes, width=own["width"], depth=own["depth"], rate=own["rate"],
            decay=own["decay"], seed=seed,
        )  # fmt: skip
    return made


def _svm(own: Mapping[str, Any], classes: bool, seed: int) -> Any:
    from sklearn import svm
    from sklearn.calibration import CalibratedClassifierCV  # type: ignore[import-untyped]
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.preprocessing import StandardScaler

    if classes:
        plain = svm.SVC(C=own["c"], gamma=own["gamma"])
        return CalibratedClassifierCV(plain, ensemble=False, cv=3)
    # The width of its tube is in the target's units: these are made the same for all tables.
    return TransformedTargetRegressor(
        svm.SVR(C=own["c"], gamma=own["gamma"]), transformer=StandardScaler()
    )


def _lightgbm(own: Mapping[str, Any], classes: bool, seed: int) -> Any:
    lightgbm = importlib.import_module("lightgbm")

    kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
    return kind(
        learning_rate=own["rate"], num_leaves=own["leaves"], n_estimators=own["rounds"],
        random_state=seed, verbosity=-1, n_jobs=1,
    )  # fmt: skip


def _xgboost(own: Mapping[str, Any], classes: bool, seed: int) -> Any:
    xgboost = importlib.import_module("xgboost")

    kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    return kind(
        learning_rate=own["rate"], max_depth=own["depth"], n_estimators=own["rounds"],
        random_state=seed, n_jobs=1,
    )  # fmt: skip
