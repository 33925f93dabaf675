"""How serious each finding is, and which ones a project has decided to live with."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path

from hipfile_sim.observe.observer import Site
from hipfile_sim.observe.sanitizer.findings import CHECKS, Finding

LEVELS = {"error": "error", "warn": "warning", "warning": "warning", "note": "note", "off": "off"}
"""Level names that a policy may use, and what they stand for."""

_INLINE = re.compile(r"(?:#|//)\s*hipfile:\s*ignore(?:\[([^\]]*)\])?")


@dataclass(slots=True, eq=False)
class Suppression:
    """One line of a suppression file.

    Parameters
    ----------
    pattern : str
        Of ids, with ``*`` and ``?``.
    file : str
        Pattern that the end of the file name must match; empty for every file.
    line : int
        Line number; 0 for every line.
    function : str
        Pattern of the function's name; empty for every function.
    reason : str
        The comment behind it.
    origin : str
        Where it was written.
    hits : int
        Findings that it has silenced.
    """

    pattern: str
    file: str = ""
    line: int = 0
    function: str = ""
    reason: str = ""
    origin: str = ""
    hits: int = 0

    def matches(self, finding: Finding) -> bool:
        """Whether it silences `finding`: the id fits, and so does one of the places."""
        if not fnmatchcase(finding.id, self.pattern):
            return False
        if not (self.file or self.line or self.function):
            return True
        return any(self._at(site) for site in finding.sites)

    def _at(self, site: Site) -> bool:
        if self.line and site.line != self.line:
            return False
        if self.function and not fnmatchcase(site.function, self.function):
            return False
        if not self.file:
            return True
        name = site.filename.replace("\\", "/")
        return fnmatchcase(name, self.file) or fnmatchcase(name, "*/" + self.file)

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.line else "")
        inside = f"in {self.function}" if self.function else ""
        return " ".join(part for part in (self.pattern, place, inside) if part)


def parse_suppressions(text: str, origin: str = "<text>") -> list[Suppression]:
    """Read a suppression file.

    One suppression a line: an id or a pattern of ids, then optionally ``FILE`` or ``FILE:LINE`` (a pattern that the end
    of the file name must match) and ``in FUNCTION``. ``#`` begins a comment; one behind a suppression is its reason.

    Raises
    ------
    ValueError
        A line that cannot be understood, or an id that no check has; the message names the line.

    Examples
    --------
    >>> [str(s) for s in parse_suppressions("race.* app.py:41  # benign: same bytes\\nleak.event in main\\n")]
    ['race.* app.py:41', 'leak.event in main']
    """
    found: list[Suppression] = []
    for number, line in enumerate(text.splitlines(), 1):
        body, _, reason = line.partition("#")
        words = body.split()
        if not words:
            continue
        where = f"{origin}:{number}"
        entry = Suppression(words[0], reason=reason.strip(), origin=where)
        rest = words[1:]
        if rest and rest[0] != "in":
            file, colon, digits = rest.pop(0).rpartition(":")
            if colon and digits.isdigit():
                entry.file, entry.line = file, int(digits)
            else:
                entry.file = file + colon + digits
        if rest[:1] == ["in"] and len(rest) == 2:
            entry.function = rest[1]
        elif rest:
            words_left = " ".join(rest)
            raise ValueError(
                f"{where}: cannot read {words_left!r}; a line is ID [FILE[:LINE]] [in FUNCTION] [# reason]"
            )
        _check_pattern(entry.pattern, where)
        found.append(entry)
    return found


def _check_pattern(pattern: str, where: str) -> None:
    if not any(fnmatchcase(known, pattern) for known in CHECKS):
        from difflib import get_close_matches

        near = get_close_matches(pattern, CHECKS, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"{where}: no check is called {pattern!r}{hint}")


class Policy:
    """What to do with findings.

    Parameters
    ----------
    levels : mapping or str, optional
        Pattern of ids to ``"error"``, ``"warn"``, ``"note"`` or ``"off"``; the last pattern that fits decides. As text:
        ``"race.*=error, cost.*=off"``. Where none fits, a check has its own severity.
    suppressions : iterable of Suppression
        Findings to leave out, by id and place.
    inline : bool
        Whether ``# hipfile: ignore[id]`` on one of the source lines of a finding leaves it out.

    Raises
    ------
    ValueError
        A level that does not exist, or a pattern that fits no check.

    Examples
    --------
    >>> policy = Policy("leak.*=off, cost.pageable-copy=error")
    >>> policy.level("leak.event"), policy.level("cost.pageable-copy"), policy.level("deadlock")
    ('off', 'error', 'error')
    """

    def __init__(
        self,
        levels: Mapping[str, str] | str | None = None,
        *,
        suppressions: Iterable[Suppression] = (),
        inline: bool = True,
    ) -> None:
        pairs = _parse_levels(levels) if isinstance(levels, str) else list((levels or {}).items())
        self._levels: list[tuple[str, str]] = []
        for pattern, name in pairs:
            level = LEVELS.get(name)
            if level is None:
                raise ValueError(f"level {name!r} of {pattern} does not exist: choose error, warn, note or off")
            _check_pattern(pattern, "policy")
            self._levels.append((pattern, level))
        self.suppressions: Sequence[Suppression] = tuple(suppressions)
        self.inline = inline
        self._known: dict[str, str] = {}

    @classmethod
    def load(
        cls, path: str | PathLike[str], levels: Mapping[str, str] | str | None = None, *, inline: bool = True
    ) -> Policy:
        """A policy with the suppressions of a file.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            It cannot be understood; the message names the line.
        """
        text = Path(path).read_text(encoding="utf-8")
        return cls(levels, suppressions=parse_suppressions(text, str(path)), inline=inline)

    def level(self, id: str) -> str:
        """``"error"``, ``"warning"``, ``"note"`` or ``"off"``."""
        known = self._known.get(id)
        if known is None:
            known = CHECKS[id].severity if id in CHECKS else "note"
            for pattern, level in self._levels:
                if fnmatchcase(id, pattern):
                    known = level
            self._known[id] = known
        return known

    def admits(self, finding: Finding) -> bool:
        """Whether `finding` is to be reported. Counts the suppressions that silence it."""
        for suppression in self.suppressions:
            if suppression.matches(finding):
                suppression.hits += 1
                return False
        return not (self.inline and any(ignored_inline(site, finding.id) for site in finding.sites))

    @property
    def unused(self) -> tuple[Suppression, ...]:
        """Suppressions that have silenced nothing: candidates for deletion."""
        return tuple(entry for entry in self.suppressions if not entry.hits)


def _parse_levels(text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for part in text.split(","):
        if part.strip():
            pattern, equals, level = part.partition("=")
            if not equals:
                raise ValueError(f"cannot read {part.strip()!r} of the policy: write ID=LEVEL, as in race.*=error")
            pairs.append((pattern.strip(), level.strip().lower()))
    return pairs


def ignored_inline(site: Site, id: str) -> bool:
    """Whether the source line of `site` says ``# hipfile: ignore`` or ``# hipfile: ignore[id, pattern]``."""
    match = _INLINE.search(linecache.getline(site.filename, site.line))
    if match is None:
        return False
    if match[1] is None:
        return True
    return any(fnmatchcase(id, pattern.strip()) for pattern in match[1].split(","))
