"""What the pytest plugin shows: errors without the way to them, findings beside a failure, how much was covered."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hipfile_mock.fake import Session

MISSING = re.compile(r"No module named '(hipfile|hip|rocm)\b")
AT_THE_TOP = """\
The doubles are in place while a test runs with the fixture hipfile_fake or the marker hipfile. For modules that import
them earlier, such as a test module at its top, put this into conftest.py; each test still gets a machine of its own:

    import hipfile_mock

    hipfile_mock.install()"""


def found_by_us(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether the plugin found the error, and no line of the test raised it: the way there is of no use."""
    if not isinstance(item, pytest.Function) or "hipfile_fake" not in item.fixturenames:
        return False
    from hipfile_mock.faults import FaultNotFired
    from hipfile_sim.observe.sanitizer import SanitizerError

    tests = getattr(item.obj, "__code__", None)
    lines = [entry for entry in excinfo.traceback if entry.frame.code.raw is tests]
    return isinstance(excinfo.value, SanitizerError | FaultNotFired) and not lines


class Said:
    """What pytest shows of an error in place of a traceback."""

    def __init__(self, error: BaseException) -> None:
        self._text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        found = getattr(error, "findings", ())
        first = str(found[0]) if found else str(error).partition("\n")[0]
        self.reprcrash = SimpleNamespace(message=first)  # for the summary and JUnit

    def __str__(self) -> str:
        return self._text

    def toterminal(self, terminal: Any) -> None:
        for line in self._text.splitlines():
            terminal.line(f"E   {line}".rstrip(), red=True)


def findings(session: Session) -> str:
    """What the sanitizer knows of a run that failed by itself. What it left over is no wonder."""
    sanitizer = session.sanitizer
    if sanitizer is None:
        return ""
    from hipfile_sim.observe.sanitizer.report import text

    sanitizer.finish()  # an operation that never ran has been read too early all the same
    errors = [finding for finding in sanitizer.errors if not finding.id.startswith("leak.")]
    return str(text(errors, operations=sanitizer.operations, colour=False)) if errors else ""


def left_out() -> str:
    """Why ``torch.cuda`` is not the double although the test uses torch; empty where it is, or could be."""
    if getattr(sys.modules.get("hipfile_mock.faces.torch.kernels"), "stack", ()):
        return ""  # the double is in place, and says of itself that it is a build with HIP
    version = getattr(sys.modules.get("torch"), "version", None)
    kind = next((name for name in ("cuda", "hip") if getattr(version, name, None)), "")
    return f"torch is a build with {kind.upper()} and left alone: the double needs the CPU build" if kind else ""


def coverage(reports: Iterable[Any], *, every: bool) -> list[str]:
    """Lines that say how much of what can happen was tried; unless `every`, many that covered all are one."""
    covered = {  # a set in order: with shards, a test has a line for each
        (report.nodeid, str(value)): None
        for report in reports
        for key, value in getattr(report, "user_properties", ())
        if key == "hipfile_schedules"
    }
    whole = [entry for entry in covered if entry[1].startswith("all ")]
    first = []
    if len(whole) > 10 and not every:
        first = [f"{len(whole)} tests: all orders of their strategy (-v lists them)"]
        covered = {entry: None for entry in covered if entry not in whole}
    return first + [f"{name}: {value}" for name, value in covered]
