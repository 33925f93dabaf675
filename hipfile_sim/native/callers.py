"""The place in a C program that made a call, for traces and reports."""

from __future__ import annotations

import ctypes
import os

from hipfile_sim.observe.observer import Site

__all__ = ["CallerSites"]

_MOST = 4096


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("fname", ctypes.c_char_p),
        ("fbase", ctypes.c_void_p),
        ("sname", ctypes.c_char_p),
        ("saddr", ctypes.c_void_p),
    )


class CallerSites:
    """Names return addresses: the object file and the offset in it, which ``addr2line`` turns into a line.

    Parameters
    ----------
    library : str
        Path of the library that knows the address of the call under way.
    """

    def __init__(self, library: str) -> None:
        self._caller = ctypes.CDLL(library).hipfile_sim_caller
        self._caller.restype = ctypes.c_void_p
        self._dladdr = ctypes.CDLL(None).dladdr
        self._dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_DlInfo))
        self._known: dict[int, Site] = {}

    def site(self) -> Site | None:
        """The place of the call that this thread is in, or None outside of one."""
        address = self._caller()
        if not address:
            return None
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[address] = self._name(address)
        return known

    def _name(self, address: int) -> Site:
        info = _DlInfo()
        # The return address may be the first byte after a function: ask for the call itself, one byte before.
        if not self._dladdr(address - 1, ctypes.byref(info)) or info.fname is None:
            return Site(f"{address:#x}", 0, "")
        path = os.fsdecode(info.fname)
        function = info.sname.decode(errors="replace") if info.sname else ""
        return Site(f"{path}+{address - 1 - (info.fbase or 0):#x}", 0, function)
