"""Reports: text for people, JSON and SARIF for programs, one line for logs."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from hipfile_sim._version import __version__
from hipfile_sim.observe.observer import Site
from hipfile_sim.observe.sanitizer.findings import CHECKS, SEVERITIES, Finding
from hipfile_sim.observe.sanitizer.policy import Suppression

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
JSON_VERSION = 1
_COLOURS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m"}
_BOLD, _DIM, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_WIDTH = 118


def wants_colour(stream: TextIO | None = None) -> bool:
    """Whether `stream` (default: stderr) is a terminal that may be coloured. ``NO_COLOR`` says no."""
    stream = stream or sys.stderr
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def place_name(site: Site) -> str:
    """``file:line in function``, the file relative to the working directory where that is shorter."""
    name = site.filename
    try:
        relative = os.path.relpath(name)
        if not relative.startswith(".."):
            name = relative
    except ValueError:
        pass
    inside = "" if site.function in ("<module>", "") else f" in {site.function}"
    return f"{name}:{site.line}{inside}"


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """Findings of each severity."""
    return {severity: sum(f.severity == severity for f in findings) for severity in SEVERITIES}


def summary(findings: Sequence[Finding], operations: int = 0) -> str:
    """One line.

    Examples
    --------
    >>> summary([], 3)
    'hipfile-sim sanitizer: clean (3 operations)'
    """
    seen = f"{operations} operation{'s' * (operations != 1)}"
    if not findings:
        return f"hipfile-sim sanitizer: clean ({seen})"
    parts = [f"{n} {severity}{'s' * (n != 1)}" for severity, n in counts(findings).items() if n]
    ids = sorted({f.id for f in findings if f.severity == next(s for s in SEVERITIES if counts(findings)[s])})
    return f"hipfile-sim sanitizer: {', '.join(parts)} ({seen}): {', '.join(ids)}"


def text(
    findings: Sequence[Finding],
    *,
    operations: int = 0,
    colour: bool = False,
    unused: Sequence[Suppression] = (),
) -> str:
    """The report for people, worst first.

    Parameters
    ----------
    findings : sequence of Finding
    operations : int
        Operations that were watched.
    colour : bool
        Use ANSI colours.
    unused : sequence of Suppression
        Suppressions that silenced nothing.
    """

    def paint(code: str, words: str) -> str:
        return f"{code}{words}{_OFF}" if colour else words

    lines = [summary(findings, operations)]
    for finding in sorted(findings, key=lambda f: SEVERITIES.index(f.severity)):
        head = paint(_COLOURS[finding.severity], finding.severity) + " " + paint(_BOLD, finding.id)
        again = f" (seen {finding.count} times)" if finding.count > 1 else ""
        lines += ["", *_wrap(f"{head}: ", finding.message + again, "  ")]
        width = max([len(p.role) for p in finding.places] + [len("missing")]) + 2
        for place in finding.places:
            bytes_ = f" {place.detail}" if place.detail else ""
            lines += _wrap(f"  {place.role:<{width}}", place.what + bytes_, " " * (width + 2))
            if place.site is not None:
                lines.append(" " * (width + 2) + paint(_DIM, f"at {place_name(place.site)}"))
        for name, thing in finding.objects.items():
            lines += _wrap(f"  {name:<{width}}", str(thing), " " * (width + 2))
        if finding.missing:
            lines += _wrap(f"  {'missing':<{width}}", finding.missing, " " * (width + 2))
        if finding.fix:
            lines += _wrap(f"  {'fix':<{width}}", finding.fix, " " * (width + 2))
    if unused:
        lines += ["", "suppressions that silenced nothing:"]
        lines += [f"  {entry.origin}: {entry}" for entry in unused]
    return "\n".join(lines) + "\n"


def _wrap(head: str, words: str, indent: str) -> list[str]:
    paragraphs = words.split("\n")
    lines = textwrap.wrap(paragraphs[0], _WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False)
    return [*(lines or [head.rstrip()]), *(indent + line for line in paragraphs[1:])]


def to_json(findings: Sequence[Finding], *, operations: int = 0) -> str:
    """The report as JSON: ``version``, ``operations``, ``counts`` and ``findings``."""
    document = {
        "version": JSON_VERSION,
        "tool": f"hipfile-sim {__version__}",
        "operations": operations,
        "counts": counts(findings),
        "findings": [_plain(finding) for finding in findings],
    }
    return json.dumps(document, indent=2) + "\n"


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "message": finding.message,
        "places": [
            {
                "role": place.role,
                "what": place.what,
                "detail": place.detail,
                "file": place.site.filename if place.site else None,
                "line": place.site.line if place.site else None,
                "function": place.site.function if place.site else None,
            }
            for place in finding.places
        ],
        "objects": {name: str(thing) for name, thing in finding.objects.items()},
        "missing": finding.missing,
        "fix": finding.fix,
        "count": finding.count,
        "time_ns": finding.time,
    }


def to_sarif(findings: Sequence[Finding], *, operations: int = 0) -> str:
    """The report as SARIF 2.1.0, which code hosts and editors show beside the source."""
    used = sorted({finding.id for finding in findings})
    rules = [
        {
            "id": id,
            "shortDescription": {"text": CHECKS[id].title},
            "fullDescription": {"text": CHECKS[id].why},
            "help": {"text": CHECKS[id].fix},
            "defaultConfiguration": {"level": CHECKS[id].severity},
        }
        for id in used
    ]
    results = [_result(finding, used.index(finding.id)) for finding in findings]
    driver = {
        "name": "hipfile-sim sanitizer",
        "version": __version__,
        "semanticVersion": __version__.replace(".dev", "-dev."),
        "rules": rules,
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"ROOT": {"uri": Path.cwd().as_uri() + "/"}},
        "properties": {"operations": operations},
        "results": results,
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: Finding, index: int) -> dict[str, Any]:
    message = " ".join(part for part in (finding.message, finding.missing, finding.fix) if part)
    places = [place for place in finding.places if place.site is not None]
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": message},
        "occurrenceCount": finding.count,
    }
    locations = [_location(place.site, f"{place.role}: {place.what}") for place in places if place.site]
    if locations:
        result["locations"] = locations[:1]
        if locations[1:]:
            result["relatedLocations"] = [{"id": n, **location} for n, location in enumerate(locations[1:], 1)]
    return result


def _location(site: Site, message: str) -> dict[str, Any]:
    path = Path(site.filename)
    artifact: dict[str, str]
    try:
        artifact = {"uri": path.resolve().relative_to(Path.cwd()).as_posix(), "uriBaseId": "ROOT"}
    except ValueError:
        artifact = {"uri": path.as_uri() if path.is_absolute() else path.as_posix()}
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(site.line, 1)}},
        "logicalLocations": [{"fullyQualifiedName": site.function, "kind": "function"}],
        "message": {"text": message},
    }


FORMATS: dict[str, Callable[..., str]] = {"text": text, "json": to_json, "sarif": to_sarif, "summary": summary}
"""Formats by name."""
