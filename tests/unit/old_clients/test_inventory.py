"""The inventory of old clients: what it counts, what it forgets, and when a line is due."""

from __future__ import annotations

from idemproxy.proxy import limits
from idemproxy.proxy.old_clients.inventory import OldClient, OldClients
from idemproxy.proxy.versions import ApiKey

FETCH_2, PRODUCE_2 = (int(ApiKey.FETCH), 2), (int(ApiKey.PRODUCE), 2)
SARAMA = OldClient("sarama", "10.0.0.1", "sarama 1.40.0", "User:app")
DAY = limits.OLD_CLIENT_LINE_SECONDS


def test_requests_are_counted_by_client_api_and_version() -> None:
    clients = OldClients()
    for now, version in ((100.0, FETCH_2), (101.0, FETCH_2), (102.0, PRODUCE_2)):
        clients.note(SARAMA, version, now, is_refused=version == PRODUCE_2)
    elsewhere = SARAMA._replace(address="10.0.0.2")
    clients.note(elsewhere, FETCH_2, 103.0, is_refused=False)
    newest, oldest = clients.newest_first()
    assert (newest.client, newest.requests, newest.refused) == (elsewhere, {FETCH_2: 1}, 0)
    assert (oldest.client, oldest.requests, oldest.refused) == (SARAMA, {FETCH_2: 2, PRODUCE_2: 1}, 1)
    assert (oldest.first_at, oldest.last_at) == (100.0, 102.0)
    assert clients.requests == {FETCH_2: 3, PRODUCE_2: 1}


def test_what_was_read_does_not_change_afterwards() -> None:
    clients = OldClients()
    clients.note(SARAMA, FETCH_2, 1.0, is_refused=False)
    (before,) = clients.newest_first()
    clients.note(SARAMA, FETCH_2, 2.0, is_refused=False)
    assert (before.requests, before.last_at) == ({FETCH_2: 1}, 1.0)


def test_a_client_that_continues_stays_beside_ever_new_client_ids() -> None:
    clients = OldClients()
    strangers = 3 * limits.OLD_CLIENTS_MAX
    for number in range(strangers):
        clients.note(OldClient(f"stranger-{number}", "10.0.0.9"), FETCH_2, float(number), is_refused=False)
        if number % (limits.OLD_CLIENTS_MAX // 2) == 0:
            clients.note(SARAMA, PRODUCE_2, float(number), is_refused=False)
    found = clients.newest_first()
    assert len(found) == limits.OLD_CLIENTS_MAX
    (witness,) = [one for one in found if one.client == SARAMA]
    assert witness.requests == {PRODUCE_2: 6}
    assert clients.forgotten == strangers + 1 - limits.OLD_CLIENTS_MAX
    assert found[0].client.name == f"stranger-{strangers - 1}"
    assert clients.requests == {FETCH_2: strangers, PRODUCE_2: 6}, "the metric forgets nothing"


def test_texts_of_any_length_are_cut_and_then_compared() -> None:
    clients = OldClients()
    for more in ("x", "y"):
        long = OldClient(*(letter * limits.OLD_CLIENT_TEXT_MAX + more for letter in "abcd"))
        clients.note(long, FETCH_2, 1.0, is_refused=False)
    (one,) = clients.newest_first()
    assert {len(text) for text in one.client} == {limits.OLD_CLIENT_TEXT_MAX}
    assert one.requests == {FETCH_2: 2}


def test_an_operator_is_told_of_a_client_once_a_day() -> None:
    clients = OldClients()
    times = (0.0, 1.0, DAY - 1, DAY, DAY + 1, 2 * DAY)
    told = [clients.note(SARAMA, FETCH_2, now, is_refused=False) for now in times]
    assert told == [True, False, False, True, False, True]
    assert clients.note(SARAMA._replace(name="other"), FETCH_2, DAY + 1, is_refused=False)


def test_the_first_refusal_is_told_though_the_client_was_told_of() -> None:
    clients = OldClients()
    told = [
        clients.note(SARAMA, FETCH_2, now, is_refused=refused) for now, refused in ((0, False), (1, True), (2, True))
    ]
    assert told == [True, True, False]
    assert not clients.note(SARAMA, PRODUCE_2, 3.0, is_refused=False), "one that is refused and then served"
