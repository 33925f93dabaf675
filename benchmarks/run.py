"""Run the benchmarks, each in a process of its own, and print their figures as ratios.

    run.py [NAME...] [--quick] [--check] [--json FILE] [--list]

Absolute times of one machine say little; a ratio of two things measured in the same run says what the model costs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import traceback
from dataclasses import asdict

from harness import HERE, Benchmark, load_all


def measure(name: str, quick: bool) -> dict[str, object]:
    """The figure of one benchmark, from a fresh process."""
    command = [sys.executable, str(HERE / "run.py"), "--one", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one(entry: Benchmark, quick: bool) -> int:
    try:
        print(json.dumps(asdict(entry.function(quick))))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks and print their figures as ratios.")
    parser.add_argument("names", nargs="*", help="only these (default: all)")
    parser.add_argument("--quick", action="store_true", help="less work, less exact")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a limit is broken")
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and their limits")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()

    entries = load_all()
    if options.one:
        return one(entries[options.one], options.quick)
    unknown = [name for name in options.names if name not in entries]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(entries)}")
    chosen = [entries[name] for name in options.names or entries]
    width = max(len(entry.name) for entry in chosen)
    results, broken = {}, 0
    for entry in chosen:
        limit = f"{entry.limit[0]} {entry.limit[1]:g}"
        if options.list:
            print(f"{entry.name:{width}}  {limit:8}  {entry.about}")
            continue
        result = measure(entry.name, options.quick)
        results[entry.name] = {**result, "limit": limit, "about": entry.about}
        if "error" in result:
            broken += 1
            print(f"{entry.name:{width}}  {'error':>12}  {result['error']}", flush=True)
            continue
        value = float(result["value"])  # type: ignore[arg-type]
        kept = entry.holds(value)
        broken += not kept
        shown = f"{value:.3g} {result['unit']}"
        detail = ", ".join(f"{key} {text}" for key, text in dict(result["detail"]).items())  # type: ignore[call-overload]
        print(f"{entry.name:{width}}  {shown:>12}  {limit:8} {'ok  ' if kept else 'MISS'}  {detail}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)
            file.write("\n")
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
