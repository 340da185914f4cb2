"""``idemproxy`` as shipped, but what it appends has the clients' own producer ids."""

import sys

from idemproxy.proxy import main
from idemproxy.proxy.broker.mode import Mode
from idemproxy.proxy.broker.served import Idempotence


def appending_with_ids(*_said: object) -> Mode:
    """Make the mode in the place of what is configured."""
    return Mode(Idempotence.PROXY, appends_with_ids=True)


if __name__ == "__main__":
    Mode.of_setting = staticmethod(appending_with_ids)  # type: ignore[assignment]
    sys.exit(main.main())
