"""Faults that cannot be: refused where they are written. Those that can be never hang and never break the machine."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipfile_mock import fake, faults
from hipfile_sim.driver.codes import FileDescr


@pytest.mark.parametrize(
    "make",
    [
        lambda: faults.on("pread").eintr(None),  # type: ignore[arg-type]
        lambda: faults.on("pread").eintr(10**9),
        lambda: faults.on("pwrite", times=None).errno(errno.EINTR),
        lambda: faults.on("pread", times=None, probability=1).errno("EINTR"),
        lambda: faults.on("pread", times=None).returns(-errno.EINTR, -errno.EINTR),
        lambda: faults.on("pread").returns(),
        lambda: faults.on("command").delay(-1),
        lambda: faults.on("hipMalloc").error(0),
        lambda: faults.on("hipMalloc").error(99_999),
        lambda: faults.on("hipFileRead").error(77_777),
    ],
)
def test_rule_that_cannot_be(make: Callable[[], Any]) -> None:
    """Endless interruptions are a hang of the library, not a fault that it could get over."""
    with pytest.raises(ValueError, match=r"EINTR with times|at least one|not below 0|a failure of"):
        make()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("value", [2**64 - 1, 2**63, -(2**63) - 1, 2**70, 2**62, -1])
def test_late_result_of_any_value(tmp_path: Path, value: int) -> None:
    """It wraps as a 64-bit word does; the machine goes on."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    with path.open("rb") as file, fake(strict=False, faults=[faults.on("read").result(value)]) as session:
        driver, hip = session.hipfile, session.hip
        driver.hipFileDriverOpen()
        pointer = hip.hipMalloc(4096)[1]
        handle = driver.hipFileHandleRegister(FileDescr(1, file.fileno()))[1]
        slots = (ctypes.c_int64 * 4)(4096, 0, 0, -7)
        first = ctypes.addressof(slots)
        assert driver.hipFileReadAsync(handle, pointer, first, first + 8, first + 16, first + 24, 0).err == 0
        assert hip.hipDeviceSynchronize() == 0
        assert slots[3] == ctypes.c_int64(value).value
        driver.hipFileHandleDeregister(handle)


@pytest.mark.timeout(60)
def test_burst_of_interruptions_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    with path.open("rb") as file, fake(strict=False, faults=[faults.on("pread").eintr(500)]) as session:
        driver = session.hipfile
        driver.hipFileDriverOpen()
        pointer = session.hip.hipMalloc(4096)[1]
        handle = driver.hipFileHandleRegister(FileDescr(1, file.fileno()))[1]
        assert driver.hipFileRead(handle, pointer, 4096, 0, 0).count == 4096
        driver.hipFileHandleDeregister(handle)
