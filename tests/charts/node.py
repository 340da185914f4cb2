"""A rendered pod as a node would start it, on this machine: its volumes are folders, its network is loopback.

Command, arguments, environment, files and probes are taken from the manifests. Only what belongs to a pod's own
surroundings is replaced: a path of a mount by the folder that stands for it, all interfaces and names of Services by
loopback.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Manifest = dict[str, Any]
Secrets = Mapping[str, Mapping[str, str]]


class NodePod:
    """One container of a pod, started. ``secrets``: those that the release does not bring, by name and key.
    ``keeps_names``: names of Services stay in the configuration; who connects has to know where they are."""

    def __init__(
        self, folder: Path, manifests: list[Manifest], pod: Manifest, secrets: Secrets, *, keeps_names: bool = False
    ) -> None:
        self.folder = folder
        self.pod = pod
        self.container: Manifest = pod["containers"][0]
        self.output = folder / "output"
        self._manifests = manifests
        own = {item["metadata"]["name"]: item["stringData"] for item in manifests if item["kind"] == "Secret"}
        self._own_secrets: Secrets = own
        self._keeps_names = keeps_names
        self._secrets = secrets
        self._places = {mount["mountPath"]: folder / "mounts" / mount["name"] for mount in self._mounts()}
        self._process: subprocess.Popen[str] | None = None

    def _mounts(self) -> list[Manifest]:
        return list(self.container["volumeMounts"])

    def _secret(self, name: str) -> Mapping[str, str]:
        return self._own_secrets[name] if name in self._own_secrets else self._secrets[name]

    def here(self, text: str) -> str:
        """Return the text with this machine's places in it."""
        paths = "|".join(re.escape(path) for path in sorted(self._places, key=len, reverse=True))
        whole = re.compile(rf"(?<![\w/.-])({paths})(?![\w.-])")
        text = whole.sub(lambda path: str(self._places[path[1]]), text)
        text = text.replace("0.0.0.0", "127.0.0.1")
        return text if self._keeps_names else re.sub(r"[\w-]+\.streams\.svc\.cluster\.local", "127.0.0.1", text)

    def fill_volumes(self) -> Mapping[str, Path]:
        """Write what ConfigMaps and secrets hold; return the folder of every mount by its path."""
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        for mount in self._mounts():
            place = self._places[mount["mountPath"]]
            place.mkdir(parents=True)
            volume = volumes.get(mount["name"], {})
            if "configMap" in volume:
                (source,) = (
                    item
                    for item in self._manifests
                    if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", volume["configMap"]["name"])
                )
                for name, text in source["data"].items():
                    (place / name).write_text(self.here(text))
            elif "secret" in volume:
                content = self._secret(volume["secret"]["secretName"])
                for item in volume["secret"]["items"]:
                    (place / item["path"]).write_text(content[item["key"]])
        return self._places

    def environment(self) -> dict[str, str]:
        """Return the container's variables as the node resolves them."""
        values: dict[str, str] = {}
        for variable in self.container.get("env", []):
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                values[variable["name"]] = self._secret(reference["name"])[reference["key"]]
            elif "fieldRef" in source:
                values[variable["name"]] = "pod-0"
            else:
                text = variable["value"]
                values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: values[name.group(1)], text)
        return values

    def start(self, entrypoint: list[str], path: str | None = None) -> Self:
        """Start the container's command, or the image's ``entrypoint`` where it has none."""
        self.fill_volumes()
        said = self.container.get("command", []) + self.container.get("args", [])
        words = [self.here(word) for word in said]
        if "command" not in self.container:
            words = [*entrypoint, *words]  # the image's, and so a path of this machine as it is, /tmp or not
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("IDEMPROXY", "OTEL"))}
        environment |= self.environment()
        if path is not None:
            environment["PATH"] = f"{path}:{environment['PATH']}"
        with self.output.open("w") as output:
            self._process = subprocess.Popen(
                words,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        return self

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running process."""
        assert self._process is not None
        return self._process

    def get(self, path: str) -> tuple[int, str]:
        """Ask the admin port once; status 0 when nobody answers."""
        (port,) = (one["containerPort"] for one in self.container["ports"] if one.get("name") == "admin")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()
        except OSError as error:
            return 0, str(error)

    def probe(self, name: str) -> tuple[int, str]:
        """Ask once what a probe asks."""
        asked = self.container[name]["httpGet"]
        assert asked["port"] == "admin"
        return self.get(asked["path"])

    def wait_until_ready(self) -> None:
        """Ask as the startup probe does and as often, then until the pod would get clients."""
        probe = self.container["startupProbe"]
        deadline = time.monotonic() + probe["periodSeconds"] * probe["failureThreshold"]
        for name in ("startupProbe", "readinessProbe"):
            while (seen := self.probe(name))[0] != 200:
                assert self.process.poll() is None, self.output.read_text()
                assert time.monotonic() < deadline, f"{seen}\n{self.output.read_text()}"
                time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """As a node does it. Killed at once, a proxy would leave the Redis of its own running, as it should."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(40)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


PROXY = [sys.executable, "-m", "idemproxy"]
"""What the image's entry point is here."""
