"""``python -m translator``: the same as the command ``interlingua``."""

import sys

from translator.cli import main

sys.exit(main())
