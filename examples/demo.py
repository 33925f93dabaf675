"""What ``make demo`` runs: the layer-wise KV load on an emulated GPU, with a look at what its streams did.

It is a plain use of the command line; the lines that it runs are printed, so that they can be tried by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def hipfile_sim(*arguments: str) -> int:
    print(f"\n$ hipfile-sim {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", "hipfile_sim.cli", *arguments], check=False).returncode


def main() -> int:
    print("A program that loads a KV cache from disk into GPU memory, layer by layer, on a machine that needs no GPU.")
    load = os.path.relpath(HERE / "kv_load_layerwise.py")
    code = hipfile_sim("run", "--timeline", "--trace", "demo.trace.json", load, "--layers", "6")
    if code:
        return code
    print("\nThe trace is in demo.trace.json: open it in Perfetto. The same program as release 0.2, as lazy as can be:")
    return hipfile_sim("run", "--profile", "0.2", "--schedule", "lazy", load, "--layers", "2")


if __name__ == "__main__":
    sys.exit(main())
