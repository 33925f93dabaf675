"""hipFile 0.3 (ROCm 7.14): 0.2 with failover of synchronous fastpath errors."""

from __future__ import annotations

from dataclasses import replace

from hipfile_sim.driver.profiles import p0_2

PROFILE = replace(
    p0_2.PROFILE,
    name="0.3",
    version=(0, 3, 0),
    title="hipFile 0.3.0 (ROCm 7.14.0)",
    evidence="high",
    aliases=("0.3.0",),
    sync_failover=True,
)
