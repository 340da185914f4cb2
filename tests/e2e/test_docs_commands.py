"""Commands on the pages that nobody follows from top to bottom: those of settings are run, all others are parsed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.ports import neighbouring_ports
from idemproxy.proxy.main import _parser
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.scenes.followed_page import blocks_of, changed

from .conftest import QuietPair

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "charts/idemproxy/README.md", "benchmarks/README.md")),
]
VERBS = "run|check|schema|probe|inspect|forget|hide|demo|audit|rebuild"
IDEMPROXY = re.compile(rf"\s*(?:\$ |kubectl exec \S+ -- )?(?:\S*/)?idemproxy ((?:{VERBS})\b.*)")


def lines() -> list[tuple[str, str]]:
    """Every line of an untitled block, without its remark, and the page it is on."""
    found = []
    for page in PAGES:
        for block in blocks_of(page):
            if not block.title and block.language in ("", "sh", "console"):
                whole = block.text.replace("\\\n", " ").splitlines()
                found += [(page.name, re.split(r"\s{3,}|\s+#\s", line)[0]) for line in whole]
    return found


def test_the_commands_on_the_first_page_of_settings_work_in_their_order(
    quiet: QuietPair, tmp_path: Path, children: ChildProcesses
) -> None:
    blocks = [block for block in blocks_of(ROOT / "docs/reference/settings.md") if not block.title]
    file, commands = blocks[0], blocks[1].text.splitlines()
    broker = "{}:{}".format(*quiet.cluster.address(0))
    places = {f"old-kafka-{number}.example:9092": broker for number in (1, 2)}
    (tmp_path / "idemproxy.yaml").write_text(changed(file.text, places))
    environment = {
        **os.environ,
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "IDEMPROXY_LISTENERS": f'[{{"bind": "127.0.0.1:{neighbouring_ports(2)}"}}]',
    }
    assert commands == ["idemproxy check idemproxy.yaml", f"{commands[0]} --connect", commands[2]]
    for command in commands[:2]:
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )
        assert (done.returncode, done.stderr) == (0, ""), command
    assert f"ok      upstream {broker}: Kafka 0.10.2\n" in done.stdout
    log = tmp_path / "log"
    proxy = children.start("proxy", shlex.split(commands[2]), log, directory=tmp_path, environment=environment)
    wait_until(lambda: "point clients at" in log.read_text(), "the proxy serves", 60)
    assert proxy.stop(60) == 0


def test_every_command_line_of_idemproxy_is_one_that_it_takes() -> None:
    taken = 0
    for _, line in lines():
        words = IDEMPROXY.match(re.sub(r"\s[|>&].*", "", line))
        if words is not None:
            arguments = shlex.split(words[1])
            _parser().parse_args(arguments)  # ends the process, with a sentence, if it does not
            taken += 1
    assert taken >= 20
