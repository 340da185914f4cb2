"""What the fields of the configuration may contain: types for addresses, files, secrets and lists, and the base of its
sections. A check raises ValueError with a sentence, which never has a secret in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    WithJsonSchema,
)

from ...state.redis_facts import parse_redis_url
from ...state.store import is_cluster_name
from .addresses import parse_advertised, parse_broker_ids, parse_host_and_port

SECONDS_MAX = 10 * 366 * 24 * 3600
BYTES_MAX = 2**31 - 1
_MASK = "**********"


def _checked(check: Any) -> AfterValidator:
    def look(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            if "@" in text:  # a URL with a password, pasted where an address belongs
                raise ValueError(str(error).replace(repr(text), "a text with an @")) from None
            raise
        return text

    return AfterValidator(look)


def _commas(value: object) -> object:
    """Split a text: the environment and the command line give lists as one text."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def from_text(value: object) -> object:
    """Parse a text as YAML (or JSON), in which the environment gives lists and sections."""
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except (yaml.YAMLError, RecursionError):
        return value


def _readable(path: Path) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def _text(path: Path) -> Path:
    try:
        if not path.is_file():  # what comes out of a pipe can be read only once
            return _readable(path)
        path.read_text()
        return path
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def _without_password(url: str) -> str:
    """Return the URL without what is between the first colon after // and the last @."""
    return re.sub(r"(//[^:@/]*:).*@", rf"\1{_MASK}@", url, flags=re.DOTALL)


def _redis_url(url: str) -> None:
    try:
        urlsplit(url)
    except ValueError:  # its message repeats a part of the text, which may be a part of a password
        raise ValueError("this is no URL") from None
    parse_redis_url(url)


def _cluster_name(name: str) -> None:
    if not is_cluster_name(name):
        raise ValueError("expected letters, digits, dots, underscores and hyphens, at most 64")


HostAndPort = Annotated[str, _checked(parse_host_and_port)]
ReadableFile = Annotated[Path, AfterValidator(_readable)]
SecretFile = Annotated[Path, AfterValidator(_text)]
RedisUrl = Annotated[str, _checked(_redis_url), PlainSerializer(_without_password)]
BrokerIds = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    _checked(parse_broker_ids),
    WithJsonSchema({"type": ["string", "integer"]}),
]
_Value = TypeVar("_Value")
TextList = Annotated[list[_Value], BeforeValidator(_commas)]
ClusterName = Annotated[str, _checked(_cluster_name)]
AdvertisedTemplate = Annotated[str, _checked(parse_advertised)]
Seconds = Annotated[int, Field(ge=1, le=SECONDS_MAX)]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True, validate_default=True
    )


def secret_of(value: SecretStr | None, file: Path | None) -> str | None:
    """Return a secret that is given as itself or in a file; the end of the line is not part of it."""
    if value is not None:
        return value.get_secret_value()
    return file.read_text().rstrip("\r\n") if file is not None else None
