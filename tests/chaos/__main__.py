"""``python -m chaos`` is ``make chaos``: see dev/chaos.md."""

from __future__ import annotations

import sys

from .command import main

sys.exit(main())
