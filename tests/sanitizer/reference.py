"""Writes docs/reference/sanitizer.md from the checks and the catalogue: ``python tests/sanitizer/reference.py``."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from catalogue import PROGRAMS, Program, load

from hipfile_sim.observe.sanitizer import CHECKS, Edge
from hipfile_sim.observe.sanitizer import hb as core

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sanitizer.md"

HEAD = '''# The sanitizer

An observer that finds races, early reads, dead slots and leaks in a run. It follows what is ordered with what
(happens-before), not what happened to come first: a race is found although this run went well, and order that exists
through other streams is never reported.

`hipfile-sim run` and `hipfile_mock.fake` watch with it unless told otherwise. By hand it is an observer like any other:

```python
from hipfile_sim.machine import Machine
from hipfile_sim.observe.sanitizer import Sanitizer

sanitizer = Sanitizer("leak.*=off")
with Machine(1, observers=[sanitizer]) as machine:
    hip = machine.hip
    _, block = hip.hipMalloc(4096)
    _, one = hip.hipStreamCreateWithFlags(1)
    _, two = hip.hipStreamCreateWithFlags(1)
    hip.launch(one, lambda: None, writes=[(block, 4096)], name="forward")
    hip.launch(two, lambda: None, reads=[(block, 4096)], name="attention")
    hip.hipDeviceSynchronize()
    sanitizer.finish()
print(sanitizer.format())
assert [finding.id for finding in sanitizer.findings] == ["race.read-write"]
```

```text
error race.read-write: kernel attention on stream 2 reads what kernel forward on stream 1 writes, and nothing orders
  the two
  write    kernel forward on stream 1 bytes 0 to 4096 of device block 1 (4096 bytes, allocated at app.py:7 in <module>)
           at app.py:10
  read     kernel attention on stream 2 bytes 0 to 4096 of device block 1 (4096 bytes, allocated at app.py:7 in
           <module>)
           at app.py:11
  missing  no event that stream 1 records behind the one and stream 2 waits for before the other
  fix      record an event on stream 1 behind the first, and let stream 2 wait for it
```

| | |
|---|---|
| `Sanitizer(policy)` | watches one machine; `policy` is a `Policy`, or levels as text |
| `.findings`, `.errors` | what has been found so far |
| `.finish()` | the program is over: reports what is left over |
| `.raise_if_errors()` | `finish`, then `SanitizerError` if the policy calls anything an error |
| `.format("text")` | also `"json"`, `"sarif"` (2.1.0) and `"summary"`; `colour=True` for ANSI colours |

## Severities and suppressions

Each check has a severity: **error**, **warning** or **note**. A policy changes it by id; the last pattern that fits
decides.

```python
from hipfile_sim.observe.sanitizer import Policy, parse_suppressions

policy = Policy(
    "cost.*=off, leak.operation=error",
    suppressions=parse_suppressions("""
        # ID          FILE[:LINE]     in FUNCTION    # reason
        race.file     kv/slabs.py     in compact     # readers check the checksum
        leak.*        kv/pool.py:88                  # lives as long as the process
    """),
)
assert policy.level("leak.operation") == "error"
```

`Policy.load(path)` reads suppressions from a file. One that silenced nothing is named at the end of the report. On the
line itself a comment does it: `# hipfile: ignore[race.host-read]`, or `# hipfile: ignore` for every id.

## What counts as order

| edge | |
|---|---|
'''

MIDDLE = """
## Host threads and host functions

Host threads order each other with locks, queues, `threading.Event`, `join` and futures, which nobody sees, and host
functions hand results over in the same way. So by default, `Sanitizer(host_threads="assumed")`, no such hand-over is
ever reported:

- What host threads do is taken to be ordered as it happened. Stream against stream and stream against host are judged
  as ever; between two host threads nothing is reported.
- What one thread has waited for, every thread knows.
- From the moment when a host function begins, the host knows what its stream did before it, and from its end what the
  function itself did, whether or not it told anybody.

The last hides a race: a result that is read behind a host function which has run, and which told nobody, is not
reported in that order. It is in an order in which the function has not run yet, so run with `schedule="lazy"`, or
[explore](../how-to/explore-orders.md).

`Sanitizer(host_threads="told")`, given as `observers=[...]` with `strict=None`, finds these and the races of host
threads. It believes only in what it is told: `sanitizer.thread_started(child, parent)` when a thread starts,
`sanitizer.thread_joined(child, by)` when one was joined or has handed over (numbers of `threading.get_ident`, called
under `machine.engine.lock`), and calls of the API that wait. Behind a host function that fills a queue, let the thread
that empties it synchronise an event recorded behind the function, which costs nothing by then.

## Limitations

- Kernels and torch operations touch what they declare. Bytes that nobody declares are not seen.
- Loads and stores of C code are not seen, so a C program's early reads are not reported. Slots that it changes are
  noticed by their values, when the operation is bound and when it completes; so are slots that Python changes through
  ctypes. The same holds for pinned memory behind `tensor.numpy()`, and for `fsync` in C: there an asynchronous write is
  never called unsynced.
- `os.fsync`, `os.fdatasync` and `os.sync` are seen under these names, not under one that was imported before.
- A system call with a device pointer (`os.write` of it) fails with EFAULT, as it does on hardware, and is not reported.
- A place is the innermost line outside numpy, torch, the standard library and installed packages; only where there is
  none it is one of a package. Install the connector that you test with `pip install -e`, and its own lines are named.
- A tensor that is freed while a stream uses it is reported when its memory is handed out again, or stored to a file,
  not before: torch keeps it until then.
- An event that was recorded more than 4096 submits ago, on a stream that the host never waits for, may stand for a
  slightly later point: a race may be missed, none is made up.
- One finding for each pair of places; `count` says how often.

## The checks

In the examples `w` is a machine with short names for what connectors do (`tests/sanitizer/catalogue/world.py`). All of
them are run, under several orders, and must be reported with exactly this id, or not at all.
"""


def edges() -> str:
    """The kinds of edges, with what stands below each in the source."""
    source = inspect.getsource(core.Edge)
    texts = dict(re.findall(r'(\w+) = \d+\n\s+"""(.+?)"""', source, re.S))
    return "".join(
        f"| {edge.name.lower().replace('_', ' ')} | {' '.join(texts[edge.name].split())} |\n" for edge in Edge
    )


def code(program: Program) -> str:
    """The source of a program, without what the catalogue needs alone."""
    source = inspect.getsource(program.body)
    source = source[source.index("def ") :]
    return re.sub(r"\((\w+): World\) -> None:", r"(\1):", source).rstrip() + "\n"


def page() -> str:
    """The page."""
    load()
    parts = [HEAD, edges(), MIDDLE]
    for check in sorted(CHECKS.values(), key=lambda check: check.id):
        about = textwrap.fill(
            f"**{check.severity}**: {check.title}. {check.why} {check.fix}", 120, break_on_hyphens=False
        )
        parts.append(f"\n### {check.id}\n\n{about}\n")
        wrong = next((program for program in PROGRAMS.values() if program.expected == check.id), None)
        if wrong is not None:
            right = PROGRAMS[wrong.twin]
            parts.append(f"\nReported:\n\n```python\n{code(wrong)}```\n\nRight:\n\n```python\n{code(right)}```\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
