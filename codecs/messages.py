"""The only door to the protocol library (``kafka.protocol``): bodies of every API but the produce path, all versions.

Bodies only; headers are in ``headers.py``. What is wrong with foreign bytes becomes a WireError; what is wrong with
fields that we want to encode is our bug and stays an assertion or the library's own error.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, Final

from .packages import without_init

# The library reads its schemas at import in a way that Python 3.11 calls deprecated; its users need no warning.
with warnings.catch_warnings(), without_init("kafka"):
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    # Importing these registers their messages.
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl  # noqa: F401
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.data_container import DataContainer

from .body_check import Check, compile_check
from .error_codes import ErrorCode
from .errors import LimitExceeded, Malformed, UnsupportedVersion
from .headers import API_VERSIONS
from .primitives import Buffer

REQUEST_BYTES_MAX: Final = 16 << 20
"""A request body that is decoded, in bytes. The largest that clients send without records are assignments of groups."""

Message = Any
"""A decoded message, or a part of one: fields are attributes, by the library's names (``partition_index``)."""


def _message_classes() -> dict[tuple[int, str], Any]:
    found: dict[tuple[int, str], Any] = {}
    waiting = list(ApiMessage.__subclasses__())
    while waiting:
        message_class = waiting.pop()
        # The library makes subclasses for single versions while it is used; they are left out.
        if message_class._class_version is None:
            found[message_class.API_KEY, message_class.type] = message_class
    return found


LIBRARY_CLASSES: Final = _message_classes()
"""(API key, "request" or "response") to the library's class: for this file, and for tests that compare with it."""


def served_versions(api_key: int) -> tuple[int, int] | None:
    """Return the lowest and highest version of an API that can be decoded and encoded; None for an unknown API."""
    request = LIBRARY_CLASSES.get((api_key, "request"))
    response = LIBRARY_CLASSES.get((api_key, "response"))
    if request is None or response is None:
        return None
    return 0, min(request.max_version, response.max_version)


def decode_request(api_key: int, api_version: int, body: Buffer) -> Message:
    """Return the request. Fields that the version does not have read as their defaults.

    Raises UnsupportedVersion, LimitExceeded, Truncated, Malformed (also for bytes after the end).
    """
    if len(body) > REQUEST_BYTES_MAX:
        raise LimitExceeded(f"request of API {api_key}: {len(body)} bytes, the limit is {REQUEST_BYTES_MAX} bytes")
    return _decode(api_key, "request", api_version, body)


def decode_response(api_key: int, api_version: int, body: Buffer) -> Message:
    """Return the response; raises like ``decode_request``, without a limit on its bytes.

    An ApiVersions response that says UNSUPPORTED_VERSION has the layout of version 0, whatever was asked (KIP-511).
    """
    if api_key == API_VERSIONS and int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION:
        api_version = 0
    return _decode(api_key, "response", api_version, body)


def encode_request(api_key: int, api_version: int, /, **fields: Any) -> bytes:
    """Return the body of a request.

    ``fields`` by the library's names. Nested structures are dicts, decoded messages' parts (of any version) or objects
    with these attributes, in lists where the schema has an array; a tuple is taken by position. What is missing gets
    the schema's default; what the version does not have is left out.
    """
    return _encode(api_key, "request", api_version, fields)


def encode_response(api_key: int, api_version: int, /, **fields: Any) -> bytes:
    """Return the body of a response; ``fields`` like those of ``encode_request``."""
    return _encode(api_key, "response", api_version, fields)


def fields_of(message: Message) -> dict[str, Any]:
    """Return the fields that the message's own version has, by name, nested parts as they are: for ``encode_*``."""
    version = message.version
    return {name: getattr(message, name) for name, field in message.fields.items() if field.for_version_q(version)}


def _class_of(api_key: int, kind: str, api_version: int) -> Any:
    message_class = LIBRARY_CLASSES.get((api_key, kind))
    if message_class is None or not 0 <= api_version <= message_class.max_version:
        raise UnsupportedVersion(api_key, api_version)
    return message_class


@cache
def _check_of(api_key: int, kind: str, api_version: int) -> Check:
    message_class = _class_of(api_key, kind, api_version)
    # Old brokers write null strings where newer schemas have none; a client is held to the schema.
    return compile_check(
        message_class._struct,
        api_version,
        flexible=message_class.flexible_version_q(api_version),
        strict_nulls=kind == "request",
    )


def _decode(api_key: int, kind: str, api_version: int, body: Buffer) -> Message:
    message_class = _class_of(api_key, kind, api_version)
    view = memoryview(body)
    size = _check_of(api_key, kind, api_version)(view)
    if size != len(view):
        raise Malformed(f"{message_class.name}: {len(view) - size} bytes after its end")
    flexible = message_class.flexible_version_q(api_version)
    decode = message_class._struct.compiled_decode_from(
        api_version, compact=flexible, tagged=flexible, data_class=message_class
    )
    try:
        message, end = decode(view, 0)
    except Exception as exc:  # the library raises all kinds of exceptions
        raise Malformed(f"{message_class.name} v{api_version}: {type(exc).__name__}: {exc}") from None
    if end != size:
        raise Malformed(f"{message_class.name} v{api_version}: read to {end} of {size} bytes")
    return message


def _encode(api_key: int, kind: str, api_version: int, fields: dict[str, Any]) -> bytes:
    message_class = LIBRARY_CLASSES[api_key, kind]
    assert 0 <= api_version <= message_class.max_version, (message_class.name, api_version)
    schema = message_class._struct
    message = message_class(version=api_version, **_build_fields(schema, api_version, fields))
    return bytes(message.encode(version=api_version))


def _build_fields(schema: Any, api_version: int, fields: dict[str, Any]) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for name, value in fields.items():
        field = schema.fields.get(name)
        assert field is not None, f"{schema._name} has no field {name}, but {', '.join(schema.fields)}"
        if value is not None and field.is_struct_array():
            value = [_build(field, api_version, item) for item in value]
        elif value is not None and field.is_struct():
            value = _build(field, api_version, value)
        built[name] = value
    return built


def _build(field: Any, api_version: int, item: Any) -> Any:
    """Return something with attributes, as the encoder wants it; only dicts have to be changed."""
    if isinstance(item, dict):
        return field.data_class(version=api_version, **_build_fields(field, api_version, item))
    assert not isinstance(item, DataContainer) or isinstance(item, field.data_class), (type(item), field)
    return item
