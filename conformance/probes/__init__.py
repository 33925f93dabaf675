"""Probes of real hardware; see :mod:`hipfile_conformance.probes.__main__`."""
