"""A broker that cannot say yet who reads with a group is asked again."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from dovecote.push.api.positions import Positions
from dovecote.push.errors import Away, Conflict

EMPTY = SimpleNamespace(state=ConsumerGroupState.EMPTY, members=[])
READ = SimpleNamespace(state=ConsumerGroupState.STABLE, members=[1, 2])


class Admin:
    """Gives the configured answers, and then the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def describe_consumer_groups(self, groups: list[str], **_: Any) -> dict[str, Future[Any]]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        told: Future[Any] = Future()
        if isinstance(answer, int):
            told.set_exception(KafkaException(KafkaError(answer)))
        else:
            told.set_result(answer)
        return dict.fromkeys(groups, told)


def positions(*answers: Any) -> tuple[Positions, Admin]:
    admin = Admin(*answers)
    return Positions({}, admin=cast("AdminClient", admin)), admin


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    ],
)
def test_a_coordinator_that_is_not_ready_is_waited_for(code: int) -> None:
    found, admin = positions(code, READ, EMPTY)
    found.wait_until_empty("g", seconds=20)
    assert admin.answers == [EMPTY]

    found, _ = positions(code)
    with pytest.raises(Away, match="looks after group 'g' yet"):
        found.wait_until_empty("g", seconds=0)


def test_a_group_that_is_not_there_is_empty_and_one_that_is_read_is_told() -> None:
    found, _ = positions(KafkaError.GROUP_ID_NOT_FOUND)
    found.wait_until_empty("g", seconds=0)
    found, _ = positions(READ)
    with pytest.raises(Conflict, match="'g' still has members after 0 s"):
        found.wait_until_empty("g", seconds=0)
