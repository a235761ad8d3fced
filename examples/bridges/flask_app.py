"""A Flask service that commits in its view, before there is an answer."""

from flask import Flask
from sqlalchemy import Engine, text
from sqlalchemy.orm import sessionmaker

from outbox import Event, write


def app(engine: Engine, topic: str) -> Flask:
    """Return the service; each request has a session of its own."""
    session = sessionmaker(engine)
    service = Flask("shop")

    @service.post("/orders/<int:order>")
    def place(order: int) -> tuple[dict[str, int], int]:
        with session.begin() as tx:
            tx.execute(text("INSERT INTO orders VALUES (:order)"), {"order": order})
            write(
                tx, Event(topic=topic, key=str(order), type="OrderPlaced", value={"order": order})
            )
        return {"order": order}, 201  # after the block, and so after COMMIT

    return service
