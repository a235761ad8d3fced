"""The properties of the clients of a job."""

from spark_jobs.sink import kafka_options

BARE = {"bootstrap.servers": "k:9092"}


def test_a_producers_guarantees_come_over_everything() -> None:
    config = kafka_options.producer(
        {**BARE, "linger.ms": "50", "acks": "1"}, transactional_id="t", timeout=2.5
    )

    assert config["acks"] == "all"
    assert config["partitioner"] == "murmur2_random"
    assert config["linger.ms"] == "50"
    assert config["transaction.timeout.ms"] == "2500"


def test_consumers_get_only_what_says_how_to_reach_the_broker() -> None:
    given = {**BARE, "linger.ms": "5", "sasl.password": "x"}

    assert kafka_options.client(given) == {**BARE, "sasl.password": "x"}
