"""scikit-learn and joblib: a plain command that keeps to the CPUs it was given.

joblib counts the machine's cores as OpenMP and BLAS do (`contracts/threads.py`), and starts a
process for every one.
"""

from __future__ import annotations

from windlass.contracts.base import Contract


class SklearnContract(Contract):
    name = "sklearn"
    threads = ("LOKY_MAX_CPU_COUNT",)
