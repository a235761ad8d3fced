"""The settings of `dovecote contracts`: the watch file, and a table of its own."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from dovecote.contracts.rules.change import Compatibility
from dovecote.observe.sources import PREFIX, WatchSettings
from dovecote.process.settings.loading import load
from dovecote.process.settings.models import Settings
from dovecote.process.settings.values import KafkaProperties


class ContractsTable(Settings):
    """The table `[contracts]`."""

    modules: tuple[str, ...] = ()
    """Modules with the event classes, such as `shop.events`."""

    file: Path = Path("contracts.json")
    """The committed file; a relative path begins where the command runs."""

    compatibility: Compatibility = Compatibility.BACKWARD
    """The readers that no change may break: `backward`, `forward`, `full` or `none`."""

    topics: dict[str, Compatibility] = Field(default_factory=dict)
    """The same for single topics."""

    registry: KafkaProperties = Field(default_factory=dict)
    """Settings of confluent-kafka's schema registry client, such as its `url`."""


class ContractsSettings(WatchSettings):
    """The file that `dovecote contracts` reads."""

    contracts: ContractsTable = ContractsTable()
    """The sides of the comparison, and how strict it is."""


def read_table(file: Path | None, environ: Mapping[str, str] = os.environ) -> ContractsTable:
    """
    Return the table of a file, or the defaults without a file.

    Raises:
        BadSettings: the file cannot be read, or a value is none that may be.
    """
    if file is None:
        return ContractsTable()
    return load(ContractsSettings, file, prefix=PREFIX, environ=environ).contracts
