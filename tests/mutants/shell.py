"""Mutants of what the shell of real sockets owes to the rules R4 and R17."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_sockets.py::"
_FENCED = "            if fence is not None and not fence():\n                self._fenced()\n                return\n"
_COUNTED = "        if self.traffic is not None:\n            self.traffic.sent_bytes += taken_bytes\n"

SHELL = (
    mutant(
        "socket_without_a_fence",
        "R4: the real socket looks at the lease before it writes",
        _SCENES + "test_no_byte_leaves_a_fenced_connection_when_the_lease_has_ended_and_the_peer_sees_a_reset",
        ("proxy.net.sockets", _FENCED + "            try:\n", "            try:\n"),
    ),
    mutant(
        "socket_looks_only_before",
        "R4: the real socket looks at the lease after the last byte too",
        _SCENES + "test_a_connection_is_reset_when_the_lease_ends_over_the_write",
        ("proxy.net.sockets", _FENCED + _COUNTED, _COUNTED),
    ),
    mutant(
        "no_reset_on_kill",
        "R4: SO_LINGER(1, 0): what was not sent dies with the process",
        _SCENES + "test_a_fenced_connection_is_reset_by_the_kernel_when_its_process_is_killed",
        (
            "proxy.net.sockets",
            "        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)  # also",
            "        # also",
        ),
    ),
    mutant(
        "no_user_timeout",
        "R4: TCP_USER_TIMEOUT 5 s",
        _SCENES + "test_bytes_that_nobody_acknowledges_end_a_connection_after_five_seconds_and_none_waits_for_others",
        (
            "proxy.net.event_loop",
            "            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)\n",
            "",
        ),
    ),
    mutant(
        "clock_that_stands_still",
        "R4: CLOCK_BOOTTIME: the monotonic clock stands still in a suspended machine",
        _SCENES + "test_the_clock_of_the_lease_goes_on_while_the_machine_sleeps",
        (
            "proxy.net.event_loop",
            "partial(time.clock_gettime, time.CLOCK_BOOTTIME)",
            "partial(time.clock_gettime, time.CLOCK_MONOTONIC)",
        ),
    ),
    mutant(
        "close_unnoticed",
        "R17: a close is watched for also on sockets that are not being read",
        _SCENES + "test_a_peer_that_hangs_up_is_noticed_also_while_nothing_is_read_from_it",
        (
            "proxy.net.sockets",
            "        interest = 0 if self._has_heard_all else select.EPOLLRDHUP if self._paused else _READ\n",
            "        interest = 0 if self._has_heard_all or self._paused else _READ\n",
        ),
    ),
)
