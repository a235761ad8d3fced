"""Events that a signal handler of Django writes in the transaction of the rows."""

from typing import Any

from django.db import connections, models
from django.db.models.signals import post_save
from django.dispatch import receiver

from outbox import Event, write

TOPIC = "orders"


class Order(models.Model):  # type: ignore[misc]  # Django ships no types
    """A row, and an event when it is new."""

    id = models.IntegerField(primary_key=True)

    class Meta:
        """Where it is."""

        app_label = "shop"
        db_table = "orders"
        managed = False

    def __str__(self) -> str:
        return f"order {self.id}"


@receiver(post_save, sender=Order)  # type: ignore[untyped-decorator]  # Django ships no types
def order_saved(*, instance: Order, created: bool, using: str, **_: Any) -> None:  # noqa: ANN401  # Django's own
    """Write the event on the connection that has saved the row."""
    if created:
        write(
            connections[using],
            Event(
                topic=TOPIC,
                key=str(instance.id),
                type="OrderPlaced",
                value={"order": instance.id},
            ),
        )
