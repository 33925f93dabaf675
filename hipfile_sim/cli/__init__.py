"""The command line. The entry point imports nothing but the standard library until a command runs."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Entry point of ``hipfile-sim``; returns the exit code."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        print(
            f"hipfile-sim: the command line needs the package {error.name!r}, which is not installed. "
            "Install the extra: pip install 'hipfile-sim[cli]'",
            file=sys.stderr,
        )
        return 2
    from hipfile_sim.cli.app import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
