"""An endpoint's own numbers are read in the forms of all drafts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovecote.push.rules.sending.quota import Quota, quota


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, Quota()),
        ({"date": "x"}, Quota()),
        ({"webhook-allowed-rate": "120"}, Quota(2.0)),
        ({"webhook-allowed-rate": "*"}, Quota()),
        ({"webhook-allowed-rate": "0"}, Quota()),
        ({"ratelimit-policy": "10;w=1"}, Quota(10.0)),
        ({"ratelimit-policy": "10;w=1, 120;w=60"}, Quota(2.0)),
        ({"ratelimit-policy": "10;w=1, 100;w=86400"}, Quota(10.0)),
        ({"ratelimit-policy": '"burst";q=100;w=10, "daily";q=1000;w=86400'}, Quota(10.0)),
        ({"ratelimit-policy": '"a";q=10;w=0'}, Quota()),
        ({"ratelimit-limit": "100, 100;w=10"}, Quota(10.0)),
        ({"ratelimit-limit": "100"}, Quota()),
        (
            {"ratelimit-limit": "100", "ratelimit-remaining": "0", "ratelimit-reset": "30"},
            Quota(None, 30),
        ),
        ({"ratelimit-remaining": "1", "ratelimit-reset": "30"}, Quota()),
        ({"ratelimit-remaining": "0"}, Quota()),
        ({"ratelimit": '"default";r=0;t=30'}, Quota(None, 30)),
        ({"ratelimit": '"default";r=50;t=30'}, Quota()),
        ({"ratelimit": "limit=100, remaining=0, reset=5"}, Quota(None, 5)),
        ({"ratelimit-policy": "x", "ratelimit": "y;r=;t=z"}, Quota()),
        ({"webhook-allowed-rate": "6", "ratelimit-policy": "10;w=1"}, Quota(0.1)),
    ],
)
def test_what_an_endpoint_says_of_its_rate_is_read(headers: dict[str, str], told: Quota) -> None:
    assert quota(headers) == told


@given(st.dictionaries(st.sampled_from(["ratelimit", "ratelimit-policy"]), st.text()))
def test_any_text_is_a_quota_or_none(headers: dict[str, str]) -> None:
    assert (quota(headers).per_second or 1.0) > 0.0
