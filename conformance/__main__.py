"""``python -m hipfile_conformance``."""

from hipfile_conformance.cli import main

if __name__ == "__main__":
    main()
