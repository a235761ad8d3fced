"""Step an operator again after a failure, without the records that cause it."""

from collections.abc import Sequence
from typing import Any

from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.step import Failed, Input, Operator, Output, StepResult


def careful(
    operator: Operator[Any],
    before: bytes | None,
    records: Sequence[Input],
    now: int,
    *,
    behind: bool,
    cause: Exception,
) -> StepResult[Any]:
    """
    Step from the state in `before`; records for which the operator raises are `Failed`.

    None: from the state before any record. A step that failed has changed its state, so each try
    begins with the bytes.

    Raises:
        Exception: `cause`, if the operator fails without any record: then none is to blame.
    """
    try:
        found = _tried(operator, before, (), now, behind=behind)
    except Exception:  # noqa: BLE001  # whatever it is, the first failure says it
        raise cause from None
    outputs: list[Output] = [*found.outputs]
    pending = [list(records)]
    while pending:
        part = pending.pop()
        if not part:
            continue
        state = encode(operator, found.state)
        try:
            step = _tried(operator, state, part, now, behind=behind)
            encode(operator, step.state)
        except Exception as error:  # noqa: BLE001  # as above
            found = found._replace(state=decode(operator, state))
            if len(part) == 1:
                outputs.append(Failed(part[0], f"{type(error).__name__}: {error}"))
            else:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]]
        else:
            outputs += step.outputs
            found = step
    return found._replace(outputs=outputs)


def _tried(
    operator: Operator[Any],
    before: bytes | None,
    records: Sequence[Input],
    now: int,
    *,
    behind: bool,
) -> StepResult[Any]:
    state = operator.start() if before is None else decode(operator, before)
    return operator.step(state, records, now, behind=behind)
