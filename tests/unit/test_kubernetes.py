"""The manifests for Kubernetes fit the operator's schema, the image and a job's settings."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_spark_api.models import SparkV1beta2SparkApplication

from dovecote.process.settings.loading import load
from spark_jobs.query.settings import PREFIX, DedupSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "compose/kubernetes"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))


def documents(file: Path) -> dict[str, dict[str, Any]]:
    """Return the objects of a manifest by their kind."""
    found = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    return {each["kind"]: each for each in found}


@pytest.fixture(params=MANIFESTS, ids=lambda file: file.stem)
def manifest(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    return documents(request.param)


def test_an_application_fits_the_schema_of_the_operator(
    manifest: dict[str, dict[str, Any]],
) -> None:
    application = manifest["SparkApplication"]

    model = SparkV1beta2SparkApplication.from_dict(application)

    assert model is not None
    # A field that the schema does not know is dropped: then both differ.
    assert model.to_dict() == application


def test_a_field_that_the_operator_does_not_know_is_found() -> None:
    application = documents(MANIFESTS[0])["SparkApplication"]
    application["spec"]["executor"]["instnces"] = 2

    model = SparkV1beta2SparkApplication.from_dict(application)

    assert model is not None
    assert model.to_dict() != application


def test_the_settings_are_valid_with_the_secrets_that_the_driver_gets(
    manifest: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    spec = manifest["SparkApplication"]["spec"]
    ((name, text),) = manifest["ConfigMap"]["data"].items()
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    environ = {each["name"]: "a secret" for each in spec["driver"]["env"]}

    settings = load(DedupSettings, file, prefix=PREFIX, environ=environ)

    (mount,) = spec["driver"]["configMaps"]
    assert mount["name"] == manifest["ConfigMap"]["metadata"]["name"]
    assert f"{mount['path']}/{name}" in spec["arguments"]
    assert [port["containerPort"] for port in spec["driver"]["ports"]] == [settings.http.port]
    assert "://" in settings.spark.checkpoint
    pointers = set(re.findall(r'env = "(\w+)"', text))
    assert pointers == environ.keys()


def test_the_image_is_of_the_spark_that_the_manifest_and_the_lock_name(
    manifest: dict[str, dict[str, Any]],
) -> None:
    spec = manifest["SparkApplication"]["spec"]
    image = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    lock = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")

    assert f"pyspark=={spec['sparkVersion']} " in lock
    assert f"FROM apache/spark:{spec['sparkVersion']}-" in image
    program = spec["mainApplicationFile"].removeprefix("local:///opt/dovecote/")
    assert (ROOT / "spark_jobs/jobs" / program).is_file()
    assert "spark_jobs/jobs/*_stream.py /opt/dovecote/" in image
