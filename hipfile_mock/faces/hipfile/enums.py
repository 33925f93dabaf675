"""Codes and handle types as Python enumerations."""

from enum import IntEnum

from hipfile_sim.driver.codes import HandleType as _HandleType
from hipfile_sim.driver.codes import OpError as _Code


class OpError(IntEnum):
    """``hipFileOpError_t`` with names in Python's manner. 5021 and 5032 are not assigned. [error.values]"""

    SUCCESS = _Code.hipFileSuccess.value
    DRIVER_NOT_INITIALIZED = _Code.hipFileDriverNotInitialized.value
    DRIVER_INVALID_PROPS = _Code.hipFileDriverInvalidProps.value
    DRIVER_UNSUPPORTED_LIMIT = _Code.hipFileDriverUnsupportedLimit.value
    DRIVER_VERSION_MISMATCH = _Code.hipFileDriverVersionMismatch.value
    DRIVER_VERSION_READ_ERROR = _Code.hipFileDriverVersionReadError.value
    DRIVER_CLOSING = _Code.hipFileDriverClosing.value
    PLATFORM_NOT_SUPPORTED = _Code.hipFilePlatformNotSupported.value
    IO_NOT_SUPPORTED = _Code.hipFileIONotSupported.value
    DEVICE_NOT_SUPPORTED = _Code.hipFileDeviceNotSupported.value
    DRIVER_ERROR = _Code.hipFileDriverError.value
    HIP_DRIVER_ERROR = _Code.hipFileHipDriverError.value
    HIP_POINTER_INVALID = _Code.hipFileHipPointerInvalid.value
    HIP_MEMORY_TYPE_INVALID = _Code.hipFileHipMemoryTypeInvalid.value
    HIP_POINTER_RANGE_ERROR = _Code.hipFileHipPointerRangeError.value
    HIP_CONTEXT_MISMATCH = _Code.hipFileHipContextMismatch.value
    INVALID_MAPPING_SIZE = _Code.hipFileInvalidMappingSize.value
    INVALID_MAPPING_RANGE = _Code.hipFileInvalidMappingRange.value
    INVALID_FILE_TYPE = _Code.hipFileInvalidFileType.value
    INVALID_FILE_OPEN_FLAG = _Code.hipFileInvalidFileOpenFlag.value
    DIO_NOT_SET = _Code.hipFileDIONotSet.value
    INVALID_VALUE = _Code.hipFileInvalidValue.value
    MEMORY_ALREADY_REGISTERED = _Code.hipFileMemoryAlreadyRegistered.value
    MEMORY_NOT_REGISTERED = _Code.hipFileMemoryNotRegistered.value
    PERMISSION_DENIED = _Code.hipFilePermissionDenied.value
    DRIVER_ALREADY_OPEN = _Code.hipFileDriverAlreadyOpen.value
    HANDLE_NOT_REGISTERED = _Code.hipFileHandleNotRegistered.value
    HANDLE_ALREADY_REGISTERED = _Code.hipFileHandleAlreadyRegistered.value
    DEVICE_NOT_FOUND = _Code.hipFileDeviceNotFound.value
    INTERNAL_ERROR = _Code.hipFileInternalError.value
    GET_NEW_FD_FAILED = _Code.hipFileGetNewFDFailed.value
    DRIVER_SETUP_ERROR = _Code.hipFileDriverSetupError.value
    IO_DISABLED = _Code.hipFileIODisabled.value
    BATCH_SUBMIT_FAILED = _Code.hipFileBatchSubmitFailed.value
    GPU_MEMORY_PINNING_FAILED = _Code.hipFileGPUMemoryPinningFailed.value
    BATCH_FULL = _Code.hipFileBatchFull.value
    ASYNC_NOT_SUPPORTED = _Code.hipFileAsyncNotSupported.value
    IO_MAX_ERROR = _Code.hipFileIOMaxError.value


class FileHandleType(IntEnum):
    """``hipFileFileHandleType_t``. The library accepts `OPAQUE_FD` alone. [file.register.type]"""

    OPAQUE_FD = _HandleType.hipFileHandleTypeOpaqueFD.value
    OPAQUE_WIN32 = _HandleType.hipFileHandleTypeOpaqueWin32.value
    USERSPACE_FS = _HandleType.hipFileHandleTypeUserspaceFS.value
