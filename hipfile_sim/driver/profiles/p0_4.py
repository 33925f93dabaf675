"""hipFile 0.4 (ROCm 10.0): statistics on by default, FORCE rescues the fallback, negative offsets are found early."""

from __future__ import annotations

from dataclasses import replace

from hipfile_sim.driver.profiles import p0_3

PROFILE = replace(
    p0_3.PROFILE,
    name="0.4",
    version=(0, 4, 0),
    title="hipFile 0.4.0 (ROCm 10.0.0)",
    evidence="medium",  # no tree is proven to be the 0.4.0 tag
    aliases=("0.4.0", "0.4.0.dev0"),
    variables=tuple(v._replace(default=1) if v.name == "HIPFILE_STATS_LEVEL" else v for v in p0_3.PROFILE.variables),
    force_without_allow="rescue",
    conflict_message="stdout",
    stats_level_max=3,
    open_from_library_load=False,
    negative_offset="early-einval",
)
