"""Render the Helm chart, and run what it says as processes of this machine."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from tests.support.documents import ROOT, blocks
from tests.support.waiting import patient

CHART = ROOT / "compose/helm"
KUBERNETES = "1.34"
"""The version whose schemas the objects are checked against."""

Object: TypeAlias = dict[str, Any]


def helm() -> str:
    """Return the program, or skip the test."""
    found = shutil.which("helm") or shutil.which("helm", path=str(ROOT / ".helm"))
    if found is None:
        pytest.skip("there is no helm: install it, or run `make .helm/helm`, which needs Go")
    return found


def ran(*arguments: str, values: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    """Run helm on the chart with these values."""
    return subprocess.run(
        [helm(), *arguments, "--values", "-"],
        input=yaml.safe_dump(dict(values)),
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )


def template(values: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    where = ("--namespace", "events", "--kube-version", f"{KUBERNETES}.0")
    return ran("template", "shop", str(CHART), *where, values=values)


def rendered(values: Mapping[str, object]) -> list[Object]:
    done = template(values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def documented() -> dict[str, Any]:
    """Return the values that the manual shows."""
    (block,) = blocks(ROOT / "docs/deploy.md", "yaml")
    values: dict[str, Any] = yaml.safe_load(block.text)
    return values


def one(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def pod(found: Object) -> Object:
    spec: Object = found["spec"]["template"]["spec"]
    return spec


def environment(container: Object, secrets: Mapping[tuple[str, str], str] = {}) -> dict[str, str]:
    """Return the variables of a container, those of Secrets with the values given."""

    def value(given: Object) -> str:
        if "value" in given:
            return str(given["value"])
        reference = given["valueFrom"]["secretKeyRef"]
        return secrets[reference["name"], reference["key"]]

    return {each["name"]: value(each) for each in container["env"]}


def settings(objects: list[Object], name: str, folder: Path) -> Path:
    """Write the settings file of a part into a folder, and return it."""
    file = folder / "settings.toml"
    file.write_text(one(objects, "ConfigMap", name)["data"]["settings.toml"], encoding="utf-8")
    return file
