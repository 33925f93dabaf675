"""``python -m hipfile_sim.cli`` is ``hipfile-sim``."""

import sys

from hipfile_sim.cli import main

sys.exit(main())
