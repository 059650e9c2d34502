"""Laid into a rank's PYTHONPATH as `sitecustomize`: lets the worker ask a Python for its stack.

Two signals nobody else uses: one makes faulthandler write every thread's stack into a file, the
other starts debugpy in the process. The file's existence tells the worker that the process
listens: one that does not would die of the signal. The user's own `sitecustomize` runs as ever.

Then come the hooks that the framework's contract asked for, if any (`windlass.worker.hooks`).
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _listen() -> None:
    import _signal  # type: ignore[import-not-found, unused-ignore]
    import faulthandler

    numbers = (
        (_signal.SIGRTMAX - 3, _signal.SIGRTMAX - 4)
        if hasattr(_signal, "SIGRTMAX")
        else (_signal.SIGUSR2, 0)
    )
    path = os.path.join(os.path.dirname(_here), "stack-%d.txt" % os.getpid())
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    faulthandler.register(numbers[0], file=opened, all_threads=True, chain=False)
    owner = os.getpid()

    def attach(number: object, frame: object) -> None:
        answer = os.path.join(os.path.dirname(_here), "attach-%d.txt" % os.getpid())
        try:
            import debugpy

            # Loopback only: whoever reaches this port can run anything in the process.
            text = "%s:%d" % debugpy.listen(("127.0.0.1", 0))
        except ImportError:
            text = "missing"
        except Exception as err:
            text = "failed: %s" % err
        with open(answer + ".new", "w") as file:
            file.write(text)
        os.rename(answer + ".new", answer)

    if numbers[1]:
        _signal.signal(numbers[1], attach)

    def forget() -> None:
        # Short-lived helpers of a job must not leave a file each.
        if os.getpid() == owner:
            try:
                if os.stat(path).st_size == 0:
                    os.unlink(path)
            except OSError:
                pass

    import atexit

    atexit.register(forget)


def _run_hooks(names: str) -> None:
    for name in names.split(","):
        try:
            __import__("windlass_hook_" + name)
        except Exception as err:
            sys.stderr.write("windlass: the hook %s failed: %r\n" % (name, err))


def _step_aside() -> None:
    """Run the sitecustomize that would have run without us."""
    from importlib.machinery import PathFinder

    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != _here]
    found = PathFinder.find_spec("sitecustomize", sys.path)
    if found is None or found.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(found)
    sys.modules["sitecustomize"] = module
    found.loader.exec_module(module)


try:
    _listen()
except Exception:
    # A debugging aid must never be the reason that a job fails.
    pass
if "WINDLASS_HOOKS" in os.environ:
    _run_hooks(os.environ["WINDLASS_HOOKS"])
_step_aside()
