"""A page as a test reads it: its elements, links and words."""

from html.parser import HTMLParser

# Elements without an end.
VOID = frozenset({"meta", "link", "img", "input", "br", "hr", "source"})


class Webpage(HTMLParser):
    """Reads a page; an element that is not closed where it should be is a mistake."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [f"<{name}> is never closed" for name in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes something else")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """Return the words of the page, one space between them."""
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def links(self) -> list[str]:
        """Return where the page leads and what it loads."""
        found = [a["href"] for a in self.all("a")] + [link["href"] for link in self.all("link")]
        return found + [each["src"] for tag in ("img", "script") for each in self.all(tag)]

    @property
    def ids(self) -> list[str]:
        """Return the names of elements."""
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    @property
    def inline(self) -> list[str]:
        """Return what a strict policy forbids: scripts, styles and handlers inside the page."""
        found = [f"<{tag} {name}>" for tag, attributes in self.elements for name in attributes
                 if name == "style" or name.startswith("on")]  # fmt: skip
        found += ["<style>"] * len(self.all("style"))
        return found + ["<script>" for each in self.all("script") if "src" not in each]
