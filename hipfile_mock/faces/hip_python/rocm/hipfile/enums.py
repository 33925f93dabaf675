"""Codes and handle types with names in Python's manner."""

from enum import IntEnum

from rocm.bindings.hipfile import hipFileFileHandleType as _HandleType
from rocm.bindings.hipfile import hipFileOpError as _Code

__all__ = ["FileHandleType", "OpError"]


class OpError(IntEnum):
    """``hipFileOpError_t``. Its members are not members of `rocm.bindings.hipfile.hipFileOpError`."""

    SUCCESS = _Code.hipFileSuccess
    DRIVER_NOT_INITIALIZED = _Code.hipFileDriverNotInitialized
    DRIVER_INVALID_PROPS = _Code.hipFileDriverInvalidProps
    DRIVER_UNSUPPORTED_LIMIT = _Code.hipFileDriverUnsupportedLimit
    DRIVER_VERSION_MISMATCH = _Code.hipFileDriverVersionMismatch
    DRIVER_VERSION_READ_ERROR = _Code.hipFileDriverVersionReadError
    DRIVER_CLOSING = _Code.hipFileDriverClosing
    PLATFORM_NOT_SUPPORTED = _Code.hipFilePlatformNotSupported
    IO_NOT_SUPPORTED = _Code.hipFileIONotSupported
    DEVICE_NOT_SUPPORTED = _Code.hipFileDeviceNotSupported
    DRIVER_ERROR = _Code.hipFileDriverError
    HIP_DRIVER_ERROR = _Code.hipFileHipDriverError
    HIP_POINTER_INVALID = _Code.hipFileHipPointerInvalid
    HIP_MEMORY_TYPE_INVALID = _Code.hipFileHipMemoryTypeInvalid
    HIP_POINTER_RANGE_ERROR = _Code.hipFileHipPointerRangeError
    HIP_CONTEXT_MISMATCH = _Code.hipFileHipContextMismatch
    INVALID_MAPPING_SIZE = _Code.hipFileInvalidMappingSize
    INVALID_MAPPING_RANGE = _Code.hipFileInvalidMappingRange
    INVALID_FILE_TYPE = _Code.hipFileInvalidFileType
    INVALID_FILE_OPEN_FLAG = _Code.hipFileInvalidFileOpenFlag
    DIO_NOT_SET = _Code.hipFileDIONotSet
    INVALID_VALUE = _Code.hipFileInvalidValue
    MEMORY_ALREADY_REGISTERED = _Code.hipFileMemoryAlreadyRegistered
    MEMORY_NOT_REGISTERED = _Code.hipFileMemoryNotRegistered
    PERMISSION_DENIED = _Code.hipFilePermissionDenied
    DRIVER_ALREADY_OPEN = _Code.hipFileDriverAlreadyOpen
    HANDLE_NOT_REGISTERED = _Code.hipFileHandleNotRegistered
    HANDLE_ALREADY_REGISTERED = _Code.hipFileHandleAlreadyRegistered
    DEVICE_NOT_FOUND = _Code.hipFileDeviceNotFound
    INTERNAL_ERROR = _Code.hipFileInternalError
    GET_NEW_FD_FAILED = _Code.hipFileGetNewFDFailed
    DRIVER_SETUP_ERROR = _Code.hipFileDriverSetupError
    IO_DISABLED = _Code.hipFileIODisabled
    BATCH_SUBMIT_FAILED = _Code.hipFileBatchSubmitFailed
    GPU_MEMORY_PINNING_FAILED = _Code.hipFileGPUMemoryPinningFailed
    BATCH_FULL = _Code.hipFileBatchFull
    ASYNC_NOT_SUPPORTED = _Code.hipFileAsyncNotSupported
    IO_MAX_ERROR = _Code.hipFileIOMaxError


class FileHandleType(IntEnum):
    """``hipFileFileHandleType_t``."""

    OPAQUE_FD = _HandleType.hipFileHandleTypeOpaqueFD
    OPAQUE_WIN32 = _HandleType.hipFileHandleTypeOpaqueWin32
    USERSPACE_FS = _HandleType.hipFileHandleTypeUserspaceFS
