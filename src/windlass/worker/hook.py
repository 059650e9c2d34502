"""Laid into a rank's PYTHONPATH as `sitecustomize`: lets the worker ask a Python for its stack.

Three signals nobody else uses: one makes faulthandler write every thread's stack into a file, one
starts debugpy in the process, one starts and ends the profiler of torch, or of TensorFlow where
there is no torch. The file's existence tells the worker that the process listens: one that does
not would die of the signal. The user's own `sitecustomize` runs as ever.

Then come the hooks that the framework's contract asked for, if any (`windlass.worker.hooks`).
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_answers = os.path.join(os.path.dirname(_here), "ranks")


def _listen() -> None:
    import _signal  # type: ignore[import-not-found, unused-ignore]
    import faulthandler

    numbers = (
        (_signal.SIGRTMAX - 3, _signal.SIGRTMAX - 4, _signal.SIGRTMAX - 5)
        if hasattr(_signal, "SIGRTMAX")
        else (_signal.SIGUSR2, 0, 0)
    )
    path = os.path.join(_answers, "stack-%d.txt" % os.getpid())
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    faulthandler.register(numbers[0], file=opened, all_threads=True, chain=False)
    owner = os.getpid()

    def attach(number: object, frame: object) -> None:
        try:
            import debugpy

            # Loopback only: whoever reaches this port can run anything in the process.
            text = "%s:%d" % debugpy.listen(("127.0.0.1", 0))
        except ImportError:
            text = "missing"
        except Exception as err:
            text = "failed: %s" % err
        _tell("attach", text)

    running = []  # type: ignore[var-annotated, unused-ignore]

    def trace(number: object, frame: object) -> None:
        try:
            text = _traced(running)
        except Exception as err:
            running.clear()
            text = "failed: %s" % err
        _tell("trace", text)

    if numbers[1]:
        _signal.signal(numbers[1], attach)
        _signal.signal(numbers[2], trace)

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


def _tell(what: str, text: str) -> None:
    answer = os.path.join(_answers, "%s-%d.txt" % (what, os.getpid()))
    with open(answer + ".new", "w") as file:
        file.write(text)
    os.rename(answer + ".new", answer)


def _traced(running) -> str:  # type: ignore[no-untyped-def, unused-ignore]
    """Start the profiler, or end the one that runs: the name of its file. In the thread of the
    signal, which is the main one: the profiler is of the thread that starts it."""
    torch = sys.modules.get("torch")
    if torch is None and "tensorflow" not in sys.modules:
        return "missing"
    import time

    name = "%s-%d-%d" % ("torch" if torch else "tf", os.getpid(), time.time())
    folder = os.path.join(os.environ["WINDLASS_OUTPUT_DIR"], "profiles")
    if not running:
        if torch is not None:
            profiler = torch.profiler.profile(record_shapes=True)
            profiler.start()
        else:
            profiler = os.path.join(folder, name)
            sys.modules["tensorflow"].profiler.experimental.start(profiler)
        running.append(profiler)
        return "begun"
    profiler = running.pop()
    if isinstance(profiler, str):
        sys.modules["tensorflow"].profiler.experimental.stop()
        return _only_file(profiler, folder)
    profiler.stop()
    os.makedirs(folder, exist_ok=True)
    name += ".pt.trace.json.gz"
    profiler.export_chrome_trace(os.path.join(folder, name))
    return name


def _only_file(folder: str, above: str) -> str:
    """TensorFlow's file lies where TensorBoard looks for it: plugins/profile/TIME/HOST."""
    for inside, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".xplane.pb"):
                return os.path.relpath(os.path.join(inside, name), above)
    return "failed: TensorFlow has left no trace"


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
