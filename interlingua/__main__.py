"""``python -m interlingua``: the same as the command ``interlingua``."""

import sys

from interlingua.translator.cli import main

sys.exit(main())
