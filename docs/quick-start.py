#!/usr/bin/env python3
"""Runs the quick start and draws it as docs/quick-start.svg: python3 docs/quick-start.py [PATH-OF-MAINSTAY]

The program is target/debug/mainstay unless another one is named; git and kubectl are needed.
"""

import html
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = [
    "mainstay get gitsyncs --all-namespaces",
    "kubectl -n shop scale deployment web --replicas 5",
    "kubectl -n shop delete service api",
    "mainstay status",
]
WIDTH, LINE, MARGIN, FONT = 100, 18, 16, 13
COLOURS = {"command": "#ffffff", "output": "#c9d1d9"}


def until(holds, what):
    """Waits for a condition, for a minute at most."""
    end = time.monotonic() + 60
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"not within a minute: {what}")
        time.sleep(0.05)


def session(mainstay):
    """Returns the commands and their output, line by line."""
    with tempfile.TemporaryDirectory() as room:
        link = pathlib.Path(room, "bin")
        link.mkdir()
        (link / "mainstay").symlink_to(mainstay)
        kubeconfig = pathlib.Path(room, ".mainstay/kubeconfig")
        environment = {
            "PATH": f"{link}:{os.environ['PATH']}", "HOME": room, "KUBECONFIG": str(kubeconfig),
            "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Ada",
            "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "ada@example.com",
        }  # fmt: skip

        def run(command):
            done = subprocess.run(
                command, shell=True, cwd=room, env=environment, text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            return done.stdout

        with open(pathlib.Path(room, "log"), "w", encoding="utf-8") as log:
            dev = subprocess.Popen(["mainstay", "dev"], cwd=room, env=environment, stdout=log, stderr=log)
            try:
                until(lambda: "9/9" in run("mainstay status -A") or "9 managed, 9 healthy" in run("mainstay status"), "the first sync")
                lines = []
                for step in STEPS:
                    if step == STEPS[-1]:
                        until(lambda: "2 times" in run("mainstay status"), "both reverts")
                    lines.append(("command", f"$ {step}"))
                    lines += [("output", line[:WIDTH]) for line in run(step).splitlines()]
                    lines.append(("output", ""))
                return [(kind, line.replace(room, "~/shop")) for kind, line in lines]
            finally:
                dev.send_signal(signal.SIGINT)
                dev.wait()


def picture(lines):
    """Draws lines as a terminal."""
    height = 2 * MARGIN + LINE * len(lines)
    width = 2 * MARGIN + int(WIDTH * FONT * 0.62)
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (number + 1) - 5}" fill="{COLOURS[kind]}" xml:space="preserve">{html.escape(line)}</text>'
        for number, (kind, line) in enumerate(lines)
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{FONT}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        *rows,
        "</svg>",
        "",
    ])


if __name__ == "__main__":
    program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "target/debug/mainstay").resolve()
    (HERE / "quick-start.svg").write_text(picture(session(program)), encoding="utf-8")
