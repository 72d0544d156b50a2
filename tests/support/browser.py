"""Debian's Chromium without a window, driven by Selenium over its chromedriver; neither downloads anything.

It loads files and pages of this machine, and whatever address a page wants beyond them is on record. axe-core, which
looks for what keeps people from reading a page, is the copy within axe-core-python.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

PROGRAMS, MODULES = ("chromium", "chromedriver"), ("selenium", "axe_core_python")
AXE = "axe.min.js"
SCRIPT_LIMIT = 120  # seconds, for axe on a busy machine
MAX_STEPS = 400  # presses of Tab
KEYS = {  # their codes, and what they write
    "Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""),
    "End": (35, ""), "Home": (36, ""), "ArrowLeft": (37, ""), "ArrowRight": (39, ""),
}  # fmt: skip

# What a reader would call broken, by the boxes that the browser has drawn.
LAYOUT = """
const found = [], wide = document.scrollingElement.scrollWidth, room = document.documentElement.clientWidth;
if (wide > room) found.push(`the page is ${wide} wide in a window of ${room}`);
const inner = (box, frame) => box.left >= frame.left - 1 && box.right <= frame.right + 1
  && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
for (const svg of document.querySelectorAll("svg")) {
  const name = svg.getAttribute("aria-label"), frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].filter(text => text.getClientRects().length)
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  texts.forEach(([text, box], index) => {
    if (!inner(box, frame)) found.push(`${name}: '${text}' is cut`);
    for (const [other, below] of texts.slice(index + 1))
      if (overlap(box, below)) found.push(`${name}: '${text}' is over '${other}'`);
  });
}
for (const cell of document.querySelectorAll("td, th, pre, p, figcaption, summary, h1, h2, h3")) {
  const box = cell.getBoundingClientRect();
  if (box.width && (box.right > room + 1 || box.left < -1) && !cell.closest(".scroll"))
    found.push(`'${cell.textContent.slice(0, 40)}' leaves the window`);
}
for (const heading of document.querySelectorAll("thead th"))
  if (!/\\s/.test(heading.textContent.trim()) && heading.getClientRects().length && heading.firstChild) {
    const range = document.createRange();
    range.selectNodeContents(heading);
    if (range.getClientRects().length > 1) found.push(`the heading '${heading.textContent}' is broken`);
  }
return found;
"""
# What the focus is on: where it is in the page, and whether that can be seen.
FOCUS = """
const one = document.activeElement;
if (!one || one === document.body) return null;
const style = getComputedStyle(one);
return {place: [...document.querySelectorAll("*")].indexOf(one), tag: one.tagName.toLowerCase(),
        visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1};
"""
RUN_AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  result => done(result.violations.map(
    one => `${one.id}: ${one.nodes.length} x ${one.nodes[0].html.slice(0, 200)} ${one.nodes[0].failureSummary}`)),
  error => done([String(error)]));
"""


def find_missing() -> list[str]:
    """Name what is not installed of a browser that tests can drive."""
    programs = [name for name in PROGRAMS if shutil.which(name) is None]
    return programs + [name for name in MODULES if importlib.util.find_spec(name) is None]


NEEDS_BROWSER = pytest.mark.skipif(
    bool(find_missing()),
    reason=f"no browser: {', '.join(find_missing())} missing; `./test --all` installs them",
)


class Browser:
    """One window; `driver` is Selenium's."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(self, page: Path | str, width: int = 1280, *, dark: bool = False, height: int = 900) -> None:
        """Load a file or an address in a window of some width, by a reader who prefers light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
        self._read_log("performance")
        self._read_log("browser")
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script of ours in the page, whose policy does not bind it."""
        return self.driver.execute_script(script, *arguments)

    def find_broken_layout(self) -> list[str]:
        """Name texts that are cut, that are over each other, or that leave the window."""
        found: list[str] = self.run(LAYOUT)
        return found

    def find_barriers(self) -> list[str]:
        """Run axe-core: what keeps a person from reading or using the page."""
        self.driver.set_script_timeout(SCRIPT_LIMIT)
        source = resources.files(MODULES[1]).joinpath(AXE).read_text(encoding="utf-8")
        self.run(source)
        found: list[str] = self.driver.execute_async_script(RUN_AXE)
        return found

    def walk(self) -> list[dict[str, Any]]:
        """Press Tab until the focus leaves the page: what had it, in order."""
        steps: list[dict[str, Any]] = []
        for _ in range(MAX_STEPS):
            self.press("Tab")
            focus = self.run(FOCUS)
            if focus is None or (steps and focus["place"] == steps[0]["place"]):
                return steps
            steps.append(focus)
        raise AssertionError(f"the focus never leaves the page: {steps[-3:]}")

    def press(self, key: str) -> None:
        """Press a key, as the keyboard does."""
        code, text = KEYS[key]
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", event)

    def wait_for(self, condition: str, what: str) -> None:
        """Wait until an expression of JavaScript holds in the page."""
        wait_until(lambda: self.run(f"return Boolean({condition})"), what)

    def list_requests(self) -> list[str]:
        """Give all addresses that were asked for since the page was shown, its own included."""
        messages = [json.loads(entry["message"])["message"] for entry in self._read_log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def list_complaints(self) -> list[str]:
        """Give what the browser has written to its console: errors, and what the page's policy has stopped."""
        return [entry["message"] for entry in self._read_log("browser")]

    def take_picture(self, file: Path, height: int | None = None, scale: float = 1) -> None:
        """Write the page as PNG, all of it or its upper part, as large as it is or smaller."""
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": scale}
        options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        file.write_bytes(b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))

    def print_to(self, file: Path) -> None:
        """Write the page as a printer gets it, on A4."""
        options = {"printBackground": False, "paperWidth": 8.27, "paperHeight": 11.69}
        file.write_bytes(b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", options)["data"]))

    def _read_log(self, name: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log(name)
        return entries


@contextmanager
def start_browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile, and end it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    switches = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
    switches += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
    for switch in (*switches, "--disable-background-networking", "--hide-scrollbars", "--no-first-run"):
        options.add_argument(switch)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get("about:blank")  # else the page of a new tab may still be loading beside the first one
        yield Browser(driver)
    finally:
        driver.quit()
