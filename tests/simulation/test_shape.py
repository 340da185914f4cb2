"""What seeds make of their worlds: most have the proxy as it is shipped, and a seed's world as it was drawn stays."""

from __future__ import annotations

from simulation.shape import Shape, draw_shape

from idemproxy.proxy.settings.load import load

WORLDS = 1000
SHIPPED_WORLDS_MIN = 700


def is_shipped(shape: Shape) -> bool:
    """Have all proxies the settings of ``idemproxy run`` without any, and no collector of traces?"""
    shipped, world = load(None, {"upstream": "broker:9092"}), shape.settings
    (listener,) = shipped.listeners
    return (
        (world.owned_share, world.traced_share) == (shipped.append_reservations, 0)
        and (world.has_names, world.is_conditional) == (bool(shipped.producer_names), bool(shipped.conditional_topics))
        and world.has_principals == (listener.tls is not None)
        and world.has_pass_through == (listener.authentication != "none")
        and (world.expiry_seconds, world.name_expiry_seconds, world.horizon_seconds) == (None, None, None)
    )


def test_at_least_seven_of_ten_worlds_have_the_shipped_settings() -> None:
    shapes = [draw_shape(seed) for seed in range(1, WORLDS + 1)]
    assert sum(map(is_shipped, shapes)) >= SHIPPED_WORLDS_MIN
    assert not all(map(is_shipped, shapes)), "the others draw every setting"


def test_a_world_without_the_shipped_settings_is_as_it_was_drawn() -> None:
    for seed in range(1, WORLDS + 1):
        shape = draw_shape(seed)
        assert is_shipped(shape) or shape == draw_shape(seed, as_drawn=True)
