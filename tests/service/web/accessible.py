"""The rules of accessibility, checked in both themes from one load of each page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.service.axe import AxeMissingError, axe_source, violations
from tests.service.chromium import Chromium

# Names of controls, labels, headings in order, landmarks, unique ids, a language, a title, texts of pictures,
# readable colours, and the width of the page.
CHECKS = (Path(__file__).parent / "checks.js").read_text()
# The rules that the other theme of a loaded page can break.
OF_COLOURS = ("color-contrast", "link-in-text-block")


def has_axe() -> bool:
    """Return whether axe-core is here."""
    try:
        axe_source()
    except AxeMissingError:
        return False
    return True


def faults_of(browser: Chromium, base: str, paths: Sequence[str], *, width: int) -> dict[str, Any]:
    """Open pages in the light theme, turn each dark, and return what is wrong with them.

    All rules are run on the light page, and those of colours on the dark one.
    """
    faults: dict[str, Any] = {}
    is_whole = has_axe()
    for path in paths:
        browser.show(width=width)
        browser.open(f"{base}{path}")
        for theme, rules in (("light", ()), ("dark", OF_COLOURS)):
            browser.show(width=width, dark=theme == "dark")
            found = violations(browser, rules) if is_whole else []
            if theme == "light" or not is_whole:
                found += browser.js(CHECKS)
            if found:
                faults[f"{path} {theme}"] = found
    return faults
