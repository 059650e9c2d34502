"""The manifests of deploy/kubernetes, applied by kubectl to a real cluster: the server runs there
with no more rights than they give it, and its jobs run beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.client import Client
from windlass.core.jobs import TERMINAL
from windlass.testing.kubernetes import Cluster
from windlass.testing.platform import wait_for

pytestmark = pytest.mark.slow
MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
SPACE = "/api/v1/namespaces/windlass"
USER = 10001
# What is of this machine: its Python in place of an image with Windlass in it.
PATCH = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: windlass
spec:
  template:
    spec:
      containers:
        - name: server
          imagePullPolicy: Never
          command: [{python}, -m, windlass.server]
          volumeMounts:
{mounts}
      volumes:
{volumes}
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata:
  name: windlass-home
spec:
  accessModes: [ReadWriteMany]
  capacity: {{storage: 100Gi}}
  hostPath: {{path: {path}}}
"""


@pytest.fixture(scope="module")
def home(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the server that was deployed, as this machine sees it."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here (tools/kubernetes-build installs it)")
    folder = tmp_path_factory.mktemp("deploy")
    home = folder / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    paths = list(enumerate(kubernetes.host_paths))
    mounts = (f"            - {{name: at{n}, mountPath: {p}, readOnly: true}}" for n, p in paths)
    volumes = (f"        - {{name: at{n}, hostPath: {{path: {p}}}}}" for n, p in paths)
    (folder / "patch.yaml").write_text(
        PATCH.format(python=sys.executable, mounts="\n".join(mounts), volumes="\n".join(volumes))
    )
    (folder / "volume.yaml").write_text(VOLUME.format(path=home))
    name, _, tag = kubernetes.image.partition(":")
    overlay = {
        "bases": [os.path.relpath(MANIFESTS, folder)],  # what Debian's kubectl calls it, too
        "resources": ["volume.yaml"],
        "patchesStrategicMerge": ["patch.yaml"],
        "namespace": "windlass",
        "images": [{"name": "windlass", "newName": name, "newTag": tag}],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    kubectl(kubernetes, "apply", "-k", str(folder))
    yield home
    kubectl(kubernetes, "delete", "-k", str(folder), "--wait=false")


def kubectl(cluster: Cluster, *words: str) -> str:
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={cluster.kubeconfig}", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def address_of_server(cluster: Cluster) -> str:
    def ready() -> str | None:
        found = cluster.api.get(f"{SPACE}/pods", labelSelector="app.kubernetes.io/name=windlass")
        for pod in found["items"]:
            told = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
            if told.get("Ready") == "True":
                return str(pod["status"]["podIP"])
        return None

    return wait_for(ready, what="the server is ready")


def test_the_deployed_server_runs_jobs_with_the_rights_it_is_given(
    kubernetes: Cluster, home: Path
) -> None:
    url = f"http://{address_of_server(kubernetes)}:7400"
    key = json.loads((home / "credentials.json").read_text())
    volumes = ",".join(f"host:{path}:ro" for path in kubernetes.host_paths)
    options = {
        "image": kubernetes.image, "python": sys.executable, "share": "pvc:windlass-home",
        "volumes": volumes, "url": url, "poll": "1",
    }  # fmt: skip
    with Client(url, access_key=key["access_key"], secret_key=key["secret_key"]) as client:
        client.engines.add("cluster", "kubernetes", options)
        found = client.engines.check("cluster")["findings"]
        assert [each["said"] for each in found if not each["ok"]] == []
        job = client.jobs.submit(
            {"run": [sys.executable, "-c", "print(6 * 7)"], "engine": "cluster"}
        )
        wait_for(lambda: client.jobs.get(job.id).state in TERMINAL, what="it ends")
        assert client.jobs.get(job.id).state == "succeeded", client.jobs.why(job.id)
        assert "42" in str(list(client.jobs.logs(job.id)))


@pytest.mark.parametrize(
    ("verb", "what"),
    [("get", "secrets"), ("list", "secrets"), ("create", "secrets"), ("create", "pods/exec"),
     ("patch", "nodes"), ("create", "rolebindings"), ("update", "configmaps"),
     ("get", "configmaps"), ("patch", "pods"), ("create", "serviceaccounts/token")],
)  # fmt: skip
def test_the_server_may_do_no_more(kubernetes: Cluster, home: Path, verb: str, what: str) -> None:
    resource, _, inner = what.partition("/")
    group = "rbac.authorization.k8s.io" if resource == "rolebindings" else ""
    said = kubernetes.api.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"user": "system:serviceaccount:windlass:windlass", "resourceAttributes": {
            "verb": verb, "resource": resource, "subresource": inner, "group": group,
            "namespace": "windlass"}}},
    )  # fmt: skip
    assert not said["status"]["allowed"]
