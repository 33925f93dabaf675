"""Every function of ``libhipfile.so``: one line each (``symbols.py`` tells how to read it).

The first 31 are those that HIP-Python's binding of release 10.0.0 names; the statistics are of release 0.5.0.
"""

from __future__ import annotations

from hipfile_sim.native.symbols import Symbol, parse_table

__all__ = ["HIPFILE"]

HIPFILE: tuple[Symbol, ...] = parse_table("""
# -- errors and version
const char *hipFileGetOpErrorString(hipFileOpError_t status)
hipFileError_t hipFileGetVersion(unsigned int *major, unsigned int *minor, unsigned int *patch)

# -- life cycle
hipFileError_t hipFileDriverOpen(void)
hipFileError_t hipFileDriverClose(void)
int64_t hipFileUseCount(void)

# -- files and buffers
hipFileError_t hipFileHandleRegister(hipFileHandle_t *fh, hipFileDescr_t *descr)
void hipFileHandleDeregister(hipFileHandle_t fh)
hipFileError_t hipFileBufRegister(const void *buffer_base, size_t length, int flags)
hipFileError_t hipFileBufDeregister(const void *buffer_base)

# -- synchronous I/O
ssize_t hipFileRead(hipFileHandle_t fh, void *buffer_base, size_t size, hoff_t file_offset, hoff_t buffer_offset)
ssize_t hipFileWrite(hipFileHandle_t fh, const void *buffer_base, size_t size, hoff_t file_offset,
    hoff_t buffer_offset)

# -- asynchronous I/O
hipFileError_t hipFileReadAsync(hipFileHandle_t fh, void *buffer_base, size_t *size_p, hoff_t *file_offset_p,
    hoff_t *buffer_offset_p, ssize_t *bytes_read_p, hipStream_t stream)
hipFileError_t hipFileWriteAsync(hipFileHandle_t fh, void *buffer_base, size_t *size_p, hoff_t *file_offset_p,
    hoff_t *buffer_offset_p, ssize_t *bytes_written_p, hipStream_t stream)
hipFileError_t hipFileStreamRegister(hipStream_t stream, unsigned int flags)
hipFileError_t hipFileStreamDeregister(hipStream_t stream)

# -- batches
hipFileError_t hipFileBatchIOSetUp(hipFileBatchHandle_t *batch_idp, unsigned int max_nr)
hipFileError_t hipFileBatchIOSubmit(hipFileBatchHandle_t batch_idp, unsigned int nr, hipFileIOParams_t *iocbp,
    unsigned int flags)
hipFileError_t hipFileBatchIOGetStatus(hipFileBatchHandle_t batch_idp, unsigned int min_nr, unsigned int *nr,
    hipFileIOEvents_t *iocbp, struct timespec *timeout)
hipFileError_t hipFileBatchIOCancel(hipFileBatchHandle_t batch_idp)
void hipFileBatchIODestroy(hipFileBatchHandle_t batch_idp)

# -- properties and parameters
hipFileError_t hipFileDriverGetProperties(hipFileDriverProps_t *props)
hipFileError_t hipFileDriverSetPollMode(bool poll, size_t poll_threshold_size)
hipFileError_t hipFileDriverSetMaxDirectIOSize(size_t max_direct_io_size)
hipFileError_t hipFileDriverSetMaxCacheSize(size_t max_cache_size)
hipFileError_t hipFileDriverSetMaxPinnedMemSize(size_t max_pinned_size)
hipFileError_t hipFileGetParameterSizeT(hipFileSizeTConfigParameter_t param, size_t *value)
hipFileError_t hipFileGetParameterBool(hipFileBoolConfigParameter_t param, bool *value)
hipFileError_t hipFileGetParameterString(hipFileStringConfigParameter_t param, char *desc_str, int len)
hipFileError_t hipFileSetParameterSizeT(hipFileSizeTConfigParameter_t param, size_t value)
hipFileError_t hipFileSetParameterBool(hipFileBoolConfigParameter_t param, bool value)
hipFileError_t hipFileSetParameterString(hipFileStringConfigParameter_t param, const char *desc_str)

# -- statistics (0.5.0)
hipFileError_t hipFileGetStatsL1(hipFileStatsLevel1_t *stats)
hipFileError_t hipFileGetStatsL2(hipFileStatsLevel2_t *stats)
hipFileError_t hipFileGetStatsL3(hipFileStatsLevel3_t *stats)
""")
