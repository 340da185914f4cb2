"""The registration of a rebuild in Redis, renewed like a proxy's lease as long as the run lasts (rule R1)."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType

from ...state.lease import RENEW_SECONDS
from ...state.redis_blocking import InspectionError
from ...state.redis_bulk import Access, BulkStore, Registration


class Registered:
    """A registration that is renewed from a thread until the block ends, over a connection of its own."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._stop = threading.Event()
        self._problem: InspectionError | None = None

    def __enter__(self) -> Registration:
        with BulkStore(self._access) as store:
            if not store.has_data_number():  # a proxy that lives would replace ours, where that is lower than its own
                self._stop.wait(2 * RENEW_SECONDS)
            self.registration = store.register()
        self._thread = threading.Thread(target=self._renew, name="idemproxy-registration", daemon=True)
        self._thread.start()
        return self.registration

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._problem is None:
            with suppress(InspectionError), BulkStore(self._access) as store:  # else it ends by itself
                store.end(self.registration)

    def _renew(self) -> None:
        try:
            with BulkStore(self._access) as store:
                while not self._stop.wait(RENEW_SECONDS):
                    store.renew(self.registration)
        except InspectionError as problem:
            self._problem = problem  # every swap is refused from now on, and says so
