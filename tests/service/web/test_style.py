"""The style sheet: texts and symbols have enough contrast in both colour schemes (WCAG 2.2 AA)."""

import re

import pytest

from kron.fronts.service.web.render import assets

CSS = assets()["style.css"].body.decode()
TOKENS = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in re.split(r"@media", CSS)[:2]]
LIGHT, DARK = TOKENS[0], {**TOKENS[0], **TOKENS[1]}
TONES = ("ok", "bad", "skip", "miss", "run", "wait")
GROUNDS = ("ground", "paper")
TEXTS = [(text, ground) for text in ("text", "muted", "accent", *TONES) for ground in GROUNDS]
TEXTS += [(tone, f"{tone}-paper") for tone in TONES] + [("accent", "accent-paper"), ("paper", "accent")]
# Symbols that must be distinct from their background.
SIGNS = [("line-strong", ground) for ground in GROUNDS] + [(tone, "paper") for tone in TONES]


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_measured_as_the_guidelines_say() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_and_symbols_have_enough_contrast(tokens: dict[str, str]) -> None:
    weak = {pair: contrast(*(tokens[name] for name in pair)) for pair in TEXTS}
    assert {pair: found for pair, found in weak.items() if found < 4.5} == {}
    faint = {pair: contrast(*(tokens[name] for name in pair)) for pair in SIGNS}
    assert {pair: found for pair, found in faint.items() if found < 3} == {}


def test_the_dark_set_names_every_colour_again() -> None:
    assert TOKENS[0].keys() == TOKENS[1].keys()


def test_no_resource_is_loaded_from_another_host() -> None:
    for name, asset in assets().items():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE), name
        assert "@import" not in text
        assert "url(" not in text
