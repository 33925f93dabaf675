"""Layouts of the C structures, from the text that also stands in the headers: one place for a field.

A layout is C member declarations. Offsets and sizes follow the rules of the System V ABI for x86-64 and AArch64 (LP64);
tests compare them with the C compiler and with HIP-Python's structures.

>>> POINTER_ATTRIBUTE.size, POINTER_ATTRIBUTE.fields["devicePointer"].offset
(32, 8)
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hipfile_sim.driver import stats

__all__ = [
    "BATCH_EVENT",
    "BATCH_PARAMS",
    "DEVICE_PROP",
    "DRIVER_PROPS",
    "FILE_DESCR",
    "POINTER_ATTRIBUTE",
    "STATS_L1",
    "STATS_L2",
    "STATS_L3",
    "STATS_PER_GPU",
    "Field",
    "Layout",
    "flatten",
]

#: C type -> (struct format of one element, alignment)
_TYPES = {
    "char": ("s", 1),
    "bool": ("?", 1),
    "int": ("i", 4),
    "int32_t": ("i", 4),
    "unsigned int": ("I", 4),
    "uint32_t": ("I", 4),
    "size_t": ("Q", 8),
    "uint64_t": ("Q", 8),
    "int64_t": ("q", 8),
    "hoff_t": ("q", 8),
    "hipUUID": ("16s", 1),
    "hipDeviceArch_t": ("I", 4),
    "hipMemoryType": ("i", 4),
    "hipFileFileHandleType_t": ("i", 4),
    "hipFileBatchMode_t": ("i", 4),
    "hipFileOpcode_t": ("i", 4),
    "hipFileStatus_t": ("i", 4),
}

_MEMBER = re.compile(r"^(?P<type>.+?[\s*])(?P<name>\w+)(?:\[(?P<count>\w+)\])?$")


class Field(NamedTuple):
    """Where one member lies; `format` packs all of its elements."""

    offset: int
    format: str
    count: int  # type: ignore[assignment]  # the name of a tuple method, and the right name here


class Layout:
    """One structure.

    Parameters
    ----------
    text : str
        Member declarations, separated by ``;``. A name with a dot is a member of a nested structure, laid out in place.
    nested : mapping of str to Layout
        Types that are structures themselves.
    """

    def __init__(self, text: str, nested: Mapping[str, Layout] | None = None) -> None:
        self.text = text
        self.nested = dict(nested or {})
        self.fields: dict[str, Field] = {}
        self.align = 1
        self.size = 0
        offset = 0
        for declaration in self.declarations():
            found = _MEMBER.match(declaration)
            assert found is not None, f"not a member declaration: {declaration!r}"
            ctype, name, count = found["type"].strip(), found["name"], int(found["count"] or 1)
            inner = self.nested.get(ctype)
            align = inner.align if inner else 8 if ctype.endswith("*") else _TYPES[ctype][1]
            offset = (offset + align - 1) // align * align
            self.align = max(self.align, align)
            if inner:
                for index in range(count):
                    for member, field in inner.fields.items():
                        prefix = f"{name}[{index}]" if found["count"] else name
                        self.fields[f"{prefix}.{member}"] = field._replace(offset=offset + field.offset)
                    offset += inner.size
            else:
                one = "Q" if ctype.endswith("*") else _TYPES[ctype][0]
                form = f"{count}s" if one == "s" and found["count"] else one if count == 1 else f"{count}{one}"
                self.fields[name] = Field(offset, form, count)
                offset += struct.calcsize("=" + form)
        self.size = (offset + self.align - 1) // self.align * self.align

    def declarations(self) -> list[str]:
        """The members, one string each."""
        return [" ".join(part.split()) for part in self.text.split(";") if part.strip()]

    def members(self, indent: str = "    ") -> str:
        """The members as C text."""
        return "\n".join(f"{indent}{declaration};" for declaration in self.declarations())

    def pack(self, values: Mapping[str, object]) -> bytes:
        """The structure with these values; members that are not named are zero, names that are no members are ignored.

        Strings are encoded and cut so that a final zero remains.
        """
        data = bytearray(self.size)
        for name, value in values.items():
            field = self.fields.get(name)
            if field is None or value is None:
                continue
            if isinstance(value, str):
                value = value.encode()[: struct.calcsize("=" + field.format) - 1]
            items = list(value) if isinstance(value, Sequence) and not isinstance(value, bytes) else [value]
            if field.format[-1] != "s":
                items += [0] * (field.count - len(items))
            struct.pack_into("=" + field.format, data, field.offset, *items)
        return bytes(data)

    def unpack(self, data: bytes) -> dict[str, int]:
        """The single integer members of the structure."""
        return {
            name: struct.unpack_from("=" + field.format, data, field.offset)[0]
            for name, field in self.fields.items()
            if field.count == 1
        }


# -- HIP ------------------------------------------------------------------------------------------------------------

DEVICE_PROP = Layout("""
    char name[256]; hipUUID uuid; char luid[8]; unsigned int luidDeviceNodeMask;
    size_t totalGlobalMem; size_t sharedMemPerBlock; int regsPerBlock; int warpSize; size_t memPitch;
    int maxThreadsPerBlock; int maxThreadsDim[3]; int maxGridSize[3]; int clockRate; size_t totalConstMem;
    int major; int minor; size_t textureAlignment; size_t texturePitchAlignment; int deviceOverlap;
    int multiProcessorCount; int kernelExecTimeoutEnabled; int integrated; int canMapHostMemory; int computeMode;
    int maxTexture1D; int maxTexture1DMipmap; int maxTexture1DLinear; int maxTexture2D[2]; int maxTexture2DMipmap[2];
    int maxTexture2DLinear[3]; int maxTexture2DGather[2]; int maxTexture3D[3]; int maxTexture3DAlt[3];
    int maxTextureCubemap; int maxTexture1DLayered[2]; int maxTexture2DLayered[3]; int maxTextureCubemapLayered[2];
    int maxSurface1D; int maxSurface2D[2]; int maxSurface3D[3]; int maxSurface1DLayered[2]; int maxSurface2DLayered[3];
    int maxSurfaceCubemap; int maxSurfaceCubemapLayered[2]; size_t surfaceAlignment; int concurrentKernels;
    int ECCEnabled; int pciBusID; int pciDeviceID; int pciDomainID; int tccDriver; int asyncEngineCount;
    int unifiedAddressing; int memoryClockRate; int memoryBusWidth; int l2CacheSize; int persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor; int streamPrioritiesSupported; int globalL1CacheSupported;
    int localL1CacheSupported; size_t sharedMemPerMultiprocessor; int regsPerMultiprocessor; int managedMemory;
    int isMultiGpuBoard; int multiGpuBoardGroupID; int hostNativeAtomicSupported; int singleToDoublePrecisionPerfRatio;
    int pageableMemoryAccess; int concurrentManagedAccess; int computePreemptionSupported;
    int canUseHostPointerForRegisteredMem; int cooperativeLaunch; int cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin; int pageableMemoryAccessUsesHostPageTables; int directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor; int accessPolicyMaxWindowSize; size_t reservedSharedMemPerBlock;
    int hostRegisterSupported; int sparseHipArraySupported; int hostRegisterReadOnlySupported;
    int timelineSemaphoreInteropSupported; int memoryPoolsSupported; int gpuDirectRDMASupported;
    unsigned int gpuDirectRDMAFlushWritesOptions; int gpuDirectRDMAWritesOrdering;
    unsigned int memoryPoolSupportedHandleTypes; int deferredMappingHipArraySupported; int ipcEventSupported;
    int clusterLaunch; int unifiedFunctionPointers; int reserved[63]; int hipReserved[32]; char gcnArchName[256];
    size_t maxSharedMemoryPerMultiProcessor; int clockInstructionRate; hipDeviceArch_t arch;
    unsigned int *hdpMemFlushCntl; unsigned int *hdpRegFlushCntl; int cooperativeMultiDeviceUnmatchedFunc;
    int cooperativeMultiDeviceUnmatchedGridDim; int cooperativeMultiDeviceUnmatchedBlockDim;
    int cooperativeMultiDeviceUnmatchedSharedMem; int isLargeBar; int asicRevision
""")
"""``hipDeviceProp_tR0600``: 1472 bytes (HIP-Python 10.0.0)."""

POINTER_ATTRIBUTE = Layout("""
    hipMemoryType type; int device; void *devicePointer; void *hostPointer; int isManaged; unsigned int allocationFlags
""")
"""``hipPointerAttribute_t``."""

# -- hipFile --------------------------------------------------------------------------------------------------------

FILE_DESCR = Layout("hipFileFileHandleType_t type; void *handle; void *fs_ops")
"""``hipFileDescr_t``; `handle` is the union of a descriptor and a pointer."""

_NVFS = Layout("""
    unsigned int major_version; unsigned int minor_version; uint64_t poll_thresh_size; uint64_t max_direct_io_size;
    unsigned int driver_status_flags; unsigned int driver_control_flags
""")
DRIVER_PROPS = Layout(
    """
    struct nvfs nvfs; unsigned int feature_flags; uint64_t max_device_cache_size; uint64_t per_buffer_cache_size;
    uint64_t max_device_pinned_mem_size; unsigned int max_batch_io_count; unsigned int max_batch_io_timeout_msecs
""",
    {"struct nvfs": _NVFS},
)
"""``hipFileDriverProps_t``: 72 bytes."""

_BATCH = Layout("void *devPtr_base; hoff_t file_offset; hoff_t devPtr_offset; size_t size")
BATCH_PARAMS = Layout(
    "hipFileBatchMode_t mode; union u u; void *fh; hipFileOpcode_t opcode; void *cookie",
    {"union u": _BATCH},
)
"""``hipFileIOParams_t``; the union has one member, ``batch``."""

BATCH_EVENT = Layout("void *cookie; hipFileStatus_t status; size_t ret")
"""``hipFileIOEvents_t``."""


def _statistics(record: type, nested: Mapping[str, Layout]) -> Layout:
    """The layout of a record of ``driver/stats.py``: its fields in order, every number with 64 bits.

    The order is the release's; that all numbers have 64 bits is not known. [stats.layout]
    """
    members = []
    for field in dataclasses.fields(record):
        kind = str(field.type)
        members.append(_MEMBERS.get(kind, f"{_STRUCTS.get(kind, kind)} {{}}").format(field.name))
    return Layout(";".join(members), nested)


_MEMBERS = {
    "int": "uint64_t {}",
    "bytes": "char {}[16]",
    "list[int]": f"uint64_t {{}}[{stats.HISTOGRAM}]",
    "list[PerGpuStats]": f"hipFilePerGpuStats_t {{}}[{stats.MAX_GPUS}]",
}
_STRUCTS = {
    "OpCount": "hipFileOpCounter_t",
    "StatsL1": "hipFileStatsLevel1_t",
    "StatsL2": "hipFileStatsLevel2_t",
}

_COUNTER = _statistics(stats.OpCount, {})
STATS_L1 = _statistics(stats.StatsL1, {"hipFileOpCounter_t": _COUNTER})
STATS_L2 = _statistics(stats.StatsL2, {"hipFileStatsLevel1_t": STATS_L1})
STATS_PER_GPU = _statistics(stats.PerGpuStats, {})
STATS_L3 = _statistics(stats.StatsL3, {"hipFileStatsLevel2_t": STATS_L2, "hipFilePerGpuStats_t": STATS_PER_GPU})
"""``hipFileStatsLevel3_t``; the GPU slots are indexed by device."""


def flatten(record: Any, prefix: str = "") -> dict[str, object]:
    """The values of a statistics record under the names that its layout has for them."""
    values: dict[str, object] = {}
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            values |= flatten(value, f"{name}.")
        elif isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
            for index, item in enumerate(value):
                values |= flatten(item, f"{name}[{index}].")
        else:
            values[name] = value
    return values
