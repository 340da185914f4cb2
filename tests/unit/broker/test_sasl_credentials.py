"""What the proxy says to brokers to show who it is, word by word, and what it takes from them."""

import os
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from idemproxy.codecs.sasl import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, SaslError, Scram
from idemproxy.proxy import limits
from idemproxy.proxy.broker.sasl_credentials import Credentials
from idemproxy.proxy.settings.sasl import SaslClient

SECRET = "pencil"
# RFC 7677, section 3
NONCE = b"rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credentials(settings: SaslClient, random_bytes: Callable[[int], bytes] = os.urandom) -> Credentials:
    return Credentials(settings, random_bytes)


def scram() -> Scram:
    exchange = credentials(SaslClient(SCRAM_SHA_256, "user", SECRET)).begin()
    assert isinstance(exchange, Scram)
    return Scram("sha256", "user", SECRET, NONCE, exchange._salted)


def test_plain_says_name_and_password() -> None:
    exchange = credentials(SaslClient(PLAIN, "jöe", "a=b,c")).begin()
    assert exchange.first() == "\0jöe\0a=b,c".encode()
    assert exchange.answer(b"") is None


def test_scram_speaks_as_in_the_example_of_the_rfc() -> None:
    exchange = scram()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.answer(SERVER_FIRST) == CLIENT_FINAL
    assert exchange.answer(SERVER_FINAL) is None


def test_scram_accepts_extensions_after_the_known_attributes() -> None:
    exchange = scram()
    exchange.first()
    assert exchange.answer(SERVER_FIRST) is not None
    assert exchange.answer(SERVER_FINAL + b",x=1") is None
    assert scram().answer(SERVER_FIRST + b",x=1") is not None


def test_names_with_signs_of_the_grammar_are_written_in_its_way() -> None:
    exchange = credentials(SaslClient(SCRAM_SHA_512, "a=b,c", SECRET)).begin()
    assert exchange.first().startswith(b"n,,n=a=3Db=2Cc,r=")


def test_no_nonce_is_used_twice_and_each_has_18_random_bytes() -> None:
    ours = credentials(SaslClient(SCRAM_SHA_512, "user", SECRET))
    nonces = {ours.begin().first().rpartition(b"r=")[2] for _ in range(100)}
    assert len(nonces) == 100
    fixed = credentials(SaslClient(SCRAM_SHA_512, "user", SECRET), lambda count: bytes(range(count)))
    assert fixed.begin().first() == b"n,,n=user,r=" + b64encode(bytes(range(18)))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"r=other,s=W22ZaJ0S,i=4096", "nonce does not continue"),
        (b"r=" + NONCE + b",s=W22ZaJ0S,i=4096", "nonce does not continue"),
        (b"r=" + NONCE + b"x,s=W22ZaJ0S,i=4095", "4095 iterations"),
        (b"r=" + NONCE + b"x,s=W22ZaJ0S,i=1000001", "1000001 iterations"),
        (b"r=" + NONCE + b"x,s=W22ZaJ0S,i=" + b"9" * 5000, "iterations"),
        (b"r=" + NONCE + b"x,s=W22ZaJ0S,i=-4096", "iterations"),
        (b"r=" + NONCE + b"x,s=W22ZaJ0S,i=", "iterations"),
        (b"r=" + NONCE + b"x,s=,i=4096", "salt is empty"),
        (b"r=" + NONCE + b"x,s=W22Za!J0S,i=4096", "salt is no Base64"),
        (b"r=" + NONCE + b"x,i=4096,s=W22ZaJ0S", "no SCRAM"),
        (b"m=needed,r=" + NONCE + b"x,s=W22ZaJ0S,i=4096", "no SCRAM"),
        (b"e=unknown-user", "'unknown-user'"),
        (b"e=\xff\x00", "says"),
        (b"", "no SCRAM"),
        (b",,,", "no SCRAM"),
    ],
)
def test_what_a_broker_must_not_begin_with_ends_the_exchange(message: bytes, said: str) -> None:
    with pytest.raises(SaslError, match=said) as error:
        scram().answer(message)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "somebody else"),
        (b"v=", "somebody else"),
        (b"v=!", "no Base64"),
        (b"", "somebody else"),
        (b"e=invalid-proof", "'invalid-proof'"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(message: bytes, said: str) -> None:
    exchange = scram()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(SaslError, match=said):
        exchange.answer(message)


def test_the_slow_hash_is_made_once_per_salt() -> None:
    ours = credentials(SaslClient(SCRAM_SHA_512, "user", SECRET))

    def seconds() -> float:
        exchange = ours.begin()
        nonce = exchange.first().rpartition(b"r=")[2]
        began = time.perf_counter()
        assert exchange.answer(b"r=%sx,s=W22ZaJ0S,i=100000" % nonce) is not None
        return time.perf_counter() - began

    first = seconds()
    assert min(seconds() for _ in range(5)) < first / 10


def test_other_credentials_are_taken_from_the_next_exchange_on() -> None:
    ours = credentials(SaslClient(PLAIN, "a", "first"))
    before = ours.begin()
    version = ours.version
    ours.replace(SaslClient(PLAIN, "a", "first"))
    assert ours.version == version
    ours.replace(SaslClient(PLAIN, "a", "second"))
    assert ours.version > version
    assert (before.first(), ours.begin().first()) == (b"\0a\0first", b"\0a\0second")


def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one.two.three\n")
    ours = credentials(SaslClient(OAUTHBEARER, token_file=file))
    assert ours.begin().first() == b"n,,\x01auth=Bearer one.two.three\x01\x01"
    version = ours.version
    renewed = tmp_path / "renewed"
    renewed.write_text("four")
    renewed.rename(file)
    assert ours.begin().first() == b"n,,\x01auth=Bearer four\x01\x01"
    assert ours.version > version
    assert ours.begin().answer(b"") is None


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b'{"status":"invalid_token"}', "'invalid_token'"),
        (b'{"status":7}', "refused"),
        (b"[]", "refused"),
        (b"\xff" * 5000, "refused"),
    ],
)
def test_a_refused_token_is_reported_with_the_brokers_reason(tmp_path: Path, challenge: bytes, said: str) -> None:
    file = tmp_path / "token"
    file.write_text("abc")
    exchange = credentials(SaslClient(OAUTHBEARER, token_file=file)).begin()
    with pytest.raises(SaslError, match=said) as error:
        exchange.answer(challenge)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"two\x01parts", b"x" * (limits.SASL_FRAME_BYTES_MAX + 1)])
def test_a_file_without_a_token_is_named_in_the_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(SaslError, match=str(file)):
        credentials(SaslClient(OAUTHBEARER, token_file=file)).begin()
    file.unlink()
    with pytest.raises(SaslError, match=str(file)):
        credentials(SaslClient(OAUTHBEARER, token_file=file)).begin()


def test_no_secret_is_shown_where_settings_are() -> None:
    settings = SaslClient(PLAIN, "user", SECRET)
    assert SECRET not in repr(settings)
    assert credentials(settings).shown == "PLAIN as 'user'"
