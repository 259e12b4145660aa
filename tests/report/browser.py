"""A headless Chromium that tests drive over a pipe; there is no network in it."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)


def executable() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `errors` are what its scripts threw and its console said: of blocked scripts, too."""

    def __init__(self, profile: Path):
        (there, self.write), (self.read, back) = os.pipe(), os.pipe()

        def ends() -> None:
            os.dup2(there, 3)
            os.dup2(back, 4)

        first, second = os.dup(there), os.dup(back)  # above 4, where the copies go
        there, back = first, second
        command = [str(executable()), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            command, preexec_fn=ends, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.number, self.buffer, self.session = 0, b"", ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": given} | (
            {"sessionId": self.session} if self.session else {}
        )
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            told = self.message()
            if told.get("id") == self.number:
                assert "error" not in told, told
                return told["result"]
            self.hear(told)

    def message(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            part = os.read(self.read, 1 << 20)
            assert part, "the browser is gone"
            self.buffer += part
        one, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(one)

    def hear(self, told: dict[str, Any]) -> None:
        method, given = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(given["exceptionDetails"].get("exception", {}).get("description")))
        elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(given["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    def open(self, path: Path, fragment: str = "") -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{path.as_uri()}{fragment}")
        self.until("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, expression: str) -> None:
        self.evaluate(
            f"new Promise((done, gone) => {{ const start = Date.now(); const look = () => ({expression}) ? done(true) : "
            "Date.now() - start > 20000 ? gone(new Error('not within 20 s')) : setTimeout(look, 20); look(); })"
        )

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def look(self, width: int, height: int, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> None:
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self.write)
        os.close(self.read)
