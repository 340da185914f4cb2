"""One name in Redis, one cluster: what a proxy finds there under its name, and when it asks again."""

from collections.abc import Callable

from idemproxy.proxy.broker.cluster_id import ClusterName
from idemproxy.state.store import cluster_key
from testkit.stage.store import StoreScene

KEY = cluster_key("c")


class Asked:
    """A proxy's question to a store, and what came of it."""

    def __init__(self, scene: StoreScene) -> None:
        self.scene = scene
        self.ours = 0
        self.said: list[str] = []
        self.name = ClusterName(scene.host, scene.store, "c", is_ours=self._is_ours, is_anothers=self.said.append)

    def _is_ours(self) -> None:
        self.ours += 1

    def is_certain(self, cluster_id: str | None) -> bool:
        """What it is told now."""
        answers: list[bool] = []
        self.scene.host.post(lambda: answers.append(self.name.is_certain(cluster_id)))
        self.scene.until(lambda: bool(answers))
        return answers[0]

    def until(self, done: Callable[[], bool]) -> None:
        """Let time pass."""
        self.scene.until(done)


def test_the_first_proxy_writes_whose_the_state_is_and_the_next_one_finds_it() -> None:
    scene = StoreScene().ready()
    for _ in range(2):
        asked = Asked(scene)
        assert not asked.is_certain("ours")
        asked.until(lambda asked=asked: asked.ours == 1)  # type: ignore[misc]
        assert asked.is_certain("ours")
        assert (asked.ours, asked.said) == (1, [])
        assert scene.redis.get(KEY) == b"ours"


def test_brokers_that_tell_another_id_get_a_sentence_and_never_certainty() -> None:
    scene = StoreScene().ready()
    scene.redis.put(KEY, b"theirs")
    asked = Asked(scene)
    assert not asked.is_certain("ours")
    asked.until(lambda: bool(asked.said))
    assert "'c'" in asked.said[0]
    assert "theirs" in asked.said[0]
    assert "ours" in asked.said[0]
    assert not asked.is_certain("ours")
    assert asked.ours == 0
    assert scene.redis.get(KEY) == b"theirs"


def test_brokers_that_tell_no_id_are_believed_and_write_none() -> None:
    scene = StoreScene().ready()
    assert Asked(scene).is_certain(None)
    assert scene.redis.get(KEY) is None


def test_while_the_store_is_away_it_is_asked_again_and_again_by_one() -> None:
    scene = StoreScene(renews=True).ready()
    asked = Asked(scene)
    scene.redis.restart(down_seconds=10)
    scene.until(lambda: scene.store.generation is None)
    assert not asked.is_certain("ours")
    assert not asked.is_certain("ours")
    scene.network.run(5, lambda: False)
    assert asked.ours == 0
    asked.until(lambda: asked.ours == 1)
    scene.network.run(5, lambda: False)
    assert asked.ours == 1


def test_after_the_store_was_away_it_is_asked_anew_and_an_answer_of_before_is_none() -> None:
    scene = StoreScene().ready()
    asked = Asked(scene)
    asked.is_certain("ours")
    asked.until(lambda: asked.ours == 1)
    scene.redis.flush()
    asked.name.forget()
    assert not asked.is_certain("ours")
    asked.name.forget()
    assert not asked.is_certain("ours")
    asked.until(lambda: asked.ours == 2)
    scene.network.run(5, lambda: False)
    assert asked.ours == 2
    assert scene.redis.get(KEY) == b"ours"
