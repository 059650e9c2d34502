"""Where a server is found, and which names it answers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.server.settings import Settings

HOME = Path("home")


@pytest.mark.parametrize(
    ("given", "url", "address"),
    [
        ({}, "http://127.0.0.1:7400", "http://127.0.0.1:7400"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:7400", "http://127.0.0.1:7400"),
        ({"host": "::"}, "http://[::1]:7400", "http://[::1]:7400"),
        ({"host": "::1"}, "http://[::1]:7400", "http://[::1]:7400"),
        ({"host": "10.0.0.5"}, "http://10.0.0.5:7400", "http://10.0.0.5:7400"),
        (
            {"host": "10.0.0.5", "tls": True, "local_port": 9},
            "http://127.0.0.1:9",
            "https://10.0.0.5:7400",
        ),
        (
            {"host": "0.0.0.0", "tls": True, "local_port": 9, "hosts": ("lab.example",)},
            "http://127.0.0.1:9",
            "https://lab.example:7400",
        ),
        (
            {"public_url": "https://lab.example/"},
            "http://127.0.0.1:7400",
            "https://lab.example",
        ),
    ],
)
def test_workers_come_through_loopback_and_people_to_the_public_address(given, url, address):
    settings = Settings(HOME, **given)
    assert (settings.url, settings.address) == (url, address)


def test_it_answers_to_its_host_its_public_name_and_those_it_was_given():
    settings = Settings(
        HOME, host="fd00::5", hosts=("other.example",), public_url="https://Lab.example:8443"
    )
    assert settings.names == ("other.example", "[fd00::5]", "lab.example")
    assert settings.origins == ("https://lab.example:8443",)
    assert Settings(HOME, host="0.0.0.0").names == ()
