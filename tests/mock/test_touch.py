"""Host code that touches device memory under `hipfile_mock.fake`."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading

import pytest

from hipfile_mock import fake, touch
from hipfile_sim.hip.settings import HipSettings
from hipfile_sim.observe.sanitizer import SanitizerError


def handler() -> int | None:
    now = touch._Action()
    touch._sigaction(signal.SIGSEGV, None, ctypes.byref(now))
    return now.handler


def test_a_strict_run_fails_with_the_line():
    def program():
        with fake() as session:
            ctypes.string_at(session.hip.hipMalloc(64)[1], 1)

    with pytest.raises(SanitizerError, match=r"device\.pointer-as-host"):
        program()


def test_each_block_is_reported_once_and_guards_still_fault():
    with fake(strict=False) as session:
        one, two = session.hip.hipMalloc(64)[1], session.hip.hipMalloc(64)[1]
        for pointer in (one, one, two):
            ctypes.string_at(pointer, 1)
    found = [finding for finding in session.sanitizer.findings if finding.id == "device.pointer-as-host"]
    assert sum(finding.count for finding in found) == 2


def test_on_another_thread():
    with fake(strict=False) as session:
        pointer = session.hip.hipMalloc(64)[1]
        thread = threading.Thread(target=lambda: ctypes.memset(pointer, 5, 1))
        thread.start()
        thread.join()
        assert bytes(session.memory.view(pointer, 1)) == b"\x05"
    assert "writes device memory" in session.report()


def test_the_handler_before_comes_back():
    before = handler()
    with fake(strict=False):
        assert handler() == touch._ours
        with fake(strict=False):
            assert handler() == touch._ours
        assert handler() == touch._ours
    assert handler() == before


@pytest.mark.parametrize("options", [{"strict": None}, {"settings": HipSettings(host_visible=True)}])
def test_nothing_is_installed_where_there_is_nothing_to_say(options):
    before = handler()
    with fake(**options):
        assert handler() == before


@pytest.mark.parametrize(
    ("touched", "said"),
    [("pointer + 8192", "not allocated"), ("freed", "which was freed"), ("8", "")],
    ids=["guard", "freed", "elsewhere"],
)
def test_what_no_report_can_save_still_dies(touched, said):
    program = f"""
import ctypes, faulthandler
from hipfile_mock import fake
faulthandler.enable()
with fake(strict=False) as session:
    freed = session.hip.hipMalloc(4096)[1]
    session.hip.hipFree(freed)
    pointer = freed
    ctypes.string_at({touched}, 1)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == -signal.SIGSEGV
    assert said in run.stderr
    assert "Fatal Python error" in run.stderr, "the handler from before has its turn"
