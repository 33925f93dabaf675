"""Names of the device attributes: a number before a name starts a run of consecutive values."""

from __future__ import annotations

__all__ = ["DEVICE_ATTRIBUTES"]

_RUNS = """
    0:CudaCompatibleBegin 0:EccEnabled AccessPolicyMaxWindowSize AsyncEngineCount CanMapHostMemory
    CanUseHostPointerForRegisteredMem ClockRate ComputeMode ComputePreemptionSupported ConcurrentKernels
    ConcurrentManagedAccess CooperativeLaunch CooperativeMultiDeviceLaunch DeviceOverlap DirectManagedMemAccessFromHost
    GlobalL1CacheSupported HostNativeAtomicSupported Integrated IsMultiGpuBoard KernelExecTimeout L2CacheSize
    LocalL1CacheSupported Luid LuidDeviceNodeMask ComputeCapabilityMajor ManagedMemory MaxBlocksPerMultiProcessor
    MaxBlockDimX MaxBlockDimY MaxBlockDimZ MaxGridDimX MaxGridDimY MaxGridDimZ MaxSurface1D MaxSurface1DLayered
    MaxSurface2D MaxSurface2DLayered MaxSurface3D MaxSurfaceCubemap MaxSurfaceCubemapLayered MaxTexture1DWidth
    MaxTexture1DLayered MaxTexture1DLinear MaxTexture1DMipmap MaxTexture2DWidth MaxTexture2DHeight MaxTexture2DGather
    MaxTexture2DLayered MaxTexture2DLinear MaxTexture2DMipmap MaxTexture3DWidth MaxTexture3DHeight MaxTexture3DDepth
    MaxTexture3DAlt MaxTextureCubemap MaxTextureCubemapLayered MaxThreadsDim MaxThreadsPerBlock
    MaxThreadsPerMultiProcessor MaxPitch MemoryBusWidth MemoryClockRate ComputeCapabilityMinor MultiGpuBoardGroupID
    MultiprocessorCount Unused1 PageableMemoryAccess PageableMemoryAccessUsesHostPageTables PciBusId PciDeviceId
    PciDomainId 69:PciDomainID PersistingL2CacheMaxSize MaxRegistersPerBlock MaxRegistersPerMultiprocessor
    ReservedSharedMemPerBlock MaxSharedMemoryPerBlock SharedMemPerBlockOptin SharedMemPerMultiprocessor
    SingleToDoublePrecisionPerfRatio StreamPrioritiesSupported SurfaceAlignment TccDriver TextureAlignment
    TexturePitchAlignment TotalConstantMemory TotalGlobalMem UnifiedAddressing Unused2 WarpSize MemoryPoolsSupported
    VirtualMemoryManagementSupported HostRegisterSupported MemoryPoolSupportedHandleTypes HostNumaId DmaBufSupported
    GPUDirectRDMAWithHipVMMSupported HandleTypeFabricSupported 9999:CudaCompatibleEnd AmdSpecificBegin
    10000:ClockInstructionRate Unused3 MaxSharedMemoryPerMultiprocessor Unused4 Unused5 HdpMemFlushCntl HdpRegFlushCntl
    CooperativeMultiDeviceUnmatchedFunc CooperativeMultiDeviceUnmatchedGridDim CooperativeMultiDeviceUnmatchedBlockDim
    CooperativeMultiDeviceUnmatchedSharedMem IsLargeBar AsicRevision CanUseStreamWaitValue ImageSupport
    PhysicalMultiProcessorCount FineGrainSupport WallClockRate NumberOfXccs MaxAvailableVgprsPerThread PciChipId
    ExpertSchedMode MaxDynDataPrefetchRegions 19999:AmdSpecificEnd VendorSpecificBegin
"""


def _expand(text: str) -> dict[str, int]:
    names: dict[str, int] = {}
    value = -1
    for word in text.split():
        start, colon, name = word.rpartition(":")
        value = int(start) if colon else value + 1
        names[f"hipDeviceAttribute{name}"] = value
    return names


DEVICE_ATTRIBUTES = _expand(_RUNS)
"""``hipDeviceAttribute_t``: name to value, aliases included."""
