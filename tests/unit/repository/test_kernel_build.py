"""The compiled libraries are in what is installed where they can be compiled, and nothing fails where they can not."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from testkit.real.machine import kernel_build

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = {
    "idemproxy/codecs/kernel/compiled.abi3.so",
    "idemproxy/codecs/old_formats/lower.abi3.so",
    "idemproxy/codecs/old_formats/raise_set.abi3.so",
}


def wheel(folder: Path, **environment: str) -> tuple[Path, str]:
    """Build one with nothing on the PATH but what is named; return it, and what was said."""
    folder.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    kept = {name: value for name, value in os.environ.items() if name not in {"CC", "KERNEL_COMPILER"}}
    done = subprocess.run(
        command, cwd=ROOT, env={**kept, **environment}, check=True, capture_output=True, text=True, timeout=120
    )
    (built,) = folder.glob("*.whl")
    return built, done.stderr


def has_libraries(built: Path) -> bool:
    """Whether it has all of them; else it has none."""
    with zipfile.ZipFile(built) as archive:
        found = {name for name in archive.namelist() if name.endswith(".so")}
    assert found in (LIBRARIES, set())
    return bool(found)


def test_without_a_compiler_the_wheel_is_one_of_pure_python(tmp_path: Path) -> None:
    for name, environment in {
        "nothing there": {"PATH": str(tmp_path)},
        "not wanted": {"KERNEL_COMPILER": "none"},
        "one that fails": {"CC": "false"},
        "one that is away": {"CC": str(tmp_path / "cc")},
    }.items():
        built, said = wheel(tmp_path / name, **environment)
        assert not has_libraries(built), name
        assert built.name.endswith("-py3-none-any.whl")
        assert ("without its compiled kernel" in said) is ("CC" in environment)


def test_with_one_the_wheel_is_for_this_machine_and_every_later_python(tmp_path: Path) -> None:
    built, said = wheel(tmp_path / "here")
    assert has_libraries(built) is bool(kernel_build.COMPILER)
    if has_libraries(built):
        assert "-cp311-abi3-linux_" in built.name
        assert "without" not in said


def test_both_machines_get_a_wheel_with_it_for_nearly_every_linux(tmp_path: Path) -> None:
    command = ["make", "--no-print-directory", "wheels", f"DIRECTORY={tmp_path}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    built = {path.name.partition("manylinux")[2]: path for path in tmp_path.glob("*-cp311-abi3-manylinux*.whl")}
    machines = {"_2_17_x86_64.whl": 62, "_2_17_aarch64.whl": 183}  # as ELF numbers them
    assert set(built) == set(machines)
    for name, machine in machines.items():
        assert has_libraries(built[name])
        for compiled in LIBRARIES:
            with zipfile.ZipFile(built[name]) as archive:
                library = archive.read(compiled)
            assert library[:6] == b"\x7fELF\x02\x01"  # 64 bits, little-endian
            assert int.from_bytes(library[18:20], "little") == machine
            versions = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_([\d.]+)", library)}
            assert max(versions) <= (2, 17)
            assert not list(re.findall(rb"lib\w+\.so[.\d]*", library.replace(b"libc.so.6", b"")))
