"""``idemproxy run`` as process 1 of a container, before it serves: what a kernel does with its signals."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import os, signal, sys

class Asked:
    def find_spec(self, name, *_):
        if name == "trio":  # the first import of what serves
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Asked())
from idemproxy.proxy.main import main

assert os.getpid() == 1
print(main(["run", "--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--data-directory", sys.argv[1]]))
"""


def test_a_container_that_is_stopped_while_it_starts_ends_at_once(tmp_path: Path) -> None:
    """The kernel drops a signal for process 1 that has no handler: the container then took its whole grace period."""
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*alone, sys.executable, "-c", _PROGRAM, tmp_path / "data"], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (143, ""), done.stderr
    assert not (tmp_path / "data").exists(), "nothing had begun"
