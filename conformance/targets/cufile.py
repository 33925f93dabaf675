"""cuFile and the CUDA runtime on a real NVIDIA GPU, under the HIP names.

hipFile on NVIDIA is a thin layer over cuFile and HIP follows the CUDA runtime, so this is the real hardware that the
suite can be proven on. Only ctypes is needed. cuFile must be able to find the type of the file system below the test
folder: on a machine without udev `scripts/conformance_gpu.sh` prepares that.
"""

from __future__ import annotations

import ctypes as C
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from hipfile_conformance.targets.base import Status, Unavailable
from hipfile_conformance.targets.clib import CTarget, find_library

__all__ = ["CuFileTarget"]

_SAME_TAIL = (  # noqa: SIM905
    "GetDeviceCount GetDevice SetDevice DeviceSynchronize GetLastError GetErrorName GetErrorString Malloc Free "
    "HostRegister HostUnregister HostGetDevicePointer MemGetInfo PointerGetAttributes Memcpy MemcpyAsync Memset "
    "MemsetAsync StreamCreate StreamCreateWithFlags StreamCreateWithPriority StreamDestroy StreamSynchronize "
    "StreamQuery StreamWaitEvent StreamGetFlags StreamGetPriority DeviceGetStreamPriorityRange LaunchHostFunc "
    "StreamAddCallback EventCreate EventCreateWithFlags EventDestroy EventRecord EventQuery EventSynchronize "
    "EventElapsedTime RuntimeGetVersion DriverGetVersion StreamGetDevice DeviceGetAttribute"
).split()
_FILE_TAIL = (  # noqa: SIM905
    "DriverOpen UseCount HandleRegister HandleDeregister BufRegister BufDeregister Read Write ReadAsync WriteAsync "
    "StreamRegister StreamDeregister BatchIOSetUp BatchIOSubmit BatchIOGetStatus BatchIOCancel BatchIODestroy "
    "DriverGetProperties DriverSetPollMode DriverSetMaxDirectIOSize DriverSetMaxCacheSize DriverSetMaxPinnedMemSize "
    "GetParameterSizeT GetParameterBool GetParameterString SetParameterSizeT SetParameterBool SetParameterString "
    "GetStatsL1 GetStatsL2 GetStatsL3"
).split()


def _folders() -> list[Path]:
    """Where CUDA's libraries live: the Python environment's packages first, then the CUDA folders."""
    found: list[Path] = []
    for root in dict.fromkeys(sys.path):
        nvidia = Path(root) / "nvidia"
        if root and nvidia.is_dir():
            found += sorted(nvidia.glob("*/lib"))
    for pattern in ("cuda/lib64", "cuda-1*/lib64", "cuda/targets/x86_64-linux/lib", "nvidia/lib64"):
        found += sorted(Path("/usr/local").glob(pattern))
    return found


class CuFileTarget(CTarget):
    """The target `cufile`.

    Parameters
    ----------
    directory
        Folder for the files of the tests; cuFile refuses tmpfs.

    Raises
    ------
    Unavailable
        A library is missing, or the CUDA runtime sees no device.
    """

    name = "cufile"
    capabilities = frozenset({"c", "real", "threads", "hold", "hold-host"})
    wait_has_mask = False
    symbols: ClassVar[dict[str, str | None]] = {
        **{f"hip{tail}": f"cuda{tail}" for tail in _SAME_TAIL},
        **{f"hipFile{tail}": f"cuFile{tail}" for tail in _FILE_TAIL},
        "hipInit": "cuInit",
        "hipPeekAtLastError": "cudaPeekAtLastError",
        "hipHostMalloc": "cudaHostAlloc",
        "hipHostFree": "cudaFreeHost",
        "hipMallocManaged": "cudaMallocManaged",
        "hipMemcpyWithStream": None,
        "hipDeviceGetName": "cuDeviceGetName",
        "hipMemGetAddressRange": "cuMemGetAddressRange_v2",
        "hipStreamWriteValue32": "cuStreamWriteValue32_v2",
        "hipStreamWriteValue64": "cuStreamWriteValue64_v2",
        "hipStreamWaitValue32": "cuStreamWaitValue32_v2",
        "hipStreamWaitValue64": "cuStreamWaitValue64_v2",
        "hipFileDriverClose": "cuFileDriverClose_v2",
        "hipFileGetOpErrorString": None,
    }

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        folders = _folders()
        runtime = find_library(["libcudart.so.13", "libcudart.so.12", "libcudart.so"], folders)
        driver = find_library(["libcuda.so.1"], [*folders, "/usr/local/nvidia/lib64"])
        cufile = find_library(["libcufile.so.0", "libcufile.so"], folders)
        super().__init__([runtime, driver, cufile], Path(directory))
        count = C.c_int()
        code = runtime.cudaGetDeviceCount(C.byref(count))
        if code or not count.value:
            raise Unavailable(
                f"cudaGetDeviceCount gave code {code} and {count.value} devices: no NVIDIA GPU is usable here"
            )
        if count.value > 1:
            self.capabilities = self.capabilities | {"devices"}

    def call_hipFileGetVersion(self) -> tuple[Status, int, int, int]:
        function: Any = self.libraries[2].cuFileGetVersion
        function.restype = C.c_uint64  # an 8-byte structure comes back in one register
        version = C.c_int()
        raw = function(C.byref(version))
        status = Status(_signed(raw & 0xFFFFFFFF), _signed(raw >> 32))
        number = version.value
        return status, number // 1000, number % 1000 // 10, number % 10

    def facts(self) -> dict[str, str]:
        """GPU, driver and library versions, as the libraries report them."""
        facts = {"libraries": ", ".join(str(library._name) for library in self.libraries)}
        code, name = self.call("hipDeviceGetName", 0)
        facts["device"] = name if code == 0 else f"unknown (code {code})"
        facts["cuda driver"] = str(self.call("hipDriverGetVersion")[1])
        facts["cuda runtime"] = str(self.call("hipRuntimeGetVersion")[1])
        status, *version = self.call("hipFileGetVersion")
        facts["cufile"] = ".".join(map(str, version)) if status.err == 0 else f"unknown (code {status.err})"
        for path, key in (("/proc/driver/nvidia/version", "kernel module"),):
            if os.path.exists(path):
                facts[key] = Path(path).read_text().splitlines()[0]
        return facts


def _signed(word: int) -> int:
    return word - (1 << 32) if word & 0x80000000 else word
