"""The settings that say where a job reads."""

from typing import Protocol

from spark_jobs.query.settings import SourceSettings


class Reading(Protocol):
    """The settings of a job that say what it reads."""

    @property
    def kafka(self) -> dict[str, str]: ...
    @property
    def source(self) -> SourceSettings: ...
