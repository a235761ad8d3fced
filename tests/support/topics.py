"""Make, alter and delete topics, and read metrics."""

import re

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from tests.support.relaying import (
    RelayProcess,
)
from tests.support.waiting import patient, until


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(
        name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()}
    )
    admin.create_topics([wanted])[name].result(patient(30))


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(patient(30))


def alter_topic(bootstrap: str, name: str, **config: str) -> None:
    entries = [
        ConfigEntry(k.replace("_", "."), v, incremental_operation=AlterConfigOpType.SET)
        for k, v in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(patient(30))


def metric(relay: RelayProcess, name: str, labels: str = "") -> float:
    """Return one number of /metrics; 0 if it is not there yet."""
    pattern = rf"^{name}{{[^}}]*{re.escape(labels)}[^}}]*}} (\S+)$"
    found = re.search(pattern, relay.get("/metrics").body, re.MULTILINE)
    return float(found[1]) if found else 0.0


def remake_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    """Delete a topic, and make it anew once the cluster has forgotten it."""
    delete_topic(bootstrap, name)

    def made() -> bool:
        try:
            make_topic(bootstrap, name, partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    until(made, within=20, what=f"topic {name} is made anew")
