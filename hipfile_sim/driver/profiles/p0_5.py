"""hipFile 0.5 (ROCm 10.1): chunks through one pinned buffer a stream, backend selection for async, batches that run."""

from __future__ import annotations

from dataclasses import replace

from hipfile_sim.driver.profiles import p0_4
from hipfile_sim.driver.profiles.base import DEFAULT_ASYNC_BUFFER, Variable, parse_from_chars

SIZE_MAX = (1 << 64) - 1

PROFILE = replace(
    p0_4.PROFILE,
    name="0.5",
    version=(0, 5, 0),
    title="hipFile 0.5.0 (ROCm 10.1.0)",
    evidence="high",
    aliases=("0.5.0",),
    variables=(
        *p0_4.PROFILE.variables,
        Variable("HIPFILE_ASYNC_BUFFER_SIZE", "size_t", DEFAULT_ASYNC_BUFFER, SIZE_MAX, zero_is_default=True),
    ),
    parse_int=parse_from_chars,
    conflict_message="stderr",
    sync_switches_device=True,
    async_generation="g2",
    async_bounce="per-stream",
    async_selection=True,
    fixed_size_clamped=True,
    batch="pool",
    stats_api=True,
)
