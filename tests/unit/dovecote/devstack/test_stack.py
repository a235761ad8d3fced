from dovecote.devstack import Stack


def test_a_stack_that_is_never_started_leaves_no_folder() -> None:
    stack = Stack()
    directory = stack.directory
    assert directory.is_dir()

    del stack

    assert not directory.exists()
