"""What the probes ran on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hipfile_conformance.probes.lab import Lab, probe


@probe
def facts(lab: Lab) -> None:
    for key, value in lab.t.facts().items():
        lab.see(key, value)
    lab.see("python", sys.version)
    lab.see("kernel", " ".join(os.uname()))
    lab.see("folder", lab.folder)
    device = os.stat(lab.folder).st_dev
    lab.see("folder device", f"{os.major(device)}:{os.minor(device)}")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if f" {os.major(device)}:{os.minor(device)} " in line:
            lab.see("mount", line)
    lab.see("nvidia-fs", os.path.exists("/dev/nvidia-fs"))
    lab.see("attribute can use stream wait value", [lab.h("DeviceGetAttribute", n, 0) for n in (92, 93, 94, 122)])
    lab.see("priority range", lab.h("DeviceGetStreamPriorityRange"))
