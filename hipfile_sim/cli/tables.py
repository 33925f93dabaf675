"""Plain tables: drawn by rich in a terminal, tab-free and uncut when the output goes to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headers; the last column takes the room that is left."""
    if sys.stdout.isatty():
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for index, header in enumerate(headers):
            drawn.add_column(header, overflow="fold", no_wrap=index == 0)
        for row in rows:
            drawn.add_row(*row)
        Console(markup=False, highlight=False).print(drawn)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        click.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
