"""The house rules that no other tool enforces: sizes, names, purity, no skipped tests.

Each rule is a function from source text to complaints, and is tried on a planted violation too, so that a rule which
has stopped looking is noticed. Never changes a file.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (
    "proxy",
    "codecs",
    "state",
    "producing",
    "demo",
    "pipeline",
    "client",
    "examples",
    "src",
    "tests",
    "benchmarks",
)
FUNCTION_LINES_MAX = 70

# Only these run under trio; the rest is driven through src/idemproxy/reactor.py and runs in the simulation too.
TRIO_FILES = {
    "proxy/process/run.py",
    "proxy/process/supervisor.py",
    "proxy/process/worker.py",
    "proxy/admin/workers.py",
    "proxy/commands/check_connect.py",
    "proxy/process/checkpoint_file.py",
    "proxy/process/free_memory.py",
    "proxy/process/journal_upkeep.py",
    "proxy/process/server.py",
    "proxy/net/event_loop.py",
    "proxy/flow/runner.py",
    "proxy/admin/serve.py",
    "state/redis_server.py",
    "client/trio_client.py",
    "client/trio_connections.py",
}
# These face the outside (clock, files, log lines, imports) without trio.
SHELL_FILES = TRIO_FILES | {
    "codecs/packages.py",
    "proxy/settings/child_process.py",
    "proxy/commands/inspection/tombstones.py",
    "proxy/commands/inspection/client_ids.py",
    "proxy/process/worker_process.py",
    "proxy/process/listeners.py",
    "proxy/telemetry/logs.py",
    "proxy/telemetry/metrics_export.py",
    "proxy/telemetry/otel.py",
    "proxy/net/sockets.py",
    "proxy/telemetry/spans.py",
    "proxy/telemetry/reports.py",
    "proxy/net/tls.py",
    "proxy/net/tls_wire.py",
    "client/blocking.py",
    "client/blocking_connections.py",
    "client/security.py",
    "client/settings.py",
}
PURE_FOLDERS = ("codecs", "state", "producing", "proxy", "client", "src")
OUTSIDE_MODULES = {
    "asyncio",
    "logging",
    "random",
    "secrets",
    "select",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "trio",
}
SKIPPING_NAMES = {
    "SkipTest",
    "expectedFailure",
    "importorskip",
    "skip",
    "skipIf",
    "skipTest",
    "skipUnless",
    "skipif",
    "xfail",
}


def python_files(*folders: str) -> Iterator[Path]:
    """Yield the Python files below ``folders``, relative to the root; links and the checked model are left out."""
    for folder in folders:
        for directory, names, files in os.walk(ROOT / folder):
            here = Path(directory).relative_to(ROOT)
            names[:] = [name for name in names if name != "__pycache__" and here / name != Path("tests/model")]
            yield from (here / file for file in sorted(files) if file.endswith(".py"))


def every_file() -> list[tuple[str, str]]:
    """Return (path, text) of all files of the house."""
    return [(path.as_posix(), (ROOT / path).read_text()) for path in python_files(*FOLDERS)]


def length_complaints(path: str, text: str) -> list[str]:
    """Return the functions of one file that are too long. A file ends where its meaning ends, and is not counted."""
    complaints = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                complaints.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    return complaints


def name_complaints(path: str) -> list[str]:
    """Return the parts of a module's path that are a name of the standard library; codecs/ is the one exception."""
    parts = [part.removesuffix(".py") for part in Path(path).parts]
    taken = [part for part in parts if part in sys.stdlib_module_names and part != "codecs"]
    if parts[-1] == "codecs":
        taken.append("codecs")
    return [f"{path}: the standard library has a module {name}" for name in taken]


def imported_modules(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, first part of the module) of every absolute import."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.lineno, node.module.partition(".")[0]


def purity_complaints(path: str, text: str) -> list[str]:
    """Return the imports that reach outside from a file that may not."""
    if Path(path).parts[0] not in PURE_FOLDERS or path in TRIO_FILES:
        return []
    forbidden = {"trio"} if path in SHELL_FILES else OUTSIDE_MODULES
    return [f"{path}:{line}: imports {name}" for line, name in imported_modules(text) if name in forbidden]


def skip_complaints(path: str, text: str) -> list[str]:
    """Return every mark or call that lets a test not run or not count."""
    complaints = []
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and re.match(r"(pytest|mark|unittest|self)\b", ast.unparse(node)):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module in {"pytest", "unittest"}:
            names = [alias.name for alias in node.names]
        complaints += [f"{path}: {name}" for name in names if name in SKIPPING_NAMES]
    return complaints


def test_no_function_is_too_long() -> None:
    assert [complaint for path, text in every_file() for complaint in length_complaints(path, text)] == []


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    assert [complaint for path, _ in every_file() for complaint in name_complaints(path)] == []


def test_codecs_has_no_init_file_because_it_would_shadow_the_standard_library() -> None:
    assert (ROOT / "codecs").is_dir()
    assert not (ROOT / "codecs/__init__.py").exists()


def test_pure_files_reach_nothing_outside() -> None:
    assert [complaint for path, text in every_file() for complaint in purity_complaints(path, text)] == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    texts = [(path, text) for path, text in every_file() if path.startswith("tests/")]
    assert [complaint for path, text in texts for complaint in skip_complaints(path, text)] == []


@pytest.mark.parametrize(
    "complaints",
    [
        length_complaints("proxy/long.py", "async def f():\n" + "    x = 1\n" * 70),
        name_complaints("proxy/select.py"),
        name_complaints("proxy/queue/one.py"),
        name_complaints("proxy/codecs.py"),
        purity_complaints("codecs/produce.py", "import time"),
        purity_complaints("state/entry.py", "def f():\n    from trio.lowlevel import wait_readable"),
        purity_complaints("proxy/telemetry/reports.py", "import trio"),
        skip_complaints("tests/a.py", "@pytest.mark.skipif(True)\ndef test_a(): pass"),
        skip_complaints("tests/a.py", "from pytest import importorskip"),
    ],
)
def test_a_planted_violation_is_seen(complaints: list[str]) -> None:
    assert len(complaints) == 1


@pytest.mark.parametrize(
    "complaints",
    [
        length_complaints("proxy/fits.py", "x = 1\n" * 399),
        length_complaints("proxy/fits.py", "def f():\n" + "    x = 1\n" * 69),
        name_complaints("codecs/produce.py"),
        purity_complaints("proxy/net/event_loop.py", "import socket, trio, time"),
        purity_complaints("codecs/produce.py", "from .time import thing"),
        purity_complaints("demo/relay.py", "import socket"),
        skip_complaints("tests/a.py", "def test_skip_of_a_message(): reader.skip(4)"),
    ],
)
def test_what_is_allowed_is_not_complained_about(complaints: list[str]) -> None:
    assert complaints == []
