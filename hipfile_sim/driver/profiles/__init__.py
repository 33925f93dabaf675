"""Releases of hipFile, one file each. Found by name; a new file is a new release."""

from __future__ import annotations

import posix  # not os or pkgutil: a fake file system in their place has no such folder
from functools import cache
from importlib import import_module

from hipfile_sim.driver.profiles.base import Profile

__all__ = ["NEWEST", "Profile", "get_profile", "list_profiles"]

NEWEST = "0.5"
"""Newest released profile: the default."""


@cache
def _modules() -> dict[str, str]:
    """Profile name -> module: ``p0_5`` is 0.5, ``p0_6_dev`` is 0.6-dev, ``cufile`` is cufile."""
    found = {}
    for file in sorted(name for folder in __path__ for name in posix.listdir(folder)):
        stem, _, suffix = file.partition(".")
        if suffix != "py" or stem in ("__init__", "base"):
            continue
        if stem[:1] == "p" and stem[1:2].isdigit():
            numbers = [part for part in stem[1:].split("_") if part.isdigit()]
            words = [part for part in stem[1:].split("_") if not part.isdigit()]
            found["-".join([".".join(numbers), *words])] = stem
        else:
            found[stem] = stem
    return found


@cache
def _load(name: str) -> Profile:
    profile = import_module(f"{__name__}.{_modules()[name]}").PROFILE
    if not isinstance(profile, Profile) or profile.name != name:
        raise TypeError(f"{_modules()[name]}.py must define PROFILE as a Profile named {name!r}, not {profile!r}")
    return profile


def _order(name: str) -> tuple[bool, list[int], bool, str]:
    release, _, word = name.partition("-")
    numbers = [int(part) for part in release.split(".") if part.isdigit()]
    return not numbers, numbers, not word, name


def list_profiles() -> tuple[str, ...]:
    """Names, oldest release first, other vendors last.

    >>> list_profiles()[:4]
    ('0.2', '0.3', '0.4', '0.5')
    """
    return tuple(sorted(_modules(), key=_order))


def get_profile(name: str | Profile) -> Profile:
    """The profile called `name`: a release (``"0.5"``), an alias (``"0.5.0"``, ``"newest"``) or a `Profile`.

    Raises
    ------
    ValueError
        Not known; the message lists what is.

    >>> get_profile("0.5.0") is get_profile("0.5") is get_profile("newest")
    True
    """
    if isinstance(name, Profile):
        return name
    if not isinstance(name, str):
        raise TypeError(f"profile must be a name or a Profile, not {type(name).__name__}: {name!r}")
    key = name.strip().lower()
    if key in ("newest", "latest", "default"):
        key = NEWEST
    if key in _modules():
        return _load(key)
    for known in list_profiles():
        if key in _load(known).aliases:
            return _load(known)
    raise ValueError(f"no profile {name!r}; known profiles: {', '.join(list_profiles())} (and 'newest' = {NEWEST})")
