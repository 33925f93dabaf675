"""Every HIP function of ``libamdhip64.so`` that is modelled: one line each (``symbols.py`` tells how to read it).

Names and argument order are HIP's interface as HIP-Python 10.0.0 declares it.
"""

from __future__ import annotations

from hipfile_sim.native.symbols import Symbol, parse_table

__all__ = ["HIP"]

HIP: tuple[Symbol, ...] = parse_table("""
# -- initialisation and version
hipError_t hipInit(unsigned int flags)
hipError_t hipDriverGetVersion(out int *driverVersion)
hipError_t hipRuntimeGetVersion(out int *runtimeVersion)

# -- devices
hipError_t hipGetDeviceCount(out int *count)
hipError_t hipGetDevice(out int *deviceId)
hipError_t hipSetDevice(int deviceId)
hipError_t hipDeviceGet(out hipDevice_t *device, int ordinal)
hipError_t hipDeviceSynchronize(void)
hipError_t hipDeviceGetAttribute(out int *pi, hipDeviceAttribute_t attr, int deviceId)
hipError_t hipDeviceGetName(char *name, int len, hipDevice_t device)
hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device)
hipError_t hipDeviceGetPCIBusId(char *pciBusId, int len, int device)
hipError_t hipDeviceGetByPCIBusId(out int *device, const char *pciBusId)
hipError_t hipDeviceTotalMem(out size_t *bytes, hipDevice_t device)
hipError_t hipDeviceComputeCapability(out int *major, out int *minor, hipDevice_t device)
hipError_t hipDeviceCanAccessPeer(out int *canAccessPeer, int deviceId, int peerDeviceId)
hipError_t hipDeviceEnablePeerAccess(int peerDeviceId, unsigned int flags)
hipError_t hipDeviceDisablePeerAccess(int peerDeviceId)
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *prop, int deviceId)
hipError_t hipChooseDeviceR0600(out int *device, const hipDeviceProp_tR0600 *prop)

# -- errors
hipError_t hipGetLastError(void) in=C
hipError_t hipExtGetLastError(void) in=C
hipError_t hipPeekAtLastError(void) in=C
const char *hipGetErrorName(hipError_t hip_error)
const char *hipGetErrorString(hipError_t hipError)
hipError_t hipDrvGetErrorName(hipError_t hipError, const char **errorString)
hipError_t hipDrvGetErrorString(hipError_t hipError, const char **errorString)

# -- memory
hipError_t hipMalloc(out void **ptr, size_t size) undo=hipFree
hipError_t hipExtMallocWithFlags(out void **ptr, size_t sizeBytes, unsigned int flags) undo=hipFree
hipError_t hipMallocManaged(out void **dev_ptr, size_t size, unsigned int flags = hipMemAttachGlobal) undo=hipFree
hipError_t hipFree(void *ptr)
hipError_t hipHostMalloc(out void **ptr, size_t size, unsigned int flags = hipHostMallocDefault) undo=hipHostFree
hipError_t hipHostAlloc(out void **ptr, size_t size, unsigned int flags) undo=hipHostFree
hipError_t hipMallocHost(out void **ptr, size_t size) undo=hipHostFree
hipError_t hipMemAllocHost(out void **ptr, size_t size) undo=hipHostFree
hipError_t hipHostFree(void *ptr)
hipError_t hipFreeHost(void *ptr)
hipError_t hipHostRegister(void *hostPtr, size_t sizeBytes, unsigned int flags)
hipError_t hipHostUnregister(void *hostPtr)
hipError_t hipHostGetDevicePointer(out void **devPtr, void *hstPtr, unsigned int flags)
hipError_t hipHostGetFlags(out unsigned int *flagsPtr, void *hostPtr)
hipError_t hipMemGetInfo(out size_t *free, out size_t *total)
hipError_t hipMemPtrGetInfo(void *ptr, out size_t *size)
hipError_t hipMemGetAddressRange(opt void **pbase, opt size_t *psize, hipDeviceptr_t dptr)
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *ptr)

# -- copies and fills
hipError_t hipMemcpy(void *dst, const void *src, size_t sizeBytes, hipMemcpyKind kind)
hipError_t hipMemcpyWithStream(void *dst, const void *src, size_t sizeBytes, hipMemcpyKind kind, hipStream_t stream)
hipError_t hipMemcpyAsync(void *dst, const void *src, size_t sizeBytes, hipMemcpyKind kind, hipStream_t stream = 0)
hipError_t hipMemcpyHtoD(hipDeviceptr_t dst, const void *src, size_t sizeBytes)
hipError_t hipMemcpyDtoH(void *dst, hipDeviceptr_t src, size_t sizeBytes)
hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t sizeBytes)
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, const void *src, size_t sizeBytes, hipStream_t stream)
hipError_t hipMemcpyDtoHAsync(void *dst, hipDeviceptr_t src, size_t sizeBytes, hipStream_t stream)
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t sizeBytes, hipStream_t stream)
hipError_t hipMemcpyPeer(void *dst, int dstDeviceId, const void *src, int srcDeviceId, size_t sizeBytes)
hipError_t hipMemcpyPeerAsync(void *dst, int dstDeviceId, const void *src, int srcDevice, size_t sizeBytes,
    hipStream_t stream = 0)
hipError_t hipMemset(void *dst, int value, size_t sizeBytes)
hipError_t hipMemsetAsync(void *dst, int value, size_t sizeBytes, hipStream_t stream = 0)
hipError_t hipMemsetD8(hipDeviceptr_t dest, unsigned char value, size_t count)
hipError_t hipMemsetD8Async(hipDeviceptr_t dest, unsigned char value, size_t count, hipStream_t stream = 0)

# -- streams
hipError_t hipStreamCreate(out hipStream_t *stream) undo=hipStreamDestroy
hipError_t hipStreamCreateWithFlags(out hipStream_t *stream, unsigned int flags) undo=hipStreamDestroy
hipError_t hipStreamCreateWithPriority(out hipStream_t *stream, unsigned int flags,
    int priority) undo=hipStreamDestroy
hipError_t hipDeviceGetStreamPriorityRange(opt int *leastPriority, opt int *greatestPriority)
hipError_t hipStreamDestroy(hipStream_t stream)
hipError_t hipStreamSynchronize(hipStream_t stream)
hipError_t hipStreamQuery(hipStream_t stream)
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags = 0)
hipError_t hipStreamGetFlags(hipStream_t stream, out unsigned int *flags)
hipError_t hipStreamGetPriority(hipStream_t stream, out int *priority)
hipError_t hipStreamGetDevice(hipStream_t stream, out hipDevice_t *device)
int hipGetStreamDeviceId(hipStream_t stream)
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void *userData, unsigned int flags)
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t fn, void *userData)
hipError_t hipStreamWriteValue32(hipStream_t stream, void *ptr, uint32_t value, unsigned int flags)
hipError_t hipStreamWriteValue64(hipStream_t stream, void *ptr, uint64_t value, unsigned int flags)
hipError_t hipStreamWaitValue32(hipStream_t stream, void *ptr, uint32_t value, unsigned int flags,
    uint32_t mask = 0xFFFFFFFFu)
hipError_t hipStreamWaitValue64(hipStream_t stream, void *ptr, uint64_t value, unsigned int flags,
    uint64_t mask = 0xFFFFFFFFFFFFFFFFull)

# -- events
hipError_t hipEventCreate(out hipEvent_t *event) undo=hipEventDestroy
hipError_t hipEventCreateWithFlags(out hipEvent_t *event, unsigned int flags) undo=hipEventDestroy
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = 0)
hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream = 0, unsigned int flags = 0)
hipError_t hipEventQuery(hipEvent_t event)
hipError_t hipEventSynchronize(hipEvent_t event)
hipError_t hipEventElapsedTime(out float *ms, hipEvent_t start, hipEvent_t stop)
hipError_t hipEventDestroy(hipEvent_t event)

# -- kernels that are host functions (docs/how-to/run-a-c-program.md says what they may do)
hipError_t hipfileSimKernelRegister(const void *function, const void *call, const size_t *sizes,
    const unsigned char *modes, unsigned int count)
hipError_t hipLaunchKernel(const void *function_address, dim3 numBlocks, dim3 dimBlocks, void **args,
    size_t sharedMemBytes, hipStream_t stream)

# -- per-thread default stream forms: as above, with the null stream meaning the thread's own
hipError_t hipMemcpy_spt(void *dst, const void *src, size_t sizeBytes, hipMemcpyKind kind)
hipError_t hipMemcpyAsync_spt(void *dst, const void *src, size_t sizeBytes, hipMemcpyKind kind, hipStream_t stream)
hipError_t hipMemset_spt(void *dst, int value, size_t sizeBytes)
hipError_t hipMemsetAsync_spt(void *dst, int value, size_t sizeBytes, hipStream_t stream)
hipError_t hipStreamQuery_spt(hipStream_t stream)
hipError_t hipStreamSynchronize_spt(hipStream_t stream)
hipError_t hipStreamGetPriority_spt(hipStream_t stream, out int *priority)
hipError_t hipStreamWaitEvent_spt(hipStream_t stream, hipEvent_t event, unsigned int flags)
hipError_t hipStreamGetFlags_spt(hipStream_t stream, out unsigned int *flags)
hipError_t hipStreamAddCallback_spt(hipStream_t stream, hipStreamCallback_t callback, void *userData,
    unsigned int flags)
hipError_t hipEventRecord_spt(hipEvent_t event, hipStream_t stream)
hipError_t hipLaunchHostFunc_spt(hipStream_t stream, hipHostFn_t fn, void *userData)
hipError_t hipLaunchKernel_spt(const void *function_address, dim3 numBlocks, dim3 dimBlocks, void **args,
    size_t sharedMemBytes, hipStream_t stream)

# -- look-up, and what compilers emit around kernels
hipError_t hipGetProcAddress(const char *symbol, void **pfn, int hipVersion, uint64_t flags, void *symbolStatus) in=C
hipError_t __hipPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, hipStream_t stream) in=C
hipError_t __hipPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, hipStream_t *stream) in=C
""")
