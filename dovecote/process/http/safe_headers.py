"""Headers of our answers, with which no browser runs, guesses, frames or keeps them."""

from collections.abc import Mapping
from types import MappingProxyType

SAFE: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
)
"""An answer that has one of these already keeps its own."""
