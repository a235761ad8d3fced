"""The container in `compose/` in which push runs."""

from typing import Any

import pytest
import yaml

from dovecote.process.settings.loading import load
from dovecote.push.settings import PREFIX, PushSettings
from tests.support.documents import ROOT

FOLDER = ROOT / "compose"


@pytest.fixture
def service() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    push: dict[str, Any] = found["services"]["push"]
    return push


def test_the_container_begins_again_serves_at_8080_and_reads_the_file_that_is_mounted(
    service: dict[str, Any],
) -> None:
    assert service["restart"] == "unless-stopped"
    (port,) = service["ports"]
    assert port.startswith("127.0.0.1:")
    assert port.endswith(":8080")
    file, mounted, how = service["volumes"][0].split(":")
    assert how == "ro"
    assert service["command"][service["command"].index("--config") + 1] == mounted
    found = load(PushSettings, FOLDER / file, prefix=PREFIX, environ=service["environment"])
    assert found.http.port == 8080


def test_the_container_makes_its_token_in_a_volume_where_its_commands_find_it(
    service: dict[str, Any],
) -> None:
    found = load(PushSettings, FOLDER / "push.toml", prefix=PREFIX, environ=service["environment"])
    assert not found.api.tokens
    file = found.api.token_file
    assert file is not None
    assert str(file) == service["environment"]["DOVECOTE_API_TOKEN_FILE"]
    _, mounted = service["volumes"][1].split(":")
    assert str(file.parent) == mounted
    # A new volume belongs to root unless the folder of the image is the user's.
    image = (FOLDER / "Dockerfile").read_text()
    made = image.partition("USER 10001:10001\n")[2].partition("ENTRYPOINT")[0]
    assert f"RUN mkdir --mode=700 {file.parent.name}" in made
