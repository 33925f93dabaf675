"""The prefix and the two commands: ``hipfile-sim prefix`` and ``hipfile-sim exec``."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import fields
from itertools import product
from pathlib import Path

import pytest
from native_support import execute, run

from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.native import config
from hipfile_sim.native.prefix import prefix

SOURCE = """
#include <hipfile.h>
#include <cstdio>
int main() { int n = 0; (void)hipGetDeviceCount(&n); std::printf("%d %ld\\n", n, (long)hipFileUseCount()); }
"""


def test_prefix_is_printed_and_stable(native_prefix: Path) -> None:
    first = run([sys.executable, "-m", "hipfile_sim.cli", "prefix"])
    assert first.returncode == 0, first.stderr
    assert Path(first.stdout.strip()) == native_prefix
    before = (native_prefix / ".stamp").stat().st_mtime_ns
    assert prefix() == native_prefix
    assert (native_prefix / ".stamp").stat().st_mtime_ns == before


def test_prefix_of_a_release_is_that_release(programs: Path) -> None:
    """Its headers say so, and its libraries are it when nothing else is said."""
    root = prefix("0.3")
    assert "#define HIPFILE_VERSION_MINOR 3" in (root / "include" / "hipfile.h").read_text()
    assert "hipFileGetStatsL1" not in (root / "include" / "hipfile.h").read_text()
    code = (
        f"import ctypes; f = ctypes.CDLL({str(root / 'lib' / 'libhipfile.so')!r}); n = (ctypes.c_uint * 3)();"
        "a = ctypes.addressof(n); f.hipFileGetVersion.argtypes = [ctypes.c_void_p] * 3;"
        "f.hipFileGetVersion(a, a + 4, a + 8); print(list(n))"
    )
    assert run([sys.executable, "-c", code]).stdout == "[0, 3, 0]\n"


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="pkg-config is not on PATH")
def test_pkg_config(native_prefix: Path, tmp_path: Path) -> None:
    env = {"PKG_CONFIG_PATH": str(native_prefix / "lib" / "pkgconfig")}
    assert run(["pkg-config", "--modversion", "hipfile"], env=env).stdout == "0.5.0\n"
    flags = run(["pkg-config", "--cflags", "--libs", "hipfile"], env=env).stdout.split()
    (tmp_path / "p.cpp").write_text(SOURCE)
    built = run(["g++", tmp_path / "p.cpp", *flags, "-o", tmp_path / "p"])
    assert built.returncode == 0, built.stderr
    assert execute(tmp_path / "p", options=["--devices", "5"]).stdout == "5 0\n"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not on PATH")
def test_cmake(native_prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "p.cpp").write_text(SOURCE)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(p LANGUAGES CXX)\nfind_package(hip REQUIRED)\n"
        "find_package(hipfile 0.4 REQUIRED)\nadd_executable(p p.cpp)\n"
        "target_link_libraries(p hipfile::hipfile hip::host)\n"
    )
    made = run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={native_prefix}"])
    assert made.returncode == 0, made.stderr
    built = run(["cmake", "--build", tmp_path / "b"])
    assert built.returncode == 0, built.stdout + built.stderr
    assert run([tmp_path / "b" / "p"]).stdout == "2 0\n"  # by its run path alone


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_exit_code_is_the_programs(native_prefix: Path, status: int) -> None:
    assert execute("sh", "-c", f"exit {status}").returncode == status


def test_signal_is_the_programs(native_prefix: Path) -> None:
    assert execute("sh", "-c", "kill -SEGV $$").returncode == -11


def test_environment_of_exec(native_prefix: Path) -> None:
    script = 'echo "$ROCM_PATH $HIPFILE_SIM_PROFILE $HIPFILE_SIM_DEVICES $A"; echo "$LD_LIBRARY_PATH"'
    done = execute("sh", "-c", script,
                   options=["--profile", "0.5.0", "--devices", "3", "--env", "A=1 2"],
                   env={"LD_LIBRARY_PATH": "/x"})  # fmt: skip
    assert done.stdout.splitlines() == [f"{native_prefix} 0.5 3 1 2", f"{native_prefix}/lib:/x"]


@pytest.mark.parametrize(
    ("options", "words", "message"),
    [
        ([], ["no-such-program"], "no-such-program is not found"),
        (["--profile", "7"], ["true"], "no profile '7'"),
        (["--schedule", "x"], ["true"], "--schedule"),
        (["--devices", "x"], ["true"], "--devices"),
        (["--config", "/no/file"], ["true"], "/no/file"),
        (["--env", "A"], ["true"], "NAME=VALUE"),
        (["--wrong"], ["true"], "--wrong"),
        ([], ["/etc/passwd"], "not executable"),
    ],
)
def test_wrong_use(native_prefix: Path, options: list[str], words: list[str], message: str) -> None:
    done = execute(*words, options=options)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_trace(programs: Path, tmp_path: Path) -> None:
    trace = tmp_path / "out.json"
    toml = tmp_path / "c.toml"
    toml.write_text("[hip]\ndevice_memory = 16777216\n")
    done = execute(programs / "event_gating", tmp_path, "1", options=["--trace", str(trace), "--config", str(toml)])
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event.get("name", "") for event in events}
    assert "hipFileReadAsync" in names
    assert any("kernel" in name for name in names)


def test_configuration_file(programs: Path, tmp_path: Path) -> None:
    """Settings, environment, set-up and inclusion; options and variables win over the file."""
    (tmp_path / "base.toml").write_text('profile = "0.2"\ndevices = 9\n[hip]\ndevice_memory = 4096\n')
    (tmp_path / "c.toml").write_text(
        'include = "base.toml"\nprofile = "0.3"\n[environment]\nHIPFILE_FORCE_COMPAT_MODE = "true"\n'
        '[setup]\ncall = "json:dumps"\n'
    )
    loaded = config.load({"HIPFILE_SIM_CONFIG": str(tmp_path / "c.toml"), "HIPFILE_SIM_DEVICES": "4"})
    assert (loaded.profile, loaded.devices, loaded.hip) == ("0.3", 4, {"device_memory": 4096})
    assert loaded.environment == {"HIPFILE_FORCE_COMPAT_MODE": "true"}
    assert loaded.setup == ("json:dumps",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile = ", "not TOML"),
        ("[hip]\nnope = 1\n", "no setting 'nope'"),
        ("[hip]\npoison = 999\n", "HipSettings.poison"),
        ("hip = 3\n", "is a table"),
        ("[nobody]\nx = 1\n", "nobody serves"),
        ('[setup]\ncall = "os"\n', "module:function"),
        ('[setup]\ncall = "os:nope"\n', "nope"),
        ("devices = 1000\n", "0 to 64"),
        ("devices = true\n", "is not a number"),
        ("devices = 1.5\n", "is not a number"),
        ("faults = 3\n", r"write \[\[faults\]\]"),
        ("[setup]\ncall = 3\n", "a list of them, not 3"),
        ("[setup]\ncall = [3]\n", "a list of them"),
        ('[setup]\ncalls = "json:dumps"\n', "has calls"),
        ("[environment]\nHIPFILE_FORCE_COMPAT_MODE = []\n", "HIPFILE_FORCE_COMPAT_MODE is the text"),
        ('include = "c.toml"\n', "includes itself"),
    ],
)
def test_wrong_files_are_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(config.ConfigError, match=message):
        config.load({"HIPFILE_SIM_CONFIG": str(path)}).make()


JUNK = ("1", "-1", "1.5", "nan", "true", '"x"', '""', '"\\u0000"', "[]", "[1]", "[[]]", "{}", "{a = 1}", "1979-05-27")


def test_whatever_a_file_says_there_is_an_answer(tmp_path: Path) -> None:
    """Every entry with values of every kind: a machine, or a message; never another exception."""
    path = tmp_path / "c.toml"
    entries = [
        "profile",
        "schedule",
        "devices",
        "watchdog",
        "trace",
        "sanitize",
        "include",
        "hip",
        "environment",
        "setup",
    ]
    entries += ["faults", "nobody", *(f"hip.{field.name}" for field in fields(HipSettings))]
    entries += ["environment.HIPFILE_X", "setup.call", "setup.other", "faults.on"]
    said = 0
    for entry, value in product(entries, JUNK):
        path.write_text(f"{entry} = {value}\n")
        try:
            config.load({"HIPFILE_SIM_CONFIG": str(path)}).make().close()
        except config.ConfigError as error:
            said += len(str(error)) > 20
    assert said > len(entries) * len(JUNK) // 2


def test_truth_of_the_environment(tmp_path: Path) -> None:
    """As hipFile reads it, not as Python writes it."""
    path = tmp_path / "c.toml"
    path.write_text("[environment]\nHIPFILE_FORCE_COMPAT_MODE = true\nHIPFILE_X = 3\n")
    loaded = config.load({"HIPFILE_SIM_CONFIG": str(path)})
    assert loaded.environment == {"HIPFILE_FORCE_COMPAT_MODE": "true", "HIPFILE_X": "3"}
