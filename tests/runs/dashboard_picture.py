"""The chart's dashboard over a real Prometheus that scraped two proxies, drawn by Grafana's own components.

``python -m runs.dashboard_picture`` is ``make dashboard``: it plays ``dashboard_scene``, tells which panels have no
series and what the chart's alerts did, and writes docs/pictures/dashboard-overview.png. Needs npm, a Prometheus and
Chromium.
``--again`` draws what the last play left in .cache/dashboard once more, which takes half a minute instead of seven.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from charts.conftest import find_helm
from charts.rendering import CHART, one, render_minimal
from playwright.sync_api import FloatRect, Page

from idemproxy.demo.jars import cache_lock
from idemproxy.demo.ports import HOST
from testkit.real.machine.browser import open_browser
from testkit.real.machine.pinned_packages import ROOT
from testkit.real.machine.prometheus import Prometheus

from .dashboard_scene import DashboardScene

CACHE = ROOT / ".cache" / "dashboard"
SOURCES = Path(__file__).parent / "dashboard_page"
SCRAPE_SECONDS = 2
LABELS = {"namespace": "streams", "job": "proxy-idemproxy-pods"}
"""As the chart's ServiceMonitor makes them for a release ``proxy`` in the namespace ``streams``."""
_QUIET_SECONDS = 6.0
_DRAW_MS = 120_000
_INSTALL_SECONDS_MAX = 900
_LOADERS = ("woff2=file", "woff=file", "ttf=file", "svg=dataurl")


class PageUnavailable(Exception):
    """It could not be built; the message has what npm or esbuild said."""


def built_page() -> Path:
    """Return the folder of the page; npm installs its packages and esbuild makes it at the first call."""
    files = sorted(SOURCES.iterdir())
    packages = [file for file in files if file.name.startswith("package")]
    installed = CACHE / "packages" / _identity(packages)
    site = CACHE / "site" / _identity(files)
    with cache_lock("dashboard"):
        if not installed.is_dir():
            _install(packages, installed)
        if not site.is_dir():
            fresh = site.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            shutil.copy(SOURCES / "page.jsx", installed / "page.jsx")
            shutil.copy(SOURCES / "page.html", fresh / "index.html")
            command = ["node", "node_modules/esbuild/bin/esbuild", "page.jsx", "--bundle", "--minify"]
            command += [f"--outfile={fresh / 'page.js'}", "--jsx=automatic", "--log-level=error"]
            command += [f"--loader:.{loader}" for loader in _LOADERS]
            command += ['--define:process.env.NODE_ENV="production"']
            _run(command, installed)
            icons = installed / "node_modules/@grafana/ui/dist/public/img/icons"
            shutil.copytree(icons, fresh / "public/build/img/icons")
            fresh.rename(site)
    return site


def _identity(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _install(packages: Sequence[Path], folder: Path) -> None:
    if shutil.which("npm") is None:
        raise PageUnavailable("npm is missing: install Node.js, of which Grafana's components need version 20 or newer")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    for file in packages:
        shutil.copy(file, fresh)
    # None of the packages has to build anything; esbuild's own program comes as a package.
    _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], fresh)
    fresh.rename(folder)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise PageUnavailable(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which the folder is served; browsers load nothing but single files from files."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), functools.partial(Quiet, directory=os.fspath(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---------------------------------------------------------------------- what Prometheus gets
def alert_rules() -> Mapping[str, Any]:
    """Return the chart's alerts for a release of two pods, as helm renders them."""
    values: dict[str, Any] = {"prometheusRule__enabled": True, "serviceMonitor__enabled": True, "replicas": 2}
    values |= {"networkPolicy__adminFrom": [{"podSelector": {}}]}
    manifest = one(render_minimal(find_helm(), **values), "PrometheusRule")
    return dict(manifest["spec"])


def configuration(admin_ports: Sequence[int]) -> Mapping[str, Any]:
    """Return Prometheus' configuration: one target for each proxy, with the labels of its pod."""
    targets = [
        {"targets": [f"{HOST}:{port}"], "labels": {**LABELS, "pod": f"proxy-idemproxy-{number}"}}
        for number, port in enumerate(admin_ports)
    ]
    every = f"{SCRAPE_SECONDS}s"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "scrape_configs": [{"job_name": "proxies", "static_configs": targets}],
    }


def play(directory: Path) -> None:
    """Let the scene be scraped; database and times stay in the directory."""
    shutil.rmtree(directory, ignore_errors=True)
    rules = alert_rules()
    with tempfile.TemporaryDirectory() as scratch, DashboardScene(Path(scratch)) as scene:
        given = configuration(scene.admin_ports)
        with Prometheus(directory / "prometheus", given, rules) as prometheus:
            begun = time.time()
            scene.play(lambda text: print(text, flush=True))
            time.sleep(_QUIET_SECONDS)
            times = {"from": begun, "to": time.time()}
            times["rules"] = prometheus.ask("rules")["data"]["groups"]
            times["targets"] = prometheus.ask("targets")["data"]["activeTargets"]
        (directory / "times.json").write_text(json.dumps(times, indent=1))


# ---------------------------------------------------------------------- what is reported and drawn
def tell_rules(prometheus: Prometheus, times: Mapping[str, Any]) -> bool:
    """Print what the alerts did; return whether Prometheus evaluated all of them."""
    length = f"{round(times['to'] - times['from'])}s"
    for state in ("firing", "pending"):
        asked = f'max by (alertname, pod, broker) (count_over_time(ALERTS{{alertstate="{state}"}}[{length}]))'
        for found in prometheus.query(asked, times["to"]):
            name = " ".join(found["metric"].values())
            print(f"{state}: {name}, for {int(found['value'][1]) * SCRAPE_SECONDS} s")
    unwell = [rule for group in times["rules"] for rule in group["rules"] if rule["health"] != "ok"]
    count = sum(len(group["rules"]) for group in times["rules"])
    print(f"alert rules: {count}, not evaluated: {[(rule['name'], rule.get('lastError')) for rule in unwell]}")
    return not unwell


def tell_variables(prometheus: Prometheus, dashboard: Mapping[str, Any], times: Mapping[str, Any]) -> bool:
    """Print what can be chosen; return whether it is something for each variable."""
    found: dict[str, list[str]] = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            matched = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert matched is not None, variable["definition"]
            series = re.sub(r"\$\w+", variable["allValue"], matched[1])
            asked = {"match[]": series, "start": times["from"], "end": times["to"]}
            found[variable["name"]] = prometheus.ask(f"label/{matched[2]}/values", **asked)["data"]
    print(f"variables: {found}")
    return all(found.values())


def tell_panels(drawn: Sequence[Mapping[str, Any]]) -> bool:
    """Print what came for each panel; return whether Prometheus took every expression."""
    errors = [(panel["title"], one["error"]) for panel in drawn for one in panel["targets"] if one["error"]]
    for panel in drawn:
        for target in panel["targets"]:
            shown = ", ".join(target["series"][:8]) if panel["type"] != "stat" else str(target["values"])
            if not target["points"]:
                print(f"no data: {panel['title']} {target['refId']}: {target['expr'][:100]}")
            else:
                print(f"{panel['title']} {target['refId']}: {len(target['series'])} series: {shown}")
    empty = [panel["title"] for panel in drawn if not any(target["points"] for target in panel["targets"])]
    print(f"panels: {len(drawn)}, of them without any series: {empty}")
    for title, error in errors:
        print(f"REFUSED: {title}: {error}")
    return not errors


def draw(directory: Path, pictures: Path, theme: str) -> bool:
    """Draw what was scraped; return whether Prometheus took every alert and every expression."""
    times = json.loads((directory / "times.json").read_text())
    dashboard = json.loads((CHART / "files/dashboard.json").read_text())
    quiet = {"global": {"scrape_interval": "1h"}}
    with (
        Prometheus(directory / "prometheus", quiet) as prometheus,
        served(built_page()) as address,
        open_browser() as browser,
    ):
        is_well = tell_rules(prometheus, times) & tell_variables(prometheus, dashboard, times)
        page = browser.new_page(viewport={"width": 1632, "height": 1200}, device_scale_factor=1)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        given = {"dashboard": dashboard, "prometheus": prometheus.address, "from": times["from"], "to": times["to"]}
        given |= {"scrapeSeconds": SCRAPE_SECONDS, "theme": theme}
        page.add_init_script(f"window.given = {json.dumps(given)}")
        page.goto(address)
        try:
            page.wait_for_function("window.drawn !== undefined", timeout=_DRAW_MS)
        finally:
            print(*complaints, sep="\n", end="\n" if complaints else "")
        is_well &= tell_panels(page.evaluate("window.drawn"))
        photograph(page, pictures)
    return is_well and not complaints


def photograph(page: Page, pictures: Path) -> None:
    """The variables and the first two rows, readable at the width of a page."""
    pictures.mkdir(parents=True, exist_ok=True)
    second = page.locator(".dashboard-row").nth(1)
    top, bottom = page.locator("#variables").bounding_box(), second.bounding_box()
    assert top is not None
    assert bottom is not None
    height = bottom["y"] + bottom["height"] - top["y"]
    clip: FloatRect = {"x": bottom["x"], "y": top["y"], "width": bottom["width"], "height": height}
    page.screenshot(path=pictures / "dashboard-overview.png", clip=clip, full_page=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and draw, or draw again."""
    parser = argparse.ArgumentParser(prog="dashboard_picture")
    parser.add_argument("--again", action="store_true", help="draw what the last play left")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs/pictures")
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    given = parser.parse_args(arguments)
    directory = CACHE / "played"
    if not given.again:
        built_page()  # what is missing for it is said before the play
        play(directory)
    return 0 if draw(directory, given.pictures, given.theme) else 1


if __name__ == "__main__":
    sys.exit(main())
