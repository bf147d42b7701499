"""A real browser that a test operates: it opens pages, clicks, types and presses keys, and keeps its console.

It is driven over a pipe with the Chrome DevTools Protocol, so nothing has to be installed beside Chromium.
"""

import base64
import fcntl
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.service.browser import CHROMIUM, PATIENCE_S, QUIETLY
from tests.waiting import wait_for

Answer = dict[str, Any]
# Copies of files get numbers from here on.
FIRST_FREE = 20
# Keys that are no text, with their codes.
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
# Returns the visible element with a text or a label, or that a selector names.
FIND = """(wanted) => {
  const isSeen = (each) => each.getClientRects().length && getComputedStyle(each).visibility !== "hidden";
  const controls = "a, button, summary, select, input, textarea";
  const named = [...document.querySelectorAll(controls)].filter(isSeen);
  const labelOf = (each) => each.labels?.[0]?.innerText || "";
  const nameOf = (each) => (each.getAttribute("aria-label") || each.innerText || labelOf(each)).trim();
  const found = named.find((each) => nameOf(each) === wanted);
  if (found) return found;
  try { return [...document.querySelectorAll(wanted)].find(isSeen) || null; } catch { /* a text */ }
  return named.find((each) => nameOf(each).startsWith(wanted)) || null;
}"""


class Chromium:
    """One browser with one tab."""

    def __init__(self, folder: Path, *options: str) -> None:
        assert CHROMIUM is not None
        into, self._write = os.pipe()
        self._read, out = os.pipe()
        argv = [
            CHROMIUM,
            *QUIETLY,
            "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
            *options,
        ]

        def connect() -> None:
            # Chromium reads commands from file 3 and answers on file 4.
            high = [fcntl.fcntl(file, fcntl.F_DUPFD, FIRST_FREE) for file in (into, out)]
            for number, file in zip((3, 4), high, strict=True):
                os.dup2(file, number)

        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                argv,
                close_fds=False,
                preexec_fn=connect,  # noqa: PLW1509 - nothing else is done there
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(into)
        os.close(out)
        self._numbers = count(1)
        self._answers: dict[int, Answer] = {}
        self._session: str | None = None
        self._loads = 0
        # What the pages wrote to the console, and errors of loading and of the content security policy.
        self.console: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    # --- the protocol ----------------------------------------------------------------------------

    def _listen(self) -> None:
        left = b""
        while part := os.read(self._read, 1 << 20):
            *messages, left = (left + part).split(b"\0")
            for message in messages:
                self._handle(json.loads(message))

    def _handle(self, message: Answer) -> None:
        values = message.get("params", {})
        match message.get("method"):
            case None:
                self._answers[message["id"]] = message
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning", "assert"):
                self.console.append(str([each.get("value") for each in values["args"]]))
            case "Runtime.exceptionThrown":
                self.console.append(str(values["exceptionDetails"].get("exception", {}).get("description")))
            case "Log.entryAdded" if values["entry"]["level"] in ("error", "warning"):
                self.console.append(f"{values['entry']['text']} {values['entry'].get('url', '')}".strip())

    def _call(self, method: str, values: Mapping[str, object] | None = None) -> Answer:
        number = next(self._numbers)
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": number, "method": method, "params": values or {}, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = wait_for(lambda: self._answers.pop(number, None), lambda: f"no answer to {method}")
        assert "error" not in answer, (method, values, answer)
        result: Answer = answer["result"]
        return result

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        os.close(self._write)

    # --- pages -----------------------------------------------------------------------------------

    def show(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Change the size of the window and the colour scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # Colours that are still changing are no colours of a theme.
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self._call("Emulation.setEmulatedMedia", {"media": "", "features": [scheme, motion]})

    def on_paper(self) -> None:
        """Show pages as they are printed, until `show` is called again."""
        self._call("Emulation.setEmulatedMedia", {"media": "print"})

    def zone(self, key: str) -> None:
        """Move the viewer to a time zone; an empty one is that of the host."""
        self._call("Emulation.setTimezoneOverride", {"timezoneId": key})

    def scripts(self, *, run: bool) -> None:
        """Let pages run their scripts, or not; what a test asks of a page is answered all the same."""
        self._call("Emulation.setScriptExecutionDisabled", {"value": not run})

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        before = self._loads
        self._call("Page.navigate", {"url": url})
        wait_for(lambda: self._loads > before, lambda: f"{url} to load")

    def js(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        values = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", values)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    @property
    def text(self) -> str:
        """Return the visible words of the page."""
        return str(self.js("document.body.innerText"))

    @property
    def path(self) -> str:
        """Return the address of the page, below its host."""
        return str(self.js("location.pathname + location.search"))

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        wait_for(lambda: text in self.text, lambda: f"{text!r} on {self.path}: {self.text}")

    def forget_cookies(self) -> list[Answer]:
        """Remove all cookies, and return them."""
        known: list[Answer] = self._call("Network.getCookies")["cookies"]
        self._call("Network.clearBrowserCookies")
        return known

    def remember_cookies(self, cookies: list[Answer]) -> None:
        """Set cookies that were removed."""
        names = ("name", "value", "domain", "path", "httpOnly", "sameSite", "secure")
        kept = [{name: each[name] for name in names if name in each} for each in cookies]
        self._call("Network.setCookies", {"cookies": kept})

    # --- what a person does ----------------------------------------------------------------------

    def _with(self, wanted: str, work: str) -> Any:
        """Do something with an element `it`: one with a name, or of a selector."""
        it = f"({FIND})({json.dumps(wanted)})"
        assert self.js(f"Boolean({it})"), f"nothing named {wanted!r} on {self.path}: {self.text}"
        return self.js(f"(() => {{ const it = {it}; {work} }})()")

    def click(self, wanted: str) -> None:
        """Click the middle of an element: a text or label, or a selector."""
        box = self._with(
            wanted,
            "it.scrollIntoView({block: 'center'}); const box = it.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2];",
        )
        place = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", {"type": kind, **place})

    def follow(self, wanted: str) -> None:
        """Click something that leads to another page, and wait until that is loaded."""
        before = self._loads
        self.click(wanted)
        wait_for(lambda: self._loads > before, lambda: f"a page after {wanted!r}: {self.text}")

    def type(self, wanted: str, text: str) -> None:
        """Type into a field, in place of what it has."""
        self._with(wanted, "it.focus(); it.select?.();")
        self._call("Input.insertText", {"text": text})

    def choose(self, wanted: str, option: str) -> None:
        """Choose an option of a list."""
        self._with(
            wanted,
            f"const option = [...it.options].find((each) => each.text === {json.dumps(option)}); "
            "it.value = option.value; it.dispatchEvent(new Event('change', {bubbles: true}));",
        )

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = KEYS.get(key)
        text = "\r" if key == "Enter" else key if code in (None, 32) else None
        values: dict[str, object] = {"key": key, "windowsVirtualKeyCode": code or ord(key.upper())}
        down = {**values, "type": "keyDown", **({} if text is None else {"text": text})}
        self._call("Input.dispatchKeyEvent", down)
        self._call("Input.dispatchKeyEvent", {**values, "type": "keyUp"})

    def picture(self, file: Path, *, whole: bool = False) -> bytes:
        """Write the page as a PNG: what the window shows, or the whole of it."""
        values: dict[str, object] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.js("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
            values["clip"] = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        png = base64.b64decode(self._call("Page.captureScreenshot", values)["data"])
        file.write_bytes(png)
        return png


@contextmanager
def chromium(folder: Path, *options: str) -> Iterator[Chromium]:
    """Run a browser."""
    browser = Chromium(folder, *options)
    try:
        yield browser
    finally:
        browser.close()
