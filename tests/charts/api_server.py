"""A real kube-apiserver with its etcd on loopback: started, asked, ended. Without a scheduler, controllers or nodes."""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

Manifest = dict[str, Any]
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


class Refused(Exception):
    """The API server did not accept an object; the text is its own."""


class ApiServer:
    """Use as a context. ``warnings`` has every warning that it gave with an answer."""

    def __init__(self, folder: Path, etcd: Path, api_server: Path, ports: list[int]) -> None:
        self._folder = folder
        self._programs = etcd, api_server
        self._ports = ports
        self._token = secrets.token_hex(16)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}
        self.warnings: list[str] = []
        self.version = ""
        self.kubeconfig = folder / "kubeconfig"

    def __enter__(self) -> Self:
        client, peer, secure = self._ports
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        (self._folder / "accounts.key").write_bytes(pem)
        (self._folder / "tokens.csv").write_text(f'{self._token},tester,1,"system:masters"\n')
        self._start(
            self._programs[0],
            f"--data-directory={self._folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self._start(
            self._programs[1],
            f"--etcd-servers=http://127.0.0.1:{client}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._folder / 'accounts.key'}",
            f"--service-account-signing-key-file={self._folder / 'accounts.key'}",
            "--endpoint-reconciler-type=none",
        )
        self._write_kubeconfig(f"https://127.0.0.1:{secure}")
        try:
            self._wait_until_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _start(self, program: Path, *arguments: str) -> None:
        with (self._folder / f"{program.name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen([program, *arguments], cwd=self._folder, stdout=log, stderr=log))

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def _write_kubeconfig(self, address: str) -> None:
        cluster = {"name": "it", "cluster": {"server": address, "insecure-skip-tls-verify": True}}
        user = {"name": "it", "user": {"token": self._token}}
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        whole = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context]}
        self.kubeconfig.write_text(yaml.safe_dump(whole | {"current-context": "it"}))
        self.kubeconfig.chmod(0o600)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 180
        while True:
            try:
                if self._ask("GET", "/readyz") == "ok":
                    break
            except (OSError, Refused) as error:
                last = error
            for process in self._processes:
                assert process.poll() is None, self._logs()
            assert time.monotonic() < deadline, f"{last}\n{self._logs()}"
            time.sleep(0.5)
        self.version = json.loads(self._ask("GET", "/version"))["gitVersion"]

    def _logs(self) -> str:
        return "\n".join(file.read_text()[-3000:] for file in self._folder.glob("*.log"))

    # ------------------------------------------------------------------ asking
    def _ask(self, method: str, path: str, body: Manifest | None = None) -> str:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._ports[2]}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=240, context=self._tls) as answer:
                self.warnings += answer.headers.get_all("Warning") or []
                return str(answer.read().decode())
        except urllib.error.HTTPError as refusal:
            raise Refused(refusal.read().decode()) from None

    def _path_of(self, manifest: Manifest, namespace: str | None) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        if (version, kind) not in self._paths:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for resource in json.loads(self._ask("GET", root))["resources"]:
                if "/" not in resource["name"]:
                    self._paths[version, resource["kind"]] = f"{root}/{{}}{resource['name']}", resource["namespaced"]
        path, is_namespaced = self._paths[version, kind]
        return path.format(f"namespaces/{namespace}/" if is_namespaced else "")

    def create(self, manifest: Manifest, namespace: str | None = None) -> None:
        """Create an object; a field that nobody knows is an error. Raises Refused."""
        path = self._path_of(manifest, namespace)
        try:
            self._ask("POST", f"{path}?fieldValidation=Strict", manifest)
        except Refused as refusal:
            raise Refused(f"{manifest['kind']} {manifest['metadata']['name']}: {refusal}") from None

    def create_namespace(self, name: str) -> None:
        """Create a namespace that takes only pods of the restricted level, with the account that every one has."""
        metadata = {"name": name, "labels": RESTRICTED}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for account in ("default", "proxies"):
            self.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}, name)

    def wait_for_definitions(self) -> None:
        """Wait until the kinds that were defined can be created."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        deadline = time.monotonic() + 60
        while True:
            found = json.loads(self._ask("GET", path))["items"]
            conditions = [item.get("status", {}).get("conditions") or [] for item in found]
            states = [{it["type"]: it["status"] for it in of_one} for of_one in conditions]
            if all(state.get("Established") == "True" for state in states):
                return
            assert time.monotonic() < deadline, states
            time.sleep(0.2)
