"""hipError_t and the other numbers of the HIP API: values, names and texts, in one place."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class HipError(IntEnum):
    """Result of a HIP call. Values are those of the public header."""

    hipSuccess = 0
    hipErrorInvalidValue = 1
    hipErrorOutOfMemory = 2
    hipErrorNotInitialized = 3
    hipErrorDeinitialized = 4
    hipErrorProfilerDisabled = 5
    hipErrorProfilerNotInitialized = 6
    hipErrorProfilerAlreadyStarted = 7
    hipErrorProfilerAlreadyStopped = 8
    hipErrorInvalidConfiguration = 9
    hipErrorInvalidPitchValue = 12
    hipErrorInvalidSymbol = 13
    hipErrorInvalidDevicePointer = 17
    hipErrorInvalidMemcpyDirection = 21
    hipErrorInsufficientDriver = 35
    hipErrorMissingConfiguration = 52
    hipErrorPriorLaunchFailure = 53
    hipErrorInvalidDeviceFunction = 98
    hipErrorNoDevice = 100
    hipErrorInvalidDevice = 101
    hipErrorInvalidImage = 200
    hipErrorInvalidContext = 201
    hipErrorContextAlreadyCurrent = 202
    hipErrorMapFailed = 205
    hipErrorUnmapFailed = 206
    hipErrorArrayIsMapped = 207
    hipErrorAlreadyMapped = 208
    hipErrorNoBinaryForGpu = 209
    hipErrorAlreadyAcquired = 210
    hipErrorNotMapped = 211
    hipErrorNotMappedAsArray = 212
    hipErrorNotMappedAsPointer = 213
    hipErrorECCNotCorrectable = 214
    hipErrorUnsupportedLimit = 215
    hipErrorContextAlreadyInUse = 216
    hipErrorPeerAccessUnsupported = 217
    hipErrorInvalidKernelFile = 218
    hipErrorInvalidGraphicsContext = 219
    hipErrorInvalidSource = 300
    hipErrorFileNotFound = 301
    hipErrorSharedObjectSymbolNotFound = 302
    hipErrorSharedObjectInitFailed = 303
    hipErrorOperatingSystem = 304
    hipErrorInvalidHandle = 400
    hipErrorIllegalState = 401
    hipErrorNotFound = 500
    hipErrorNotReady = 600
    hipErrorIllegalAddress = 700
    hipErrorLaunchOutOfResources = 701
    hipErrorLaunchTimeOut = 702
    hipErrorPeerAccessAlreadyEnabled = 704
    hipErrorPeerAccessNotEnabled = 705
    hipErrorSetOnActiveProcess = 708
    hipErrorContextIsDestroyed = 709
    hipErrorAssert = 710
    hipErrorHostMemoryAlreadyRegistered = 712
    hipErrorHostMemoryNotRegistered = 713
    hipErrorLaunchFailure = 719
    hipErrorCooperativeLaunchTooLarge = 720
    hipErrorNotPermitted = 800
    """CUDA's value for a call that is not allowed where it was made; HIP's header has no name for it."""
    hipErrorNotSupported = 801
    hipErrorStreamCaptureUnsupported = 900
    hipErrorStreamCaptureInvalidated = 901
    hipErrorStreamCaptureMerge = 902
    hipErrorStreamCaptureUnmatched = 903
    hipErrorStreamCaptureUnjoined = 904
    hipErrorStreamCaptureIsolation = 905
    hipErrorStreamCaptureImplicit = 906
    hipErrorCapturedEvent = 907
    hipErrorStreamCaptureWrongThread = 908
    hipErrorGraphExecUpdateFailure = 910
    hipErrorInvalidChannelDescriptor = 911
    hipErrorInvalidTexture = 912
    hipErrorInvalidResourceType = 914
    hipErrorInvalidResourceConfiguration = 915
    hipErrorStreamDetached = 916
    hipErrorUnknown = 999
    hipErrorRuntimeMemory = 1052
    hipErrorRuntimeOther = 1053
    hipErrorInvalidClusterSize = 1054
    hipErrorTbd = 1055


_TEXTS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    4: "driver shutting down",
    9: "invalid configuration argument",
    12: "invalid pitch argument",
    13: "invalid device symbol",
    17: "invalid device pointer",
    21: "invalid copy direction for memcpy",
    35: "driver version is insufficient for runtime version",
    98: "invalid device function",
    100: "no ROCm-capable device is detected",
    101: "invalid device ordinal",
    201: "invalid device context",
    301: "file not found",
    400: "invalid resource handle",
    401: "the operation cannot be performed in the present state",
    500: "named symbol not found",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    709: "context is destroyed",
    710: "device-side assert triggered",
    712: "part or all of the requested memory range is already mapped",
    713: "pointer does not correspond to a registered memory region",
    719: "unspecified launch failure",
    800: "operation not permitted",
    801: "operation not supported",
    999: "unknown error",
}


def error_name(code: int) -> str:
    """The name of `code`, or ``"hipErrorUnknown"``.

    Examples
    --------
    >>> error_name(2)
    'hipErrorOutOfMemory'
    """
    try:
        return HipError(code).name
    except ValueError:
        return HipError.hipErrorUnknown.name


def error_string(code: int) -> str:
    """A sentence for `code`; codes without one of their own get their name in words.

    Examples
    --------
    >>> error_string(2)
    'out of memory'
    """
    text = _TEXTS.get(code)
    if text is None:
        name = error_name(code)
        text = _TEXTS[999] if name == "hipErrorUnknown" else _in_words(name.removeprefix("hipError"))
    return text


def _in_words(name: str) -> str:
    words = "".join(f" {char.lower()}" if char.isupper() else char for char in name)
    return words.strip()


class MemcpyKind(IntEnum):
    """hipMemcpyKind."""

    hipMemcpyHostToHost = 0
    hipMemcpyHostToDevice = 1
    hipMemcpyDeviceToHost = 2
    hipMemcpyDeviceToDevice = 3
    hipMemcpyDefault = 4


class MemoryType(IntEnum):
    """hipMemoryType of HIP 6 and later."""

    hipMemoryTypeUnregistered = 0
    hipMemoryTypeHost = 1
    hipMemoryTypeDevice = 2
    hipMemoryTypeManaged = 3
    hipMemoryTypeArray = 10
    hipMemoryTypeUnified = 11


class StreamFlag(IntFlag):
    """Flags of hipStreamCreateWithFlags."""

    hipStreamDefault = 0
    hipStreamNonBlocking = 1


class EventFlag(IntFlag):
    """Flags of hipEventCreateWithFlags."""

    hipEventDefault = 0
    hipEventBlockingSync = 1
    hipEventDisableTiming = 2
    hipEventInterprocess = 4
    hipEventDisableSystemFence = 0x20000000
    hipEventReleaseToDevice = 0x40000000
    hipEventReleaseToSystem = 0x80000000


class HostMallocFlag(IntFlag):
    """Flags of hipHostMalloc."""

    hipHostMallocDefault = 0
    hipHostMallocPortable = 1
    hipHostMallocMapped = 2
    hipHostMallocWriteCombined = 4
    hipHostMallocNumaUser = 0x20000000
    hipHostMallocCoherent = 0x40000000
    hipHostMallocNonCoherent = 0x80000000


class WaitValueFlag(IntEnum):
    """How hipStreamWaitValue32/64 compares."""

    hipStreamWaitValueGte = 0
    hipStreamWaitValueEq = 1
    hipStreamWaitValueAnd = 2
    hipStreamWaitValueNor = 3


EXT_MALLOC_FLAGS = {
    0: "hipDeviceMallocDefault",
    1: "hipDeviceMallocFinegrained",
    2: "hipMallocSignalMemory",
    3: "hipDeviceMallocUncached",
}
"""Flags of hipExtMallocWithFlags; signal memory is 8 bytes that hosts and streams both write."""

NULL_STREAM = 0
LEGACY_STREAM = 1
PER_THREAD_STREAM = 2
"""Handles that are no addresses: the null stream, its explicit name, and the calling thread's own default stream."""
