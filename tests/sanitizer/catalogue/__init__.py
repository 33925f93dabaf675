"""Small programs, wrong and right twins: each wrong one has exactly its report, each right one none."""

from __future__ import annotations

from catalogue.registry import PROGRAMS, Program, load

__all__ = ["PROGRAMS", "Program", "load"]
