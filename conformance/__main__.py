"""``hipfile-conformance`` and ``python -m hipfile_conformance``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Entry point; returns the exit code."""
    try:
        import hypothesis  # noqa: F401
        import jinja2  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        print(
            f"hipfile-conformance: the package {error.name!r} is not installed. "
            "Install the extra: pip install 'hipfile-sim[conformance]'",
            file=sys.stderr,
        )
        return 2
    from hipfile_conformance.cli import main as run

    run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
