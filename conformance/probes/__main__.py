"""Measure what cuFile and the CUDA runtime do on this machine: the ground under the profile `cufile`.

Needs an NVIDIA GPU and the libraries; nothing else, not even the model. Each probe runs in a process of its own
with a time limit, so that a hang or a crash is one more observation. `scripts/conformance_gpu.sh
measure` prepares the machine.

    python -m hipfile_conformance.probes --out DIR [--jobs N] [--only PATTERN]
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from hipfile_conformance.probes.lab import PROBES, Lab
from hipfile_conformance.targets.base import Unsupported

LIMIT_S = 30
for _module in (
    "machine",
    "life",
    "files",
    "synchronous",
    "asynchronous",
    "in_flight",
    "batches",
    "cuda_order",
    "cuda_calls",
):
    import_module(f"hipfile_conformance.probes.{_module}")


def run_probe(name: str, folder: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, "-u", "-m", "hipfile_conformance.probes", "--one", name, "--folder", folder]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=limit)
            end = f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            end = f"killed after {limit:g} s"
        errors.seek(0)
        noise = errors.read().decode(errors="replace").strip().splitlines()[-6:]
    seen = []
    for line in output.decode(errors="replace").splitlines():
        try:
            seen.append(json.loads(line))
        except ValueError:
            seen.append(["?", line])
    return {"probe": name, "end": end, "s": round(time.perf_counter() - start, 2), "seen": seen, "stderr": noise}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help="run one probe in this process")
    parser.add_argument("--folder", default=None, help="folder for test files (not tmpfs)")
    parser.add_argument("--out", default=".", help="where measure.json and measure.txt go")
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one probe")
    options = parser.parse_args()
    if options.one:
        try:
            PROBES[options.one](Lab(options.folder))
        except Unsupported as error:
            print(json.dumps(["unsupported", str(error)]), flush=True)
        sys.stdout.flush()
        os._exit(0)  # a stream that still waits must not hold the exit
    folder = options.folder or tempfile.mkdtemp(prefix="measure-", dir=os.path.expanduser("~"))
    os.makedirs(folder, exist_ok=True)
    names = [name for name in PROBES if fnmatch.fnmatch(name, options.only)]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda name: run_probe(name, folder, options.limit), names))
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "measure.json").write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "results": results}, indent=1))
    with open(out / "measure.txt", "w") as text:
        for result in results:
            print(f"== {result['probe']} ({result['end']}, {result['s']} s)", file=text)
            for key, value in result["seen"]:
                print(f"   {key}: {json.dumps(value)}", file=text)
            for line in result["stderr"]:
                print(f"   ! {line[:300]}", file=text)
    bad = [f"{r['probe']}: {r['end']}" for r in results if r["end"] != "exit 0"]
    print(f"{len(results)} probes, {sum(len(r['seen']) for r in results)} observations; not clean: {bad or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
