"""``python -m idemproxy`` is the command ``idemproxy``."""

from .proxy.main import main

raise SystemExit(main())
