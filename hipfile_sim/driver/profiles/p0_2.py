"""hipFile 0.2: the tree of April 2026, the best evidenced of all.

One pinned bounce buffer an async operation, no backend selection for async, batches that are stored and never run.
"""

from __future__ import annotations

from types import MappingProxyType

from hipfile_sim.driver.profiles.base import Profile, Variable, parse_strtoul

UINT_MAX = (1 << 32) - 1

PROFILE = Profile(
    name="0.2",
    version=(0, 2, 0),
    title="hipFile 0.2.0 (April 2026 tree)",
    evidence="high",
    aliases=("0.2.0",),
    # HIP is reported to block where CUDA stages. [hip.copy.pageable-h2d]
    hip=MappingProxyType({"pageable_h2d": "block"}),
    variables=(
        Variable("HIPFILE_ALLOW_COMPAT_MODE", "bool", True),
        Variable("HIPFILE_FORCE_COMPAT_MODE", "bool", False),
        Variable("HIPFILE_UNSUPPORTED_FILE_SYSTEMS", "bool", False),
        Variable("HIPFILE_STATS_LEVEL", "uint", 0, UINT_MAX),
    ),
    parse_int=parse_strtoul,
    force_without_allow="no-backend",
    open_from_library_load=True,
    negative_offset="range-check",
    sync_failover=False,
    async_generation="g1",
    async_bounce="per-op",
    async_selection=False,
    fixed_size_clamped=False,
    batch="stored",
)
