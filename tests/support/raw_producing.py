"""Produce records that Python's client cannot write: header names that are not UTF-8."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka

_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _TIMESTAMP, _HEADERS, _END = 1, 3, 4, 5, 7, 8, 10, 0
_COPY = 2


def _library() -> ctypes.CDLL:
    beside = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    library = ctypes.CDLL(str(next(beside.glob("librdkafka-*.so*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def produce_raw(
    bootstrap: str,
    topic: str,
    key: bytes,
    value: bytes,
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    timestamp: int = 0,
) -> None:
    """Produce a record to partition 0 with librdkafka itself, and wait until it is there."""
    library = _library()
    conf, error = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    named, given = b"bootstrap.servers", bootstrap.encode()
    assert library.rd_kafka_conf_set(conf, named, given, error, ctypes.c_size_t(512)) == 0
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, error, ctypes.c_size_t(512)))
    assert client.value, error.value
    made = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
    for name, data in headers:
        sizes = ctypes.c_ssize_t(len(name)), ctypes.c_ssize_t(len(data))
        assert library.rd_kafka_header_add(made, name, sizes[0], data, sizes[1]) == 0
    refused = library.rd_kafka_producev(
        client,
        *(ctypes.c_int(_TOPIC), ctypes.c_char_p(topic.encode())),
        *(ctypes.c_int(_PARTITION), ctypes.c_int32(0)),
        *(ctypes.c_int(_VALUE), ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
        *(ctypes.c_int(_KEY), ctypes.c_char_p(key), ctypes.c_size_t(len(key))),
        *(ctypes.c_int(_FLAGS), ctypes.c_int(_COPY)),
        *(ctypes.c_int(_TIMESTAMP), ctypes.c_int64(timestamp)),
        *(ctypes.c_int(_HEADERS), made),
        ctypes.c_int(_END),
    )
    assert refused == 0
    assert library.rd_kafka_flush(client, ctypes.c_int(30_000)) == 0
    library.rd_kafka_destroy(client)
