"""The library that the programs around a bare ``librdkafka`` load, and the structures of its interface, which all
releases from 0.9 on share."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p, create_string_buffer

LIBRARY_VARIABLE = "LIBRDKAFKA"
"""Has the path of the library."""
NO_ERROR = 0
_CONF_OK = 0
_TEXT_BYTES = 512


class Message(Structure):
    """``rd_kafka_message_t``"""

    _fields_ = [
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("payload_bytes", c_size_t),
        ("key", c_void_p),
        ("key_bytes", c_size_t),
        ("offset", c_int64),
        ("opaque", c_void_p),
    ]


class Partition(Structure):
    """``rd_kafka_topic_partition_t``"""

    _fields_ = [
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_bytes", c_size_t),
        ("opaque", c_void_p),
        ("error", c_int),
        ("private", c_void_p),
    ]


class Partitions(Structure):
    """``rd_kafka_topic_partition_list_t``"""

    _fields_ = [("count", c_int), ("room", c_int), ("elements", POINTER(Partition))]


def loaded() -> ctypes.CDLL:
    """Return the library."""
    library = ctypes.CDLL(os.environ[LIBRARY_VARIABLE])
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_conf_new", "rd_kafka_topic_new"):
        getattr(library, name).restype = c_void_p
    library.rd_kafka_err2str.restype = c_char_p
    library.rd_kafka_consumer_poll.restype = POINTER(Message)
    library.rd_kafka_topic_partition_list_new.restype = POINTER(Partitions)
    library.rd_kafka_topic_partition_list_add.restype = POINTER(Partition)
    return library


def configured(library: ctypes.CDLL, settings: Mapping[str, object], of_topic: Mapping[str, object]) -> c_void_p:
    """Return a configuration. ``of_topic``: those of its topics, which 0.9 does not take among the others."""
    text = create_string_buffer(_TEXT_BYTES)
    configuration = c_void_p(library.rd_kafka_conf_new())
    topics = c_void_p(library.rd_kafka_topic_conf_new())
    for handle, setter, chosen in (
        (configuration, library.rd_kafka_conf_set, settings),
        (topics, library.rd_kafka_topic_conf_set, of_topic),
    ):
        for name, content in chosen.items():
            done = setter(handle, name.encode(), str(content).encode(), text, _TEXT_BYTES)
            assert done == _CONF_OK, text.value
    library.rd_kafka_conf_set_default_topic_conf(configuration, topics)
    return configuration


def made(library: ctypes.CDLL, kind: int, configuration: c_void_p) -> c_void_p:
    """Return a producer or a consumer."""
    text = create_string_buffer(_TEXT_BYTES)
    handle = c_void_p(library.rd_kafka_new(kind, configuration, text, _TEXT_BYTES))
    assert handle, text.value
    return handle
