"""One line for the frameworks that do not read the environment by themselves.

    with collective.xgboost():                  rank 0 tracks, every rank joins
        booster = xgboost.train(...)

    collective.jax()                            jax.distributed.initialize(...)

    params = {**mine, **collective.lightgbm_params()}

Off the platform each of them does nothing: the same script runs alone. The frameworks are imported
here by name and only when asked for, since this package needs the standard library only.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Dict, Iterator, Mapping, Optional


@contextmanager
def xgboost(**more: Any) -> Iterator[int]:
    """This process as a member of XGBoost's collective; gives its rank. `more` goes to
    CommunicatorContext (such as `dmlc_timeout=60`). Needs XGBoost 2.1 or newer."""
    env = os.environ
    if "DMLC_TRACKER_URI" not in env:
        yield 0
        return
    module = import_module("xgboost.collective")
    tracker = _tracker() if int(env["DMLC_TASK_ID"]) == 0 else None
    arguments = {
        "dmlc_tracker_uri": env["DMLC_TRACKER_URI"],
        "dmlc_tracker_port": int(env["DMLC_TRACKER_PORT"]),
        "dmlc_task_id": env["DMLC_TASK_ID"],
        # The tracker of rank 0 may come up after us.
        "dmlc_retry": 60,
        **more,
    }
    with module.CommunicatorContext(**arguments):
        yield module.get_rank()
    if tracker is not None:
        tracker.join()


def _tracker() -> threading.Thread:
    """The tracker, started; the thread ends when all ranks have left. It must not be waited for
    before this rank has joined."""
    env = os.environ
    tracker = import_module("xgboost.tracker").RabitTracker(
        n_workers=int(env["DMLC_NUM_WORKER"]),
        host_ip=env["DMLC_TRACKER_URI"],
        port=int(env["DMLC_TRACKER_PORT"]),
        sortby="task",
    )
    tracker.start()
    thread = threading.Thread(target=tracker.wait_for, name="xgboost-tracker", daemon=True)
    thread.start()
    return thread


def jax(**more: Any) -> None:
    """`jax.distributed.initialize` with this gang's coordinator. Call it before anything else of
    JAX; `more` goes to it too."""
    env = os.environ
    if "JAX_COORDINATOR_ADDRESS" not in env or "JAX_PROCESS_ID" not in env:
        return
    import_module("jax").distributed.initialize(
        coordinator_address=env["JAX_COORDINATOR_ADDRESS"],
        num_processes=int(env["JAX_NUM_PROCESSES"]),
        process_id=int(env["JAX_PROCESS_ID"]),
        **more,
    )


def lightgbm_params(environment: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
    """The parameters that make LightGBM train over the gang; empty for a single process."""
    env = os.environ if environment is None else environment
    if int(env.get("LIGHTGBM_NUM_MACHINE", "1")) < 2:
        return {}
    return {
        "machines": env["LIGHTGBM_MACHINES"],
        "num_machines": int(env["LIGHTGBM_NUM_MACHINE"]),
        "local_listen_port": int(env["LIGHTGBM_LOCAL_LISTEN_PORT"]),
        "tree_learner": "data",
    }
