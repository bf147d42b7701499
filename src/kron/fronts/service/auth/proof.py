"""Whether callers can show who they are, so that they have to."""

from kron.fronts.service.settings import Settings


def has_tokens(settings: Settings) -> bool:
    """Say whether there are keys to check tokens by."""
    return settings.jwt_keys is not None or settings.has_secret("jwt_secret")


def has_proof(settings: Settings) -> bool:
    """Say whether callers can show who they are, by tokens or certificates, so that they have to."""
    return has_tokens(settings) or bool(settings.client_subjects)
