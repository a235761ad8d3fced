from dovecote.process.proof import Proof
from dovecote.process.states import State
from spark_jobs.query.watching import Health
from tests.support.waiting import until


def test_a_job_is_ready_once_spark_has_told_of_it_and_as_long_as_it_does() -> None:
    health = Health(stall_after=60)
    assert health.ready().reason == "no batch was finished yet"
    health.progressed()
    report = health.ready()
    assert (report.ok, report.role, report.reason) == (True, "running", "progressing")
    health.stopped()
    assert not health.ready().ok


def test_a_job_that_finishes_no_batch_is_not_ready_until_it_does() -> None:
    health = Health(stall_after=0.05)
    health.progressed()

    until(lambda: not health.ready().ok, within=5, what="that it is stalled")

    assert health.ready().reason == "no batch was finished for 0 s"
    health.progressed()
    assert health.ready().ok


def test_kafkas_answers_to_the_query_count_more_than_one_question_without_an_answer() -> None:
    seconds = iter(range(0, 1_000, 60))
    proof = Proof(lambda: "Kafka: no answer in time", clock=lambda: next(seconds))
    health = Health(stall_after=60, proof=proof)
    health.progressed()
    proof.once()
    assert health.ready().state is State.FAILING

    health.progressed()

    assert health.ready().state is State.IDLE
