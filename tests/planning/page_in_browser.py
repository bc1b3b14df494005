"""A program that opens a page in Qt's browser and prints what it finds there as JSON: `PAGE WIDTH light|dark`."""

from __future__ import annotations

import json
import os
import sys

FINDINGS = """JSON.stringify((() => {
  const width = document.documentElement.clientWidth;
  const parts = [...document.querySelectorAll("i[title]")];
  const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  parts[0].focus();
  const first = document.querySelector(".told").textContent;
  press("ArrowRight");
  return {
    wide: [...document.querySelectorAll("body *")]
      .filter((item) => item.getBoundingClientRect().right > width + 1).map((item) => item.outerHTML.slice(0, 80)),
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    stops: document.querySelectorAll('i[tabindex="0"]').length,
    first, second: document.querySelector(".told").textContent, titles: parts.slice(0, 2).map((part) => part.title),
  };
})())"""


def look(page: str, width: int, scheme: str) -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    dark = " --blink-settings=preferredColorScheme=0" if scheme == "dark" else ""
    os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = f"--no-sandbox --disable-gpu{dark}"
    from PyQt6.QtCore import QTimer, QUrl
    from PyQt6.QtWebEngineCore import QWebEnginePage
    from PyQt6.QtWebEngineWidgets import QWebEngineView
    from PyQt6.QtWidgets import QApplication

    messages = []

    class Page(QWebEnginePage):
        def javaScriptConsoleMessage(self, level, message, line, source):  # noqa: N802 - Qt's name
            messages.append(message)

    def finish(found: str) -> None:
        sys.stdout.write(json.dumps({**json.loads(found), "messages": messages}))
        if len(sys.argv) > 4:
            view.grab().save(sys.argv[4])
        application.quit()

    application = QApplication(sys.argv[:1])
    view = QWebEngineView()
    view.setPage(Page(view))
    view.resize(width, 2000)
    view.loadFinished.connect(lambda _done: QTimer.singleShot(500, lambda: view.page().runJavaScript(FINDINGS, finish)))
    view.load(QUrl.fromLocalFile(page))
    view.show()
    QTimer.singleShot(60_000, application.quit)
    application.exec()


if __name__ == "__main__":
    look(sys.argv[1], int(sys.argv[2]), sys.argv[3])
