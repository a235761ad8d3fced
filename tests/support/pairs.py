"""Pair events of two sides."""

from datetime import timedelta
from typing import Any

from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.settings import PairingSettings

T, GRACE = 60, 180
SIDES = {"a": {"topic": "a"}, "m": {"topic": "m"}}


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def pairing(**more: Any) -> Pairing:
    return Pairing(configured(**more))


def configured(**more: Any) -> PairingSettings:
    table = {"within": ms(T), "grace": ms(GRACE), "sides": SIDES, **more}
    return PairingSettings.model_validate(table)


def call(key: str, time: int, a: Any, m: Any) -> tuple[Any, ...]:
    return "result", key, time, a, m
