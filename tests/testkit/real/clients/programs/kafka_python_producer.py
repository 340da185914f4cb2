"""Numbered records by kafka-python, 3.x or 1.4 (whichever is on the path). Every error it gives its user is counted."""

from __future__ import annotations

import time
from functools import partial

from .kafka_python import load, python_settings
from .program import Told, arguments

_ANSWER_SECONDS_MAX = 300


def main() -> None:
    """Send, wait for all answers, say what became of them."""
    kafka, given = load(), arguments()
    settings = python_settings(given["settings"])
    told = Told(given["partitions"], given["told_file"], given["pace"])
    compression = None if given["compression"] == "none" else given["compression"]
    producer = kafka.KafkaProducer(bootstrap_servers=given["bootstrap"], compression_type=compression, **settings)

    headers = {"headers": [(name, b"\1") for name in given["headers"]]} if given["headers"] else {}

    def delivered(number: int, metadata: object) -> None:
        told.acknowledged(metadata.partition, number, metadata.offset)  # type: ignore[attr-defined]

    for partition, number, value in told.records(given["name"], given["records"]):
        answer = producer.send(given["topic"], value, partition=partition, **headers)
        answer.add_callback(partial(delivered, number))
        answer.add_errback(told.failed)
        time.sleep(told.ahead_seconds)
    producer.flush(timeout=_ANSWER_SECONDS_MAX)
    producer.close()
    told.finish(version=kafka.__version__)


if __name__ == "__main__":
    main()
