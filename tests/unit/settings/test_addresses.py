"""Listeners and the addresses that clients get: ports that follow from ids, templates, server names, clashes."""

import pytest

from idemproxy.proxy.settings.addresses import (
    Advertised,
    Listener,
    clash_with,
    clashes,
    join_host_and_port,
    own_clash,
    parse_advertised,
    parse_broker_ids,
    parse_host_and_port,
    shown,
)


def listener(
    port: int = 9092, *, name: str = "clients", host: str = "127.0.0.1", ids: str = "", **more: object
) -> Listener:
    first: object = more.pop("first", port + 1)
    broker_ids = parse_broker_ids(ids) if ids else ()
    return Listener(name, host, port, first, broker_ids, **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- HOST:PORT
@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka-1.example:9092", ("kafka-1.example", 9092)),
        ("[::1]:1", ("::1", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)
def test_an_address_is_parsed_and_shown_as_it_was(text: str, address: tuple[str, int]) -> None:
    assert parse_host_and_port(text) == address
    assert join_host_and_port(*address) == text


@pytest.mark.parametrize("text", ["", ":", "host", "host:", ":9092", "h:0", "h:65536", "h:-1", "h:９", "a b:1", "h:1 "])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse_host_and_port(text)


def test_an_ipv6_address_without_brackets_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ValueError, match=r"in brackets: \[2001:db8::1\]:9092"):
        parse_host_and_port("2001:db8::1:9092")


def test_a_path_is_shown_as_it_is() -> None:
    assert shown("/run/redis.sock") == "/run/redis.sock"
    assert shown(("::1", 6379)) == "[::1]:6379"


# ---------------------------------------------------------------------- ports
def test_a_brokers_port_follows_from_its_id_alone() -> None:
    one = listener(9092)
    assert [one.port_of(broker_id) for broker_id in (0, 2, 1001)] == [9093, 9095, 10_094]
    assert listener(9092, first=30_000).port_of(7) == 30_007
    assert one.port_of(65_535) is None


@pytest.mark.promise("compared-11")
def test_listed_brokers_get_ports_in_list_order_and_others_get_none() -> None:
    one = listener(9092, ids="1001-1003,5")
    assert [one.port_of(broker_id) for broker_id in (1001, 1002, 1003, 5)] == [9093, 9094, 9095, 9096]
    assert one.port_of(0) is None
    assert one.place_of(0, "10.0.0.1") is None


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,1", "0-2,2", "-1", "2147483648", "0-1000", "1,,2", "1-2-3"])
def test_what_is_no_list_of_brokers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"wanted|range|once"):
        parse_broker_ids(text)


def test_a_thousand_brokers_may_be_listed_and_no_more() -> None:
    assert len(parse_broker_ids("0-999")) == 1000
    assert len(parse_broker_ids("0-997,2000-2001")) == 1000
    for text in ("0-1000", "0-997,2000-2002"):
        with pytest.raises(ValueError, match="at most 1000"):
            parse_broker_ids(text)


# ---------------------------------------------------------------------- templates
@pytest.mark.parametrize(
    ("template", "place"),
    [
        ("{host}:{port}", ("10.0.0.1", 9095)),
        ("broker-{id}.kafka.example:{port}", ("broker-2.kafka.example", 9095)),
        ("broker-{id+1}.example:{port+20000}", ("broker-3.example", 29_095)),
        ("node.example:{id+31000}", ("node.example", 31_002)),
        ("b{id}-{host}.example:443", ("b2-10.0.0.1.example", 443)),
        ("[2001:db8::{id}]:{port-9000}", ("2001:db8::2", 95)),
    ],
)
def test_a_template_names_a_brokers_host_and_port(template: str, place: tuple[str, int]) -> None:
    one = listener(9092, advertised=parse_advertised(template))
    assert one.place_of(2, "10.0.0.1") == place


@pytest.mark.parametrize(
    "text",
    [
        "host",
        "host:",
        "{nonsense}:{port}",
        "h:{host}",
        "h:x",
        "h:0",
        "h:70000",
        "h{id:1",
        "h}:1",
        "{port:9092",
        "h:{id*2}",
        "h:1{id-5}",
        "h:{port}{id}",
        "h:{port}0",
    ],
)
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|none of|the port is|a port is"):
        parse_advertised(text)


def test_an_ipv4_client_of_a_dual_stack_socket_gets_an_ipv4_address() -> None:
    assert listener(host="::").place_of(0, "::ffff:192.0.2.7") == ("192.0.2.7", 9093)
    assert listener(host="::").place_of(0, "2001:db8::7") == ("2001:db8::7", 9093)
    assert listener(host="::").place_of(0, "::ffff:0:7") == ("::ffff:0:7", 9093)


def test_the_default_template_is_what_it_is_written_as() -> None:
    assert parse_advertised(str(Advertised())) == Advertised()


# ---------------------------------------------------------------------- server names
def by_name(template: str = "broker-{id}.kafka.example:9092", ids: str = "") -> Listener:
    return listener(ids=ids, advertised=parse_advertised(template), routing="sni", bootstrap_name="Kafka.example")


def test_a_server_name_says_which_broker_is_meant() -> None:
    one = by_name()
    assert one.broker_of("broker-0.kafka.example") == 0
    assert one.broker_of("Broker-1001.Kafka.Example.") == 1001
    assert one.broker_of("kafka.example") is None
    assert one.port_of(7) == 9092
    assert one.place_of(7, "10.0.0.1") == ("broker-7.kafka.example", 9092)


@pytest.mark.parametrize(
    "name",
    ["", None, "other.example", "broker-.kafka.example", "broker-01.kafka.example", "broker-2147483648.kafka.example",
     "broker--1.kafka.example", "xbroker-1.kafka.example", "broker-1.kafka.example.org", "broker-1xkafka.example",
     "broker-٣.kafka.example"],
)  # fmt: skip
def test_a_name_of_no_broker_is_refused(name: str | None) -> None:
    with pytest.raises(LookupError, match="the name of no broker"):
        by_name().broker_of(name)


def test_a_name_with_a_number_added_leads_back_to_the_broker() -> None:
    one = by_name("b{id+100}.x{id}.example:9092")
    assert one.place_of(3, "") == ("b103.x3.example", 9092)
    assert one.broker_of("b103.x3.example") == 3
    with pytest.raises(LookupError):
        one.broker_of("b7.x3.example")


def test_only_listed_brokers_have_names() -> None:
    one = by_name(ids="1-2")
    assert one.broker_of("broker-2.kafka.example") == 2
    with pytest.raises(LookupError):
        one.broker_of("broker-3.kafka.example")


# ---------------------------------------------------------------------- several listeners
def test_listeners_that_are_apart_do_not_clash() -> None:
    assert clashes((listener(9092, ids="0-2"), listener(9096, name="b", ids="0-2"))) == []
    assert clashes((listener(9092), listener(19_092, name="b"))) == []
    assert clashes((listener(9092), listener(9092, name="b", host="127.0.0.2"))) == []
    assert clashes((by_name(), listener(9093, name="b", ids="0-2"))) == []


def test_listeners_that_want_the_same_port_are_reported() -> None:
    both = clashes((listener(9092, ids="0-2"), listener(9095, name="b", ids="0-2")))
    assert both == ["'clients' and 'b' both want port 9095"]
    both = clashes((listener(9092), listener(9192, name="b", host="0.0.0.0")))
    assert both == ["'clients' and 'b' both want port 9192: list the brokers of each in broker_ids"]
    assert clashes((listener(1000), listener(20_000))) == [
        "two listeners have the name 'clients': give each another `name`"
    ]
    _name, ports = clashes((listener(9092, ids="0-2"), listener(9095, ids="0-2")))
    assert ports == "the listener at 127.0.0.1:9092 and the listener at 127.0.0.1:9095 both want port 9095"


def test_unlisted_brokers_reserve_1000_ports_from_listeners_and_10_from_admin() -> None:
    one = listener(9092)
    assert clashes((one, listener(10_092, name="b", ids="0"))) != []
    assert clashes((one, listener(10_093, name="b", ids="0"))) == []
    assert clash_with(("127.0.0.1", 9102), (one,)) == "port 9102 is that of broker 9 at listener 'clients'"
    assert clash_with(("127.0.0.1", 9103), (one,)) is None
    assert clash_with(("127.0.0.1", 9103), (listener(9092, ids="0-10"),)) is not None


def test_impossible_ports_are_never_given_to_clients() -> None:
    one = listener(advertised=parse_advertised("h:{port+60000}"))
    assert own_clash(one) == "clients would get port 69093 for broker 0"
    assert one.place_of(0, "") is None
    assert own_clash(listener(advertised=parse_advertised("h:{id-1}"))) == "clients would get port -1 for broker 0"
    far = listener(advertised=parse_advertised("h:900{id}"))
    assert own_clash(far) is None
    assert far.place_of(7, "") == ("h", 9007)
    assert far.place_of(100, "") is None


def test_a_listener_whose_own_ports_do_not_fit_is_reported() -> None:
    assert own_clash(listener(9092)) is None
    assert own_clash(listener(65_000)) is None, "ids are few as a rule"
    assert own_clash(listener(65_535)) is not None
    assert (
        own_clash(listener(65_530, ids="0-9"))
        == "the brokers' ports would end at 65540, and 65535 is the last there is"
    )
    assert (
        own_clash(listener(9092, ids="0-9", first=9090)) == "port 9092 would be the bootstrap port and a broker's port"
    )
