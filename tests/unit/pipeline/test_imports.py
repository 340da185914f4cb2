"""What Spark's processes import: one makes a source, another one plans it; both have work of milliseconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = "import sys, {module}; print(*sys.modules)"
NUMBERS = ("numpy", "pyarrow")
CONTENTS = ("crc32c", "isal", "cramjam", "backports.zstd", "idemproxy.pipeline.source.tasks")


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("source.columns", (*NUMBERS, "idemproxy.client", "kafka.protocol", *CONTENTS)),
        ("source.reader", ("idemproxy.client", "kafka.protocol", *CONTENTS)),
        ("sink.options", ("idemproxy.client", "kafka.protocol")),
    ],
)
def test_what_takes_long_to_import_is_left_to_those_who_use_it(module: str, unwanted: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", LOADED.format(module=f"idemproxy.pipeline.{module}")]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert f"idemproxy.pipeline.{module}" in loaded
    assert not set(unwanted) & set(loaded)
