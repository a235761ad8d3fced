"""`dovecote push key` and `token`: make the secrets that push needs."""

import secrets

import typer

from dovecote.cli.extras import require_push


def key() -> None:
    """
    Make a key that seals secrets in the database.

    Example: dovecote push key > /run/secrets/push-keys
    """
    require_push()
    from cryptography.fernet import Fernet

    typer.echo(Fernet.generate_key().decode())


def token() -> None:
    """
    Make a token for the API.

    It prints the token, and the line that belongs into the settings.

    Example: dovecote push token
    """
    require_push()
    from dovecote.push.api.access import hashed

    made = secrets.token_urlsafe(32)
    typer.echo(f"token     {made}")
    typer.echo(f"settings  {hashed(made)}")
