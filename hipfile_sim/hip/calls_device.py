"""Devices, versions, errors."""

from __future__ import annotations

from dataclasses import dataclass

from hipfile_sim.hip.base import RuntimeBase
from hipfile_sim.hip.call import hip_call
from hipfile_sim.hip.codes import HipError, error_name, error_string

_OK = HipError.hipSuccess
HIP_VERSION = 71526333
"""hipRuntimeGetVersion of ROCm 10.0.0: 7.15.26333."""


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What hipGetDeviceProperties tells of an emulated device (the fields that clients read)."""

    name: str
    total_global_mem: int
    gcn_arch_name: str = "gfx942"
    major: int = 9
    minor: int = 4
    multi_processor_count: int = 304
    warp_size: int = 64
    max_threads_per_block: int = 1024
    max_threads_dim: tuple[int, int, int] = (1024, 1024, 1024)
    max_grid_size: tuple[int, int, int] = (2147483647, 65536, 65536)
    clock_rate: int = 2_100_000
    memory_clock_rate: int = 1_300_000
    memory_bus_width: int = 8192
    l2_cache_size: int = 4 << 20
    shared_mem_per_block: int = 64 << 10
    regs_per_block: int = 65536
    total_const_mem: int = 2147483647
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    integrated: int = 0
    can_map_host_memory: int = 1
    unified_addressing: int = 1
    managed_memory: int = 1
    concurrent_kernels: int = 1
    async_engine_count: int = 8
    ecc_enabled: int = 1
    is_large_bar: int = 0
    can_use_stream_wait_value: int = 1
    host_register_supported: int = 1
    stream_priorities_supported: int = 1
    uuid: bytes = bytes(16)


ATTRIBUTES: dict[int, str] = {
    0: "ecc_enabled",
    2: "async_engine_count",
    3: "can_map_host_memory",
    5: "clock_rate",
    8: "concurrent_kernels",
    16: "integrated",
    19: "l2_cache_size",
    23: "major",
    24: "managed_memory",
    26: "max_threads_dim.0",
    27: "max_threads_dim.1",
    28: "max_threads_dim.2",
    29: "max_grid_size.0",
    30: "max_grid_size.1",
    31: "max_grid_size.2",
    56: "max_threads_per_block",
    59: "memory_bus_width",
    60: "memory_clock_rate",
    61: "minor",
    63: "multi_processor_count",
    67: "pci_bus_id",
    68: "pci_device_id",
    69: "pci_domain_id",
    71: "regs_per_block",
    74: "shared_mem_per_block",
    78: "stream_priorities_supported",
    83: "total_const_mem",
    85: "unified_addressing",
    87: "warp_size",
    90: "host_register_supported",
    10011: "is_large_bar",
    10013: "can_use_stream_wait_value",
}
"""hipDeviceAttribute_t value to field (``.N``: an element). Values that are not here answer hipErrorInvalidValue."""


class DeviceCalls(RuntimeBase):
    """hipInit, versions, devices and the last error."""

    @hip_call()
    def hipInit(self, flags: int) -> HipError:
        """Initialise. Flags other than 0: hipErrorInvalidValue. No devices: hipErrorNoDevice."""
        if flags:
            return HipError.hipErrorInvalidValue
        return _OK if self.device_count else HipError.hipErrorNoDevice

    @hip_call(outputs=(0,), in_host_function=True)
    def hipDriverGetVersion(self) -> tuple[HipError, int]:
        """Version of the driver, as hipRuntimeGetVersion."""
        return _OK, HIP_VERSION

    @hip_call(outputs=(0,), in_host_function=True)
    def hipRuntimeGetVersion(self) -> tuple[HipError, int]:
        """Version of the runtime: major * 10**7 + minor * 10**5 + patch."""
        return _OK, HIP_VERSION

    @hip_call(outputs=(0,))
    def hipGetDeviceCount(self) -> tuple[HipError, int]:
        """Number of devices; with none, hipErrorNoDevice and 0."""
        if not self.device_count:
            return HipError.hipErrorNoDevice, 0
        return _OK, self.device_count

    @hip_call(outputs=(0,))
    def hipGetDevice(self) -> tuple[HipError, int]:
        """The calling thread's current device; 0 on a thread that never set one [hip.device.per-thread]."""
        return _OK, self.thread.device

    @hip_call()
    def hipSetDevice(self, device: int) -> HipError:
        """Make `device` the calling thread's current one. hipErrorInvalidDevice."""
        if self._bad_device(device):
            return HipError.hipErrorInvalidDevice
        self.thread.device = device
        return _OK

    @hip_call(observes=True)
    def hipDeviceSynchronize(self) -> HipError:
        """Wait for everything submitted to the current device."""
        self.wait(self.device_lanes(self.thread.device), "hipDeviceSynchronize")
        return _OK

    @hip_call(outputs=(None,))
    def hipGetDeviceProperties(self, device: int) -> tuple[HipError, DeviceProperties | None]:
        """Properties of `device`. hipErrorInvalidDevice."""
        if self._bad_device(device):
            return HipError.hipErrorInvalidDevice, None
        return _OK, self.properties(device)

    def properties(self, device: int) -> DeviceProperties:
        """The properties of an existing device."""
        return DeviceProperties(
            name="AMD Instinct MI300X (emulated)",
            total_global_mem=self.settings.device_memory,
            pci_bus_id=device + 1,
            uuid=b"hipfile-sim".ljust(15, b"\0") + bytes([device & 0xFF]),
        )

    @hip_call(outputs=(0,))
    def hipDeviceGetAttribute(self, attribute: int, device: int) -> tuple[HipError, int]:
        """One number of the properties. Unknown attributes: hipErrorInvalidValue."""
        if self._bad_device(device):
            return HipError.hipErrorInvalidDevice, 0
        field = ATTRIBUTES.get(attribute)
        if field is None:
            return HipError.hipErrorInvalidValue, 0
        name, _, element = field.partition(".")
        value = getattr(self.properties(device), name)
        return _OK, int(value[int(element)] if element else value)

    @hip_call(outputs=("",))
    def hipDeviceGetName(self, device: int) -> tuple[HipError, str]:
        """Name of `device`. hipErrorInvalidDevice."""
        if self._bad_device(device):
            return HipError.hipErrorInvalidDevice, ""
        return _OK, self.properties(device).name

    @hip_call(outputs=(0, 0))
    def hipDeviceGetStreamPriorityRange(self) -> tuple[HipError, int, int]:
        """(least, greatest) priority: 1 and -1; lower numbers go first."""
        return _OK, 1, -1

    @hip_call(in_host_function=True, sets_error=False)
    def hipGetLastError(self) -> HipError:
        """The thread's last error, which becomes hipSuccess [hip.error.get-clears]."""
        error = self.thread.last_error
        self.thread.last_error = _OK
        return error

    @hip_call(in_host_function=True, sets_error=False)
    def hipPeekAtLastError(self) -> HipError:
        """The thread's last error, which stays."""
        return self.thread.last_error

    def hipGetErrorName(self, code: int) -> str:
        """Name of a code; ``"hipErrorUnknown"`` for numbers without one."""
        return error_name(code)

    def hipGetErrorString(self, code: int) -> str:
        """A sentence for a code."""
        return error_string(code)
