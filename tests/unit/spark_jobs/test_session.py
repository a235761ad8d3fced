"""What Spark says on its stderr is passed on, but for what means nothing."""

from spark_jobs.session import worth_telling

FRAMES = [
    b'  File "/x/pyspark.zip/pyspark/daemon.py", line 262, in manager\n',
    b'  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker\n',
]
BEGIN = b"Traceback (most recent call last):\n"
DISMISSED = [BEGIN, *FRAMES, b"BrokenPipeError: [Errno 32] Broken pipe\n"]
FAILED = [BEGIN, b'  File "/x/handlers.py", line 3, in handle\n', b"ValueError: no\n"]


def test_goodbyes_of_workers_are_left_out_and_errors_are_not() -> None:
    said = [b"WARNING: Using incubator modules: x\n", *DISMISSED, *FAILED, b"INFO x\n", BEGIN]

    assert list(worth_telling(said)) == [*FAILED, b"INFO x\n", BEGIN]


def test_workers_may_say_goodbye_at_once() -> None:
    both = [line for pair in zip(DISMISSED, DISMISSED, strict=True) for line in pair]

    assert list(worth_telling([*both, *FAILED])) == FAILED
