"""Facts: the links of the chain that explains a period."""

from typing import NamedTuple

from kron.core.time.instant import EpochSeconds, rfc3339


class Link(NamedTuple):
    """A reference to another record: a `period` by its id, or a `run` by its idempotency key."""

    kind: str
    id: str

    def to_dict(self) -> dict[str, str]:
        """Return the JSON object."""
        return {"kind": self.kind, "id": self.id}


class Fact(NamedTuple):
    """One link of the chain: a stable code, a sentence for people, its instant and the records it names."""

    code: str
    sentence: str
    at: int | None = None
    links: tuple[Link, ...] = ()

    @property
    def at_text(self) -> str | None:
        """Return the instant in UTC with milliseconds."""
        return None if self.at is None else f"{rfc3339(self.at // 1000)[:-1]}.{self.at % 1000:03}Z"

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object."""
        links = [link.to_dict() for link in self.links]
        return {"code": str(self.code), "sentence": self.sentence, "at": self.at_text, "links": links}


def period_link(nominal_time: EpochSeconds) -> Link:
    """Return a reference to a period."""
    return Link("period", rfc3339(nominal_time))
