"""Names in which * stands for any text."""

from __future__ import annotations

import fnmatch
import itertools

import pytest

from idemproxy.codecs.convert import HeaderPolicy, HeaderRefused
from idemproxy.proxy.session.name_patterns import matching


@pytest.mark.parametrize(
    ("patterns", "fitting", "others"),
    [
        ((), (), ("", "orders", "*")),
        (("orders",), ("orders",), ("", "orders-1", "xorders", "Orders")),
        (("orders-*", "*.log"), ("orders-", "orders-1", "a\n.log", ".log"), ("orders", "xlog", "a.log ")),
        (("a*b*c",), ("abc", "a*b*c", "a--b\nbc"), ("ab", "cba")),
        (("*",), ("", "anything\nat all"), ()),
        (("a.b", "(x|y)"), ("a.b", "(x|y)"), ("axb", "x")),
        (("",), ("",), ("a",)),
    ],
)
def test_a_star_stands_for_any_text_and_all_else_for_itself(
    patterns: tuple[str, ...], fitting: tuple[str, ...], others: tuple[str, ...]
) -> None:
    pattern = matching(patterns)
    assert [name for name in (*fitting, *others) if pattern.fullmatch(name)] == list(fitting)


@pytest.mark.parametrize(
    "pattern", ["", "*", "a", "a*", "*a", "a*b", "*a*", "*a*b*", "**", "a**b", "ab*ab", "*ab*ab*b"]
)
def test_short_names_fit_as_file_names_would(pattern: str) -> None:
    for size in range(7):
        for letters in itertools.product("ab", repeat=size):
            name = "".join(letters)
            assert (matching([pattern]).fullmatch(name) is not None) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.timeout(20)
def test_a_long_name_that_nearly_fits_is_no_work() -> None:
    """Clients may choose it: half a minute, if each star tried each place."""
    assert matching(["*-log-*-v1"]).fullmatch("-log-" * 60_000) is None
    with pytest.raises(HeaderRefused):
        HeaderPolicy(["*trace*id"]).check([("trace-" * 20_000, None)])
