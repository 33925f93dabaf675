"""All codes, names, flags and texts of hipFile in one place.

Values and names are those of the public header (release 0.4.0; later releases add none that is modelled here).
The texts are ours: the header's texts are not a contract, only the answer for an unknown code is known.

>>> OpError.hipFileInvalidValue.value, error_string(5022)
(5022, 'a parameter has an invalid value')
>>> error_string(5021)
'Unknown hipFile error'
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from hipfile_sim.hip.codes import HipError

__all__ = [
    "BASE_ERR",
    "ERROR_NAMES",
    "FIXED_BUF_OFFSET",
    "FIXED_FILE_OFFSET",
    "FIXED_FILE_SIZE",
    "MAX_BATCH",
    "MAX_RW_COUNT",
    "PAGE_ALIGNED_INPUTS",
    "STREAM_FLAGS_MASK",
    "SUCCESS",
    "UNKNOWN_ERROR",
    "BatchMode",
    "BatchOpcode",
    "BatchStatus",
    "BoolParameter",
    "DriverControlFlag",
    "DriverFeatureFlag",
    "DriverStatusFlag",
    "FileDescr",
    "HandleType",
    "HipFileStatus",
    "IOResult",
    "OpError",
    "SizeTParameter",
    "StreamFlag",
    "StringParameter",
    "VendorError",
    "error_name",
    "error_string",
    "hip_status",
    "is_hipfile_err",
    "status",
]

BASE_ERR: Final = 5000
"""Codes above this in magnitude belong to hipFile, the rest to the operating system or to HIP."""

MAX_RW_COUNT: Final = 0x7FFFF000
"""Most bytes that one operation moves: INT_MAX rounded down to a 4 KiB page. [sync.max-rw-count]"""

MAX_BATCH: Final = 128
"""Largest capacity of a batch. [batch.setup.capacity]"""


class OpError(IntEnum):
    """``hipFileOpError_t``. 5021 and 5032 are not assigned. [error.values]"""

    hipFileSuccess = 0
    hipFileDriverNotInitialized = 5001
    hipFileDriverInvalidProps = 5002
    hipFileDriverUnsupportedLimit = 5003
    hipFileDriverVersionMismatch = 5004
    hipFileDriverVersionReadError = 5005
    hipFileDriverClosing = 5006
    hipFilePlatformNotSupported = 5007
    hipFileIONotSupported = 5008
    hipFileDeviceNotSupported = 5009
    hipFileDriverError = 5010
    hipFileHipDriverError = 5011
    hipFileHipPointerInvalid = 5012
    hipFileHipMemoryTypeInvalid = 5013
    hipFileHipPointerRangeError = 5014
    hipFileHipContextMismatch = 5015
    hipFileInvalidMappingSize = 5016
    hipFileInvalidMappingRange = 5017
    hipFileInvalidFileType = 5018
    hipFileInvalidFileOpenFlag = 5019
    hipFileDIONotSet = 5020
    hipFileInvalidValue = 5022
    hipFileMemoryAlreadyRegistered = 5023
    hipFileMemoryNotRegistered = 5024
    hipFilePermissionDenied = 5025
    hipFileDriverAlreadyOpen = 5026
    hipFileHandleNotRegistered = 5027
    hipFileHandleAlreadyRegistered = 5028
    hipFileDeviceNotFound = 5029
    hipFileInternalError = 5030
    hipFileGetNewFDFailed = 5031
    hipFileDriverSetupError = 5033
    hipFileIODisabled = 5034
    hipFileBatchSubmitFailed = 5035
    hipFileGPUMemoryPinningFailed = 5036
    hipFileBatchFull = 5037
    hipFileAsyncNotSupported = 5038
    hipFileIOMaxError = 5039


class VendorError(IntEnum):
    """Codes that cuFile was observed to answer with and that ``hipFileOpError_t`` does not have; the names are ours."""

    batchSubmitFailed = 5040
    batchStatusFailed = 5041


ERROR_NAMES: Final[dict[int, str]] = {code.value: code.name for code in OpError}

UNKNOWN_ERROR: Final = "Unknown hipFile error"

_TEXTS: Final[dict[int, str]] = {
    0: "success",
    5001: "the hipFile driver is not open",
    5002: "the driver reports properties that are not valid",
    5003: "a limit of the driver is not supported",
    5004: "the driver's version does not fit the library",
    5005: "the driver's version could not be read",
    5006: "the driver is closed or closing",
    5007: "this platform is not supported",
    5008: "this kind of file or I/O is not supported",
    5009: "this GPU is not supported",
    5010: "the driver reported an error",
    5011: "a HIP call failed; see the HIP error beside this code",
    5012: "the device pointer is not valid",
    5013: "the memory behind the pointer is of a kind that is not supported",
    5014: "the range leaves the allocation that the pointer belongs to",
    5015: "the HIP context does not fit",
    5016: "a size reaches past the mapped buffer",
    5017: "a range reaches past the mapped buffer",
    5018: "this type of file is not supported",
    5019: "the file is open with flags that are not supported",
    5020: "the file is not open for direct I/O",
    5022: "a parameter has an invalid value",
    5023: "this memory is registered already",
    5024: "this memory is not registered",
    5025: "permission denied",
    5026: "the driver is open already",
    5027: "this file handle is not registered",
    5028: "this file is registered already",
    5029: "no such device",
    5030: "internal error of hipFile",
    5031: "no new file descriptor could be had",
    5033: "setting the driver up failed",
    5034: "I/O is disabled",
    5035: "the batch could not be submitted",
    5036: "GPU memory could not be pinned",
    5037: "the batch is full",
    5038: "asynchronous I/O is not supported",
    5039: "end of the range of hipFile errors; never returned by a call",
}


def error_name(code: int) -> str:
    """Official name of a code, or ``"unknown(<code>)"``."""
    return ERROR_NAMES.get(int(code), f"unknown({int(code)})")


def error_string(code: int) -> str:
    """Text of ``hipFileGetOpErrorString``. [error.string.known] [error.string.unknown]

    Parameters
    ----------
    code : int
        A value of ``hipFileOpError_t``, not negated.
    """
    return _TEXTS.get(int(code), UNKNOWN_ERROR)


def is_hipfile_err(code: int) -> bool:
    """``IS_HIPFILE_ERR``: the magnitude is above the base. [error.macro]

    >>> is_hipfile_err(-5022), is_hipfile_err(5000), is_hipfile_err(-1)
    (True, False, False)
    """
    return abs(int(code)) > BASE_ERR


class HipFileStatus(NamedTuple):
    """``hipFileError_t``: the hipFile code and, for `hipFileHipDriverError`, the HIP code behind it."""

    err: OpError | VendorError
    hip_drv_err: HipError = HipError.hipSuccess

    @property
    def ok(self) -> bool:
        """True for success. (The tuple itself is always truthy.)"""
        return self.err == 0


class IOResult(NamedTuple):
    """What a synchronous read or write returns.

    `count` is a byte count, -1 (then `errno` says why), a negated hipFile code or a negated HIP code.
    `errno` 0 means that the caller's errno is left untouched.
    """

    count: int  # type: ignore[assignment]  # the name of a tuple method, and the right name here
    errno: int = 0


class FileDescr(NamedTuple):
    """``hipFileDescr_t``. `fs_ops` is the address of the callbacks; AMD ignores it. [file.register.fs-ops]"""

    type: int
    fd: int
    handle_ptr: int = 0
    fs_ops: int = 0


SUCCESS: Final = HipFileStatus(OpError.hipFileSuccess)
_PLAIN: Final[dict[int, HipFileStatus]] = {code.value: HipFileStatus(code) for code in OpError}


def status(err: OpError) -> HipFileStatus:
    """Status with `err` and no HIP error (shared objects, nothing is allocated)."""
    return _PLAIN[err]


def hip_status(error: HipError) -> HipFileStatus:
    """``{hipFileHipDriverError, error}``."""
    return HipFileStatus(OpError.hipFileHipDriverError, error)


class HandleType(IntEnum):
    """``hipFileFileHandleType_t``."""

    hipFileHandleTypeOpaqueFD = 1
    hipFileHandleTypeOpaqueWin32 = 2
    hipFileHandleTypeUserspaceFS = 3


class StreamFlag(IntFlag):
    """Flags of ``hipFileStreamRegister``: what the caller promises about the slots. [stream.flags.bits]"""

    FIXED_BUF_OFFSET = 1
    FIXED_FILE_OFFSET = 2
    FIXED_FILE_SIZE = 4
    PAGE_ALIGNED_INPUTS = 8


FIXED_BUF_OFFSET: Final = 1
FIXED_FILE_OFFSET: Final = 2
FIXED_FILE_SIZE: Final = 4
PAGE_ALIGNED_INPUTS: Final = 8
STREAM_FLAGS_MASK: Final = 0xF


class BatchOpcode(IntEnum):
    """``hipFileOpcode_t``."""

    hipFileBatchRead = 0
    hipFileBatchWrite = 1


class BatchMode(IntEnum):
    """``hipFileBatchMode_t``."""

    hipFileBatch = 1


class BatchStatus(IntEnum):
    """``hipFileStatus_t``: state of one operation of a batch."""

    hipFileWaiting = 1
    hipFilePending = 2
    hipFileInvalid = 4
    hipFileCanceled = 8
    hipFileComplete = 16
    hipFileTimeout = 32
    hipFileFailed = 64


class DriverStatusFlag(IntEnum):
    """Bit numbers of ``nvfs.driver_status_flags``. 10 is reserved."""

    hipFileLustreSupported = 0
    hipFileWekaFSSupported = 1
    hipFileNFSSupported = 2
    hipFileGPFSSupported = 3
    hipFileNVMeSupported = 4
    hipFileNVMeoFSupported = 5
    hipFileSCSISupported = 6
    hipFileScaleFluxCSDSupported = 7
    hipFileNVMeshSupported = 8
    hipFileBeeGFSSupported = 9
    hipFileNVMeP2PSupported = 11
    hipFileScatefsSupported = 12


class DriverControlFlag(IntEnum):
    """Bit numbers of ``nvfs.driver_control_flags``."""

    hipFileUsePollMode = 0
    hipFileAllowCompatMode = 1


class DriverFeatureFlag(IntEnum):
    """Bit numbers of ``feature_flags``."""

    hipFileDynRoutingSupported = 0
    hipFileBatchIOSupported = 1
    hipFileStreamsSupported = 2
    hipFileParallelIOSupported = 3


class SizeTParameter(IntEnum):
    """``hipFileSizeTConfigParameter_t``, from 0 in header order."""

    hipFileParamProfileStats = 0
    hipFileParamExecutionMaxIOQueueDepth = 1
    hipFileParamExecutionMaxIOThreads = 2
    hipFileParamExecutionMinIOThresholdSizeKB = 3
    hipFileParamExecutionMaxRequestParallelism = 4
    hipFileParamPropertiesMaxDirectIOSizeKB = 5
    hipFileParamPropertiesMaxDeviceCacheSizeKB = 6
    hipFileParamPropertiesPerBufferCacheSizeKB = 7
    hipFileParamPropertiesMaxDevicePinnedMemSizeKB = 8
    hipFileParamPropertiesIOBatchsize = 9
    hipFileParamPollthresholdSizeKB = 10
    hipFileParamPropertiesBatchIOTimeoutMs = 11


class BoolParameter(IntEnum):
    """``hipFileBoolConfigParameter_t``, from 0 in header order."""

    hipFileParamPropertiesUsePollMode = 0
    hipFileParamPropertiesAllowCompatMode = 1
    hipFileParamForceCompatMode = 2
    hipFileParamFsMiscApiCheckAggressive = 3
    hipFileParamExecutionParallelIO = 4
    hipFileParamProfileNvtx = 5
    hipFileParamPropertiesAllowSystemMemory = 6
    hipFileParamUsePcip2pdma = 7
    hipFileParamPreferIOUring = 8
    hipFileParamForceOdirectMode = 9
    hipFileParamSkipTopologyDetection = 10
    hipFileParamStreamMemopsBypass = 11


class StringParameter(IntEnum):
    """``hipFileStringConfigParameter_t``, from 0 in header order."""

    hipFileParamLoggingLevel = 0
    hipFileParamEnvLogfilePath = 1
    hipFileParamLogDir = 2


# Texts that the library prints. The real wording is only known in part ("=1 ... =0", "=true ... =false").
CONFLICT_TEXT: Final = {
    "stdout": (
        "hipFile: HIPFILE_FORCE_COMPAT_MODE=1 overrules HIPFILE_ALLOW_COMPAT_MODE=0; the fallback backend is enabled."
    ),
    "stderr": (
        "hipFile: HIPFILE_FORCE_COMPAT_MODE=true overrules HIPFILE_ALLOW_COMPAT_MODE=false;"
        " the fallback backend is enabled."
    ),
}
"""Printed once if FORCE is true and ALLOW is false, by the stream that it goes to. [env.force-without-allow.message]"""
