"""The Helm chart: what it renders is valid, confined, and in step with the processes."""

import copy
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

import dovecote
from dedup.settings.consumer import PREFIX as CONSUME_PREFIX
from dedup.settings.consumer import ConsumerSettings, ConsumeSettings
from dovecote.cli.consume.run import _LONGEST_END as CONSUMER_ENDS
from dovecote.cli.push.serve import _LONGEST_END as PUSH_ENDS
from dovecote.cli.relay.run import _LONGEST_END as RELAY_ENDS
from dovecote.process.settings.durations import duration
from dovecote.process.settings.loading import load
from dovecote.process.settings.models import Settings
from dovecote.push.settings import PREFIX as PUSH_PREFIX
from dovecote.push.settings import PushSettings
from relay.settings import PREFIX as RELAY_PREFIX
from relay.settings import RelaySettings
from tests.support.charts import (
    CHART,
    KUBERNETES,
    Object,
    documented,
    environment,
    helm,
    one,
    pod,
    ran,
    rendered,
    settings,
    template,
)

TEXT, NUMBER = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}


def exactly(required: list[str], **properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


NAMED = exactly(["name"], name=TEXT)
CUSTOM = {
    "ScaledObject": exactly(
        ["scaleTargetRef", "triggers", "maxReplicaCount"],
        scaleTargetRef=NAMED,
        minReplicaCount=NUMBER,
        maxReplicaCount=NUMBER,
        advanced={"type": "object"},
        triggers={
            "type": "array",
            "minItems": 1,
            "items": exactly(
                ["type", "metadata"],
                type={"const": "kafka"},
                metadata={"type": "object", "additionalProperties": {"type": "string"}},
                authenticationRef=NAMED,
            ),
        },
    ),
    "ServiceMonitor": exactly(
        ["selector", "endpoints"],
        selector=exactly(["matchLabels"], matchLabels={"type": "object"}),
        endpoints={
            "type": "array",
            "items": exactly(
                ["port"],
                port=TEXT,
                path=TEXT,
                interval=TEXT,
                authorization=exactly(
                    ["credentials"], credentials=exactly(["name", "key"], name=TEXT, key=TEXT)
                ),
            ),
        },
    ),
}
"""No package brings the custom resources' own schemas: this is the used part of them."""


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    return rendered(documented())


def test_it_is_linted() -> None:
    done = ran("lint", "--strict", str(CHART), values=documented())
    assert done.returncode == 0, done.stdout


def test_its_version_is_that_of_the_package() -> None:
    chart = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    assert re.findall(r'^appVersion: "(.*)"', chart, re.MULTILINE) == [dovecote.__version__]


def test_every_object_is_valid(objects: list[Object]) -> None:
    for each in objects:
        if each["kind"] in CUSTOM:
            jsonschema.validate(each["spec"], CUSTOM[each["kind"]])
        else:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
    assert len({(each["kind"], each["metadata"]["name"]) for each in objects}) == len(objects)


def pods(objects: list[Object]) -> dict[str, Object]:
    kinds = {"Deployment", "Job"}
    return {each["metadata"]["name"]: pod(each) for each in objects if each["kind"] in kinds}


def test_every_pod_meets_the_standard_restricted_and_holds_no_secret(
    objects: list[Object],
) -> None:
    found = pods(objects)
    assert len(found) == 5
    for name, spec in found.items():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
        assert {kind for volume in spec["volumes"] for kind in volume} <= {
            *("name", "configMap", "emptyDir", "secret"),
        }
    assert not [each for each in objects if each["kind"] == "Secret"]


def seconds_of(text: str) -> float:
    found = duration(text)
    assert isinstance(found, timedelta)
    return found.total_seconds()


def test_the_grace_periods_are_longer_than_processes_take(objects: list[Object]) -> None:
    found = {
        name: spec["terminationGracePeriodSeconds"]
        for name, spec in pods(objects).items()
        if "init" not in name
    }
    drain = seconds_of(documented()["consumers"]["billing"]["drain"])
    assert found["shop-dovecote-relay"] > RELAY_ENDS
    assert found["shop-dovecote-push"] > PUSH_ENDS + 10
    assert found["shop-dovecote-consumer-billing"] > drain + CONSUMER_ENDS


@pytest.mark.parametrize(
    ("drain", "seconds"), [("500ms", 16), ("30s", 45), ("2m", 135), ("1h", 3_615)]
)
def test_the_grace_period_follows_drain(drain: str, seconds: int) -> None:
    values = documented()
    values["consumers"]["billing"]["drain"] = drain
    found = one(rendered(values), "Deployment", "shop-dovecote-consumer-billing")
    assert pod(found)["terminationGracePeriodSeconds"] == seconds
    (container,) = pod(found)["containers"]
    assert environment(container)["DOVECOTE_CONSUME_DRAIN"] == drain
    assert seconds > seconds_of(drain) + CONSUMER_ENDS


def test_without_a_drain_the_grace_period_is_that_of_the_default() -> None:
    values = documented()
    del values["consumers"]["billing"]["drain"]
    found = one(rendered(values), "Deployment", "shop-dovecote-consumer-billing")
    default = ConsumerSettings.model_fields["drain"].default
    assert pod(found)["terminationGracePeriodSeconds"] == default.total_seconds() + 15


def test_the_schema_is_installed_before_the_processes_and_on_each_upgrade(
    objects: list[Object],
) -> None:
    jobs = [each for each in objects if each["kind"] == "Job"]
    assert [pod(job)["containers"][0]["args"] for job in jobs] == [
        ["init", "outbox", "--relay-role", "shop_relay", "--writer-role", "shop_writer"],
        ["init", "push", "--push-role", "shop_relay"],
    ]
    for job in jobs:
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        account = one(objects, "ServiceAccount", pod(job)["serviceAccountName"])
        assert account["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


def test_a_consumer_that_keda_scales_has_no_number_of_replicas(objects: list[Object]) -> None:
    name = "shop-dovecote-consumer-billing"
    assert "replicas" not in one(objects, "Deployment", name)["spec"]
    spec = one(objects, "ScaledObject", name)["spec"]
    assert spec["scaleTargetRef"]["name"] == name
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["consumerGroup"] == "billing"
    (container,) = pod(one(objects, "Deployment", name))["containers"]
    assert environment(container)["DOVECOTE_CONSUME_GROUP"] == "billing"


@pytest.mark.parametrize(
    ("part", "model", "prefix"),
    [
        ("relay", RelaySettings, RELAY_PREFIX),
        ("push", PushSettings, PUSH_PREFIX),
        ("consumer-billing", ConsumeSettings, CONSUME_PREFIX),
    ],
)
def test_the_settings_of_each_part_are_accepted(
    objects: list[Object], tmp_path: Path, part: str, model: type[Settings], prefix: str
) -> None:
    file = settings(objects, f"shop-dovecote-{part}", tmp_path)
    text = file.read_text(encoding="utf-8")
    (tmp_path / "password").write_text("secret", encoding="utf-8")
    file.write_text(text.replace("/run/secrets/dovecote/shop-relay", str(tmp_path)))
    (container,) = pod(one(objects, "Deployment", f"shop-dovecote-{part}"))["containers"]
    found: Any = load(model, file, prefix=prefix, environ=environment(container))
    assert found.http.host == "0.0.0.0"  # noqa: S104  # a pod's
    assert [{"name": "http", "containerPort": found.http.port}] == container["ports"]


def test_other_settings_replace_the_pods() -> None:
    def mark(config: str) -> str:
        values = documented()
        values["relay"]["config"] = config
        found = one(rendered(values), "Deployment", "shop-dovecote-relay")
        annotations: dict[str, str] = found["spec"]["template"]["metadata"]["annotations"]
        return annotations["checksum/settings"]

    assert mark("a = 1") != mark("a = 2")


def change(values: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(values)
    *tables, last = path.split(".")
    inner = changed
    for each in tables:
        inner = inner.setdefault(each, {})
    inner[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("relay.config", "", "relay: config is missing"),
        ("relay.replica", 3, "replica"),
        ("relay.replicas", "3", "replicas"),
        ("init.dsn.secretName", "", "init.dsn.secretName is missing"),
        ("image.digest", "sha256:1", "digest"),
        ("secrets", ["A_b"], "secrets"),
        ("consumers.billing.handler", "billing", "handler"),
        ("consumers.billing.drain", "30", "drain"),
        ("consumers.billing.image.tag", "", "needs a tag or a digest"),
        ("consumers.billing.keda.topics", [], "topics are missing"),
        ("consumers.Billing", {}, "Billing"),
        ("logFormat", "xml", "logFormat"),
    ],
)
def test_values_that_cannot_work_are_refused(path: str, value: object, says: str) -> None:
    done = template(change(documented(), path, value))
    assert done.returncode != 0
    assert says in done.stderr


def test_who_may_connect_is_whom_the_values_name() -> None:
    def peers(part: str, **policy: object) -> object:
        values = {**documented(), "networkPolicy": policy}
        found = one(rendered(values), "NetworkPolicy", f"shop-dovecote-{part}")
        return found["spec"]["ingress"][0].get("from")

    prometheus, gateway = ({"podSelector": {"matchLabels": {"app": app}}} for app in "pg")
    assert peers("relay") is None
    assert peers("relay", metricsFrom=[prometheus]) == [prometheus]
    assert peers("push", metricsFrom=[prometheus]) is None
    assert peers("push", metricsFrom=[prometheus], apiFrom=[gateway]) == [prometheus, gateway]


def test_parts_that_are_off_leave_nothing() -> None:
    values: dict[str, object] = {"init": {"enabled": False}, "relay": {"enabled": False}}
    assert [each["kind"] for each in rendered(values)] == ["ServiceAccount"]


def test_a_name_stays_short_enough() -> None:
    values = documented()
    values["consumers"] = {"c" * 20: values["consumers"]["billing"]}
    for each in rendered(values):
        assert len(each["metadata"]["name"]) <= 63
    assert helm()
