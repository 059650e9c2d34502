"""A real MLflow server beside ours, to compare answers and speed with, and its real clients.

The environment has the fewest packages with which `mlflow server` starts on SQLite: its own list
has 900 MB for what no tracking call needs. So nothing here resolves; all is named.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import httpx

from windlass.testing.environments import environment
from windlass.testing.platform import wait_for

VERSION = "3.17.2"
OLDER = "2.22.5"
"""The newest client of the major version before."""
_REQUIREMENTS = f"""
mlflow=={VERSION} mlflow-skinny=={VERSION}
aiohappyeyeballs==2.7.1 aiohttp==3.14.5 aiosignal==1.4.0 alembic==1.20.1 annotated-doc==0.0.6
annotated-types==0.8.0 anyio==4.16.0 attrs==26.1.0 blinker==1.9.0 cachetools==7.3.0
certifi charset-normalizer==3.5.2 click==8.5.1 cloudpickle==3.1.2 cryptography==50.0.2
cffi==2.1.1 pycparser==3.12 databricks-sdk==0.156.0 fastapi==0.162.4 Flask==3.1.3
flask-cors==6.0.5 frozenlist==1.8.0 gitdb==4.0.12 GitPython==3.2.1 google-auth==2.62.2
graphene==3.4.3 graphql-core==3.3.2 graphql-relay==3.2.0 greenlet==3.5.6 gunicorn==27.0.0
h11==0.16.0 idna==3.20 importlib_metadata==9.1.0 itsdangerous==2.2.0 Jinja2==3.1.6 Mako==1.4.3
MarkupSafe==3.0.4 multidict==7.2.1 numpy==2.4.6 opentelemetry-api==1.45.2
opentelemetry-proto==1.45.2 opentelemetry-sdk==1.45.2 opentelemetry-semantic-conventions==0.66b2
packaging==26.3 pandas==3.1.1 propcache==0.5.4 protobuf==7.36.2 pyasn1==0.6.5
pyasn1_modules==0.4.2 pydantic==2.14.3 pydantic_core==2.50.4 python-dateutil==4.0.0
python-dotenv==1.2.4 PyYAML==6.0.3 requests==2.34.2 six==1.17.0 smmap==5.0.3 SQLAlchemy==2.1.8
sqlparse==0.6.1 starlette==1.10.0 typing-inspection==0.4.5 typing_extensions==4.16.0 tzdata
urllib3==2.8.0 uvicorn==0.54.0 Werkzeug==3.1.9 yarl==1.25.1 zipp==4.1.2
"""
_START_SECONDS = 120.0


def newest() -> Path:
    """The Python of an environment with the server and the newest client. Raises Unavailable."""
    # Not compiled: most of it is never imported.
    return environment("mlflow-3", *_REQUIREMENTS.split(), pip_args=("--no-deps", "--no-compile"))


def older() -> Path:
    """The Python of an environment with the older client alone. Raises Unavailable."""
    return environment("mlflow-2", f"mlflow-skinny=={OLDER}")


class MlflowServer:
    """`with MlflowServer(folder) as real: real.url`. One worker, SQLite, files below `folder`."""

    def __init__(
        self, folder: Path, *, auth: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.auth = auth
        self.env = dict(env or {})
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def __enter__(self) -> MlflowServer:
        python = newest()
        self.folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [
            str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port",
            str(self.port), "--workers", "1", "--backend-store-uri",
            f"sqlite:///{self.folder / 'mlflow.db'}", "--artifacts-destination",
            str(self.folder / "artifacts"), *(("--app-name", "basic-auth") if self.auth else ()),
        ]  # fmt: skip
        env = {
            **os.environ,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-a-test",
            "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "DO_NOT_TRACK": "true",
            **self.env,
        }
        with (self.folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            wait_for(self._up, _START_SECONDS, "the MLflow server answers")
        except BaseException:
            self.close()
            raise
        return self

    def _up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the MLflow server ended:\n{self.log[-4000:]}")
        try:
            with httpx.Client(trust_env=False, timeout=10) as client:
                return client.get(self.url + "/health").status_code == 200
        except httpx.HTTPError:
            return False

    def pids(self) -> list[int]:
        """The processes of the server: all of its session."""
        assert self.process is not None
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[3]) == self.process.pid:
                found.append(int(entry.parent.name))
        return found

    def close(self) -> None:
        """It and the workers that it started, which are all of its session."""
        process, self.process = self.process, None
        if process is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, how)
            except ProcessLookupError:
                break
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        process.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
