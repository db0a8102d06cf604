"""A real browser without a window, led by the pipe that it offers for that.

Its only way to a network is this host: names are not resolved, and what it would like to tell its makers has no proxy.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.support import Closing, cannot_here

#: seconds that a browser may take for anything
PATIENCE: Final = 90.0
#: without a window, and without what a browser does for itself
QUIET: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage"),
    *("--disable-features=OptimizationHints,MediaRouter,Translate", "--no-default-browser-check"),
)

#: the contrast of texts, and what is wider than the window
MEASURE: Final = """(() => {
  const rgb = text => { const n = text.match(/[0-9.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const light = colour => {
    const [r, g, b] = colour.map(n => (n /= 255) <= .03928 ? n / 12.92 : ((n + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const texts = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, box = node.getBoundingClientRect();
    if (!walk.currentNode.data.trim() || !box.width || node.closest("noscript, .unseen")) continue;
    const style = getComputedStyle(node), paper = light(behind(node));
    const ink = light(rgb(node.closest("svg") ? style.fill : style.color));
    texts.push([(Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05), walk.currentNode.data.trim()]);
  }
  texts.sort((one, other) => one[0] - other[0]);
  const top = document.documentElement;
  const wide = [...document.querySelectorAll("body *")].filter(node => {
    const box = node.getBoundingClientRect();
    const out = box.right > top.clientWidth + 1 || box.left < -1;
    return box.width > 1 && out && !node.closest(".skip, .unseen, thead");
  });
  return {scroll: top.scrollWidth, texts: texts.length, least: texts.slice(0, 3),
          wide: wide.map(node => node.outerHTML.slice(0, 80)), paper: light(behind(document.body))};
})()"""


def find_browser() -> str:
    """Chromium; a test that needs it is skipped without."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        cannot_here("there is no chromium")
    if "snap" in str(Path(found).resolve()):
        cannot_here("chromium is a snap, which sees none of our files")
    return found


class Browser(Closing):
    """One browser with one page; ``said`` are errors and warnings of the page and of its console."""

    def __init__(self) -> None:
        program = find_browser()
        self._place = tempfile.TemporaryDirectory(prefix="bccnd-browser-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # It reads from descriptor 3 and writes to 4; the shell puts them there, whatever numbers they have.
        shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        flags = [
            *QUIET,
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            *("--force-color-profile=srgb", "--font-render-hinting=none", "--remote-debugging-pipe"),
            f"--user-data-dir={self._place.name}",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *flags, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._asked = 0
        self._session = ""
        self.output: list[str] = []
        #: addresses that the page asked for, and those of them that its own policy has kept back
        self.asked: list[str] = []
        self.forbidden: list[str] = []
        self._requests: dict[str, str] = {}
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    # -- the pipe

    def ask(self, method: str, **params: Any) -> Any:
        """Have something done, and wait for the answer."""
        self._asked += 1
        number = self._asked
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        one, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(one)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.output.append(str(params["exceptionDetails"].get("exception", params)))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.output.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.output.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
                self._requests[params["requestId"]] = params["request"]["url"]
            case "Network.loadingFailed" if params.get("blockedReason") == "csp":
                self.forbidden.append(self._requests[params["requestId"]])

    # -- what people do

    def look(self, width: int = 1280, height: int = 800, *, dark: bool = False, script: bool = True) -> None:
        """With a window of that size, and a preference."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)

    def go(self, url: str) -> None:
        self.ask("Page.navigate", url=url)
        self.until(lambda: self.see("document.readyState") == "complete" and self.see("location.href") == url, url)

    def see(self, expression: str) -> Any:
        """The value of an expression in the page, also where its own policy would forbid it to evaluate one."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, done: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.05)

    def press(self, key: str, code: int, *, shift: bool = False) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                modifiers=8 if shift else 0,
            )

    def picture(self, *, whole: bool = False) -> bytes:
        """What is seen, as PNG."""
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return base64.b64decode(self.ask("Page.captureScreenshot", **options)["data"])

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
        self._place.cleanup()
