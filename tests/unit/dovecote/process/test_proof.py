"""A server is asked now and then, and what it answers is known for a while."""

from dovecote.process.proof import LastAnswer, Proof


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_known_before_the_first_answer() -> None:
    assert Proof(str).seen() == LastAnswer(None)


def test_an_answer_counts_from_when_it_came() -> None:
    clock = Clock()
    proof = Proof(str, clock=clock)
    proof.once()
    clock.now += 7
    assert proof.seen() == LastAnswer(7.0)


def test_a_refusal_is_trouble_until_the_next_answer() -> None:
    answers, clock = ["topic 'x': no right", ""], Clock()
    proof = Proof(lambda: answers.pop(0), clock=clock)
    proof.once()
    assert proof.seen() == LastAnswer(None, "topic 'x': no right")
    proof.once()
    assert proof.seen() == LastAnswer(0.0)


def test_an_error_is_trouble_and_ends_nothing() -> None:
    def fails() -> str:
        msg = "nobody answers\nand a second line"
        raise OSError(msg)

    proof = Proof(fails, clock=Clock())
    proof.once()
    assert proof.seen() == LastAnswer(None, "nobody answers")


def test_a_server_that_has_just_answered_is_not_asked() -> None:
    asked = list[int]()

    def ask() -> str:
        asked.append(1)
        return ""

    clock = Clock()
    proof = Proof(ask, every=20, clock=clock)
    proof.heard()
    clock.now += 9
    proof.once()
    assert not asked
    clock.now += 2
    proof.once()
    assert asked


def test_an_answer_to_others_counts_more_than_a_question_without_one() -> None:
    clock = Clock()

    def ask() -> str:
        clock.now += 2
        proof.heard()
        clock.now += 3
        return "no answer in time"

    proof = Proof(ask, clock=clock)
    proof.once()
    assert proof.seen() == LastAnswer(3.0)


def test_an_answer_before_the_question_does_not_hide_its_trouble() -> None:
    clock = Clock()
    proof = Proof(lambda: "no answer in time", every=20, clock=clock)
    proof.heard()
    clock.now += 15
    proof.once()
    assert proof.seen() == LastAnswer(15.0, "no answer in time")
