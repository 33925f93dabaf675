"""The functions of ``torch._C`` that a build with CUDA has and `torch.cuda` is written on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from hipfile_mock.faces.torch.kernels import stack
from hipfile_mock.faces.torch.session import Session, StreamState
from hipfile_sim.hip.codes import HipError

__all__ = ["DeviceProperties", "bindings", "cudart", "not_modelled", "nvtx"]

_CUDA = 1


class DeviceProperties:
    """What `torch.cuda.get_device_properties` returns."""

    def __init__(self, device: int, found: Any) -> None:
        self._device = device
        self.name: str = found.name
        self.major: int = found.major
        self.minor: int = found.minor
        self.gcnArchName: str = found.gcn_arch_name
        self.total_memory: int = found.total_global_mem
        self.multi_processor_count: int = found.multi_processor_count
        self.warp_size: int = found.warp_size
        self.max_threads_per_multi_processor: int = 2048
        self.max_threads_per_block: int = found.max_threads_per_block
        self.regs_per_multiprocessor: int = found.regs_per_block
        self.shared_memory_per_block: int = found.shared_mem_per_block
        self.shared_memory_per_multiprocessor: int = found.shared_mem_per_block
        self.L2_cache_size: int = found.l2_cache_size
        self.clock_rate: int = found.clock_rate
        self.memory_clock_rate: int = found.memory_clock_rate
        self.memory_bus_width: int = found.memory_bus_width
        self.is_integrated: int = found.integrated
        self.is_multi_gpu_board: int = 0
        self.pci_bus_id: int = found.pci_bus_id
        self.pci_device_id: int = found.pci_device_id
        self.pci_domain_id: int = found.pci_domain_id
        self.uuid: str = found.uuid.hex()

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"gcnArchName='{self.gcnArchName}', total_memory={self.total_memory // (1 << 20)}MB, "
            f"multi_processor_count={self.multi_processor_count})"
        )


def _session() -> Session:
    return stack[-1]


def _triple(stream: StreamState) -> tuple[int, int, int]:
    return (stream.id, stream.device, _CUDA)


def _device_count() -> int:
    return _session().count


def _init() -> None:
    session = _session()
    if not session.count:
        raise RuntimeError("No HIP GPUs are available")
    session.check(session.hip.hipInit(0))
    torch.cuda.default_generators = session.generators
    torch.cuda._get_device_properties = _properties


def _properties(device: int) -> DeviceProperties:
    session = _session()
    code, found = session.hip.hipGetDeviceProperties(device)
    session.check(code)
    return DeviceProperties(device, found)


def _set_device(device: int) -> None:
    session = _session()
    torch.cuda._lazy_init()
    session.check(session.hip.hipSetDevice(device))


def _exchange_device(device: int) -> int:
    if device < 0:
        return -1
    session = _session()
    if device >= session.count:
        session.check(HipError.hipErrorInvalidDevice)
    return session.switch(device)


def _maybe_exchange_device(device: int) -> int:
    return _exchange_device(device)  # an object of its own: torch keeps tables by function


def _synchronize() -> None:
    session = _session()
    session.check(session.hip.hipDeviceSynchronize())


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    session = _session()
    state = session.stream(stream_id, device_index)
    session.switch(state.device)  # torch makes the device of the stream current, too
    session.select(state)


def _memory_stats(device: int) -> dict[str, Any]:
    allocator = _session().allocators[device]
    allocator.process_events()
    return allocator.stats.as_dict()


def _host_stats() -> dict[str, Any]:
    host = _session().host
    return {"allocated_bytes": host.allocated.as_dict(), "reserved_bytes": host.reserved.as_dict()}


def _reset_host(peak: bool) -> Callable[[], None]:
    def reset() -> None:
        for figure in (_session().host.allocated, _session().host.reserved):
            if peak:
                figure.peak = figure.current
            else:
                figure.allocated = figure.freed = 0

    return reset


def _empty_cache() -> None:
    session = _session()
    for allocator in session.allocators:
        allocator.empty()
    session.host.empty()


def _raw_alloc(size: int, stream: int) -> int:
    session = _session()
    state = session.external(stream, session.device)
    piece = session.allocators[session.device].allocate(size, state)
    session.pieces[piece.base] = piece
    return piece.base


def _raw_delete(pointer: int) -> None:
    session = _session()
    piece = session.pieces.pop(pointer, None)
    if piece is None:
        raise RuntimeError(f"invalid device pointer: {pointer:#x}")
    session.allocators[piece.stream.device].release(piece)


def _set_fraction(fraction: float, device: int) -> None:
    _session().allocators[device].fraction = fraction


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for as long as the cycles take, in virtual time."""
    session = _session()
    stream = session.current(session.device)
    clock = session.hip.properties(session.device).clock_rate * 1000
    session.check(session.hip.launch(stream.handle, _nothing, (), (), int(cycles * 1e9 / clock), "sleep"))


def _nothing() -> None:
    pass


def not_modelled(name: str) -> Callable[..., Any]:
    """A function that says that it is not there."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch._C.{name} is not modelled by the emulated GPU of hipfile-sim")

    return refuse


def cudart() -> Any:
    """What `torch.cuda.cudart` returns: the few functions that Python code calls through it."""

    def call(name: str) -> Callable[..., int]:
        def run(*args: Any) -> int:
            return int(getattr(_session().hip, name)(*args))

        return run

    def mem_get_info(device: int) -> tuple[int, int]:
        session = _session()
        with session.on(device):
            code, free, total = session.hip.hipMemGetInfo()
        session.check(code)
        return free, total

    error = type("cudaError", (int,), {"success": 0, "__doc__": "hipError_t as torch's Python sees it."})
    return SimpleNamespace(
        cudaError=error,
        cudaGetErrorString=lambda code: _session().hip.hipGetErrorString(int(code)),
        cudaMemGetInfo=mem_get_info,
        cudaHostRegister=call("hipHostRegister"),
        cudaHostUnregister=call("hipHostUnregister"),
        cudaStreamCreate=_stream_create,
        cudaStreamDestroy=call("hipStreamDestroy"),
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
    )


def nvtx() -> Any:
    """Ranges for a profiler that is not there."""
    names = ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA", "deviceRangeStart", "deviceRangeEnd")
    return SimpleNamespace(**dict.fromkeys(names, lambda *args: 0))


def _stream_create(pointer: int) -> int:
    code, handle = _session().hip.hipStreamCreate()
    if code == HipError.hipSuccess:
        ctypes.c_void_p.from_address(pointer).value = handle
    return int(code)


_NOT_MODELLED = (
    "_cuda_allocationTraceback",
    "_cuda_attach_out_of_memory_observer",
    "_cuda_changeCurrentAllocator",
    "_cuda_customAllocator",
    "_cuda_cudaHostAllocator",
    "_cuda_getAllocator",
    "_cuda_getCurrentBlasHandle",
    "_cuda_getCurrentSolverHandle",
    "_cuda_jiterator_compile_and_launch_kernel",
    "_cuda_memorySnapshot",
    "_cuda_record_memory_history",
    "_cuda_record_memory_history_legacy",
    "_cuda_getMemoryMetadata",
    "_cuda_setMemoryMetadata",
)


def _accelerator() -> dict[str, Any]:
    """What `torch.accelerator` is written on. Its streams are those of `torch.cuda`."""

    def stream(device: int) -> Any:
        state = _session().current(device)
        return torch.cuda.Stream(stream_id=state.id, device_index=state.device, device_type=_CUDA)

    def synchronize(device: int) -> None:
        session = _session()
        with session.on(device):
            _synchronize()

    def memory_info(device: int) -> tuple[int, int]:
        found: tuple[int, int] = cudart().cudaMemGetInfo(device)
        return found

    return {
        "_get_accelerator": lambda check=None: torch.device("cuda"),
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_getDeviceIndex": lambda: _session().device,
        "_accelerator_setDeviceIndex": _set_device,
        "_accelerator_exchangeDevice": _exchange_device,
        "_accelerator_maybeExchangeDevice": _maybe_exchange_device,
        "_accelerator_synchronizeDevice": synchronize,
        "_accelerator_getStream": stream,
        "_accelerator_setStream": lambda stream: _set_stream(stream.stream_id, stream.device_index, _CUDA),
        "_accelerator_isAllocatorInitialized": lambda: torch.cuda.is_initialized(),
        "_accelerator_emptyCache": _empty_cache,
        "_accelerator_emptyHostCache": lambda: _session().host.empty(),
        "_accelerator_getMemoryInfo": memory_info,
        "_accelerator_getDeviceStats": _memory_stats,
        "_accelerator_resetPeakStats": lambda device: _session().allocators[device].stats.reset_peak(),
        "_accelerator_resetAccumulatedStats": lambda device: _session().allocators[device].stats.reset_accumulated(),
        "_accelerator_getDeviceCapability": not_modelled("_accelerator_getDeviceCapability"),
    }


def bindings() -> dict[str, Any]:
    """Attributes for ``torch._C``, by name."""
    return {
        **_accelerator(),
        **{name: not_modelled(name) for name in _NOT_MODELLED},
        "_has_cuda": True,
        "_cuda_init": _init,
        "_cuda_getDeviceCount": _device_count,
        "_cuda_getDevice": lambda: _session().device,
        "_cuda_setDevice": _set_device,
        "_cuda_exchangeDevice": _exchange_device,
        "_cuda_maybeExchangeDevice": _maybe_exchange_device,
        "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getCompiledVersion": lambda: 0,
        "_cuda_getArchFlags": lambda: _session().hip.properties(0).gcn_arch_name,
        "_cuda_synchronize": _synchronize,
        "_cuda_sleep": _sleep,
        "_cuda_getCurrentStream": lambda device: _triple(_session().current(device)),
        "_cuda_getDefaultStream": lambda device: _triple(_session().defaults[device]),
        "_cuda_getCurrentRawStream": lambda device: _session().current(device).handle,
        "_cuda_getStreamFromExternal": lambda pointer, device: _triple(_session().external(pointer, device)),
        "_cuda_setStream": _set_stream,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_set_sync_debug_mode": lambda mode: None,
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_cuda_memoryStats": _memory_stats,
        "_cuda_resetPeakMemoryStats": lambda device: _session().allocators[device].stats.reset_peak(),
        "_cuda_resetAccumulatedMemoryStats": lambda device: _session().allocators[device].stats.reset_accumulated(),
        "_cuda_hostMemoryStats": _host_stats,
        "_cuda_resetPeakHostMemoryStats": _reset_host(peak=True),
        "_cuda_resetAccumulatedHostMemoryStats": _reset_host(peak=False),
        "_cuda_emptyCache": _empty_cache,
        "_cuda_setMemoryFraction": _set_fraction,
        "_cuda_getMemoryFraction": lambda device: _session().allocators[device].fraction,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": _raw_alloc,
        "_cuda_cudaCachingAllocator_raw_delete": _raw_delete,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_enable": not_modelled("_cuda_cudaCachingAllocator_enable"),
        "_cuda_ipc_collect": lambda: None,
    }
