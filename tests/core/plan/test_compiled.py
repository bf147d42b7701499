"""Caches by text: short texts are bounded by their number, long ones by their length."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kron.core.plan.compiled import LONG, LongTexts, cached_by_text


def counted(most: int, most_long: int) -> tuple[Callable[[str | None], int], list[str | None]]:
    made: list[str | None] = []

    @cached_by_text(most, most_long)
    def length(text: str | None) -> int:
        made.append(text)
        return len(text or "")

    return length, made


def test_a_text_is_read_once() -> None:
    length, made = counted(10, 10 * LONG)
    long = "x" * (LONG + 1)
    assert [length(text) for text in (long, "a", None, long, "a", None)] == [len(long), 1, 0] * 2
    assert made == [long, "a", None]


def test_long_texts_together_have_a_bounded_length() -> None:
    texts = LongTexts[str](1_000)
    for number in range(50):
        assert texts.get(number, 300, lambda: "value") == "value"
        assert len(texts) <= 3


def test_the_least_recently_used_long_text_is_dropped_first() -> None:
    length, made = counted(10, 3 * LONG)
    first, second, third = (letter * (LONG + 1) for letter in "abc")
    for text in (first, second, first, third, first):
        length(text)
    assert made == [first, second, third]
    length(second)
    assert made == [first, second, third, second]


def test_a_text_longer_than_all_of_the_cache_is_read_each_time() -> None:
    length, made = counted(10, LONG)
    text = "x" * (LONG + 1)
    assert length(text) == length(text) == LONG + 1
    assert made == [text, text]


def test_threads_share_a_cache() -> None:
    length, _ = counted(10, 4 * LONG)
    texts = [f"{number}".ljust(LONG + 1) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(length, texts * 50)) == {LONG + 1}


def test_a_cache_can_be_cleared() -> None:
    length, made = counted(10, 4 * LONG)
    texts = ["a", "x" * (LONG + 1)]
    for _ in range(2):
        for text in texts:
            length(text)
        length.cache_clear()  # type: ignore[attr-defined]
    assert made == texts * 2
