"""Ask the identity services of clouds for tokens, each through the cloud's own library."""

import base64
import json
import time
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from outbox.tokens.token import Ask, Token, TokenRefused, claims

_CREDENTIALS = ("managed_identity", "client_secret", "workload_identity", "default")
_ALL_OF_CLOUD = "https://www.googleapis.com/auth/cloud-platform"


def aws_msk(options: Mapping[str, Any]) -> Ask:
    """
    Return the provider for Amazon MSK with IAM: tokens are signed here, with AWS credentials.

    Raises:
        ModuleNotFoundError: the extra `aws` is not installed.
        ValueError: two settings exclude each other.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer  # noqa: N813  # a module
    from botocore.exceptions import BotoCoreError, ClientError

    region, role, profile = (options.get(each) for each in ("region", "role_arn", "profile"))
    if role and profile:
        msg = "role_arn and profile exclude each other: set one of the two"
        raise ValueError(msg)
    if options.get("session_name") and not role:
        msg = "session_name belongs to a role: set role_arn too"
        raise ValueError(msg)

    def sign() -> tuple[str, float]:
        if role:
            name = options.get("session_name", "dovecote")
            return signer.generate_auth_token_from_role_arn(region, role, name)  # type: ignore[no-any-return]  # untyped
        if profile:
            return signer.generate_auth_token_from_profile(region, profile)  # type: ignore[no-any-return]  # as above
        return signer.generate_auth_token(region)  # type: ignore[no-any-return]  # as above

    def ask() -> Token:
        try:
            value, milliseconds = sign()
        except AttributeError:
            # The library asks credentials that are not there for their key.
            msg = "no AWS credentials: none in the environment, in a profile or from the machine"
            raise OSError(msg) from None
        except ClientError as error:
            raise TokenRefused(str(error)) from None
        except BotoCoreError as error:
            raise OSError(str(error)) from None
        return Token(value, milliseconds / 1000, "", options.get("extensions", {}))

    return ask


def azure(options: Mapping[str, Any]) -> Ask:
    """
    Return the provider for Microsoft Entra ID, as Event Hubs asks for it.

    Raises:
        ModuleNotFoundError: the extra `azure` is not installed.
        ValueError: a setting is missing for the kind of credential.
    """
    from azure.core.exceptions import AzureError, ClientAuthenticationError

    credential = _credential(options)

    def ask() -> Token:
        try:
            found = credential.get_token(options["scope"])
        except ClientAuthenticationError as error:
            raise TokenRefused(_first(error)) from None
        except AzureError as error:
            raise OSError(_first(error)) from None
        told = claims(found.token)
        principal = told.get("oid") or options.get("client_id") or ""
        extensions = options.get("extensions", {})
        return Token(found.token, found.expires_on, str(principal), extensions)

    return ask


def _credential(options: Mapping[str, Any]) -> Any:  # noqa: ANN401  # one of the library's
    from azure import identity

    kind = options.get("credential", "managed_identity")
    own = {name: options[name] for name in ("tenant_id", "client_id") if options.get(name)}
    if kind not in _CREDENTIALS:
        msg = f"credential {kind!r} is none of {', '.join(_CREDENTIALS)}"
        raise ValueError(msg)
    if kind == "client_secret":
        needed = ("tenant_id", "client_id", "client_secret")
        if lacking := [each for each in needed if not options.get(each)]:
            msg = f"missing for credential = 'client_secret': {', '.join(lacking)}"
            raise ValueError(msg)
        authority = options.get("authority")
        more = {"authority": authority} if authority else {}
        secret = options["client_secret"]
        return identity.ClientSecretCredential(client_secret=secret, **own, **more)
    if options.get("client_secret"):
        msg = "client_secret belongs to credential = 'client_secret'"
        raise ValueError(msg)
    if kind == "managed_identity":
        if options.get("tenant_id"):
            msg = "tenant_id is not for a managed identity: leave it out"
            raise ValueError(msg)
        return identity.ManagedIdentityCredential(**own)
    if kind == "workload_identity":
        # Its other settings are in the environment, put there by the cluster.
        return identity.WorkloadIdentityCredential(**own)
    return identity.DefaultAzureCredential()


def google(options: Mapping[str, Any]) -> Ask:
    """
    Return the provider for Google Cloud's Managed Service for Apache Kafka.

    Its brokers take an access token in an envelope that looks like a JSON web token.

    Raises:
        ModuleNotFoundError: the extra `google` is not installed.
    """
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
    from google.auth.transport.requests import Request
    from google.oauth2 import service_account

    known: list[Any] = []

    def credentials() -> Any:  # noqa: ANN401  # one of many kinds
        if not known:
            file, scopes = options.get("credentials_file"), [_ALL_OF_CLOUD]
            load = service_account.Credentials.from_service_account_file
            known.append(load(file, scopes=scopes) if file else google.auth.default(scopes)[0])  # type: ignore[no-untyped-call]  # untyped
        return known[0]

    def ask() -> Token:
        try:
            found = credentials()
            found.refresh(Request())
        except DefaultCredentialsError as error:
            raise TokenRefused(_first(error)) from None
        except RefreshError as error:
            if error.retryable:
                raise OSError(_first(error)) from None
            raise TokenRefused(_first(error)) from None
        except GoogleAuthError as error:
            raise OSError(_first(error)) from None
        principal = options.get("principal") or getattr(found, "service_account_email", "")
        expires = found.expiry.replace(tzinfo=UTC).timestamp()
        value = enveloped(found.token, str(principal), expires, time.time())
        return Token(value, expires, str(principal), options.get("extensions", {}))

    return ask


def enveloped(token: str, principal: str, expires: float, now: float) -> str:
    """Return an access token of Google in the form that its Kafka takes."""
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    body = {"exp": expires, "iat": now, "iss": "Google", "scope": "kafka", "sub": principal}
    return ".".join(map(_encoded, (json.dumps(header), json.dumps(body), token)))


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _first(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
