"""The program of a worker: takes its order from standard input, and serves."""

from __future__ import annotations

import pickle
import sys

from .run import serve
from .worker import Order

if __name__ == "__main__":
    path, order = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    assert isinstance(order, Order)
    sys.exit(serve(order.settings, order.load, order.place))
