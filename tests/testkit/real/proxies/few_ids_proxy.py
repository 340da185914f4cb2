"""The shipped proxy with few producer ids for old clients. A program, with the arguments of ``idemproxy``."""

from __future__ import annotations

import sys

from idemproxy.proxy import limits

IDS, IDS_PER_IP = 4, 2

if __name__ == "__main__":
    few = {"OLD_PRODUCER_IDS_MAX": IDS, "OLD_PRODUCER_IDS_PER_IP_MAX": IDS_PER_IP}
    for name, number in few.items():
        assert hasattr(limits, name)
        setattr(limits, name, number)
    from idemproxy.proxy.main import main  # reads them

    sys.exit(main())
