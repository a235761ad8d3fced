"""`dovecote consume`: run a consumer, and decide about the records that it gave up."""

from typing import Any, ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "run": "run:run",
        "status": "status:status",
        "dead": "dead:dead",
        "skip": "skip:skip",
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's own click
        """Take `--status`, as other tools have it, for the command of that name."""
        if "--status" in args and not {*args} & {*self.places}:
            args = ["status", *(each for each in args if each != "--status")]
        return super().parse_args(ctx, args)


consume = App("consume", "Hand events from Kafka to a function of yours.", cls=_Commands)
