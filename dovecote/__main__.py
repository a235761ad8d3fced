"""`python -m dovecote` is the command `dovecote`."""

from dovecote.cli.main import main

if __name__ == "__main__":
    main()
