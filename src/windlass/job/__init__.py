"""Inside the user's process: where am I, log this, save that.

Standard library only and readable by Python 3.8, since it runs in the user's own interpreter.
Works with no server too: then everything goes to a local folder.

    context.py     where this process stands: job, attempt, rank, folders
    log.py         metrics and progress
    spool.py       the file they go to, one line per call
    offline.py     who a run is that has no platform, for a later `windlass sync`
    checkpoint.py  the one writer of checkpoints, and where to resume from
    checkpointer.py  what to save said once: objects or functions; resumed by itself
    states.py      the state of an object as files: torch, Keras, plain dicts
    gang.py        how the ranks of a gang make one checkpoint together
    manifest.py    what a checkpoint is on disk; runs alone, without this package
    registry.py    telling the server about a checkpoint
    predictions.py what a model said about rows whose truth is known
    stop.py        SIGTERM as a question a training loop can ask
    collective.py  one line for XGBoost, LightGBM and JAX, which do not read the environment
"""
