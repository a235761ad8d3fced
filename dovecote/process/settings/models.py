"""The base of every model of settings, and the settings that every process has."""

from pydantic import BaseModel, ConfigDict, Field

from dovecote.process.settings.values import HostName


class Settings(BaseModel):
    """The base of every settings model: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class HttpSettings(Settings):
    """Where /metrics, /healthz and /readyz are served."""

    host: str = "127.0.0.1"
    """Address to listen on; a container wants 0.0.0.0."""

    port: int | None = Field(default=None, ge=0, le=65535)
    """Port; 0: any free one (it is logged); absent: not served."""

    hosts: tuple[HostName, ...] = ()
    """
    Names under which requests may ask for it; `localhost`, `host` and, unless that is loopback,
    any address and the machine's own name always count.
    """
