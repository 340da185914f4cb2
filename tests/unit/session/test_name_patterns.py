"""Names in which * stands for any text."""

from __future__ import annotations

import pytest

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
