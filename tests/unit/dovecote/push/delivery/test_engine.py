from dovecote.push.delivery.engine import Engine, Surroundings
from dovecote.push.rules.sending.ports import AttemptReport, Work
from dovecote.push.rules.subscription.subscription import subscription


class Unread:
    def attempted(self, attempt: AttemptReport) -> None:
        """Forget it."""

    def disable(self, id_: str, url: str, reason: str) -> None:
        raise AssertionError((id_, url, reason))


def work(id_: str) -> Work:
    wanted = {"id": id_, "topics": ["orders"], "endpoint": {"url": "https://shop.example"}}
    return Work(subscription(wanted), 1)


def test_the_number_of_subscriptions_is_told_each_time_that_it_may_change() -> None:
    told: list[int] = []
    engine = Engine(Surroundings(brokers={}), Unread(), crowded=told.append)
    engine.start()
    try:
        engine.reconcile([work("a"), work("b")])
        engine.reconcile([])
        assert told[0] == 2
        assert len(told) == 2
    finally:
        engine.stop()
