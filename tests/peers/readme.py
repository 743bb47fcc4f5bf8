"""What a document shows, run as it stands: each client's code by its language, each command by a shell.

    readme.py FILE LANGUAGE..    these have to be in it; `curl` and `printf` are commands of consoles

Only the two default ports are replaced by the server's. Code says `first` when it is run for the first time,
and nothing when it is run again; a command answers what is written below it.
"""

import json
import os
import re
import subprocess
import sys

DOCUMENT, *WANTED = sys.argv[1:]
PORTS = {"6623": os.environ["PEER_HTTP"], "6624": os.environ["PEER_REDIS"]}
# How a language is run, and what stands before its code.
LANGUAGES = {
    "php": (["php"], "<?php\n"),
    "python": (["python3"], ""),
    "js": (["node"], ""),
    "ruby": (["ruby"], ""),
    "bash": (["bash", "-euo", "pipefail"], ""),
    "go": (["bash", "-c", "cat >$PEER_DIR/main.go && go run $PEER_DIR/main.go"], ""),
}
COMMANDS = ["curl", "printf"]
# A server that is started for good is not a call; every other command is one.
NOT_CALLS = re.compile(r"cargo |\S*onced serve")


def main():
    with open(DOCUMENT, encoding="utf-8") as file:
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", file.read(), re.M | re.S)
    calls = [step for name, text in blocks if name == "console" for step in steps(text)]
    for word in filter(COMMANDS.__contains__, WANTED):
        assert any(command.startswith(word) for command, _ in calls), f"no {word} in it"
    # In order, on a fresh store: tokens count from 1.
    for command, expected in calls:
        run_command(command, expected)
    for command, _ in calls:
        assert "acquired" not in shell(command), f"{command}: acquired again"
    for word in filter(COMMANDS.__contains__, WANTED):
        print(f"ok {word}", flush=True)
    for language in filter(LANGUAGES.__contains__, WANTED):
        mine = [code for name, code in blocks if name == language]
        assert mine, f"no {language} in it"
        for code in mine:
            run_code(language, code)
        print(f"ok {language}", flush=True)


def real(text):
    return re.sub("|".join(PORTS), lambda port: PORTS[port[0]], text)


def run_code(language, code):
    runner, before = LANGUAGES[language]
    source = before + real(code)
    for expected in ("first\n", ""):
        run = subprocess.run(runner, input=source, capture_output=True, text=True, timeout=60)
        seen = (run.returncode, run.stdout, run.stderr)
        assert seen == (0, expected, ""), f"{language}: {seen}"


def steps(text):
    """Each call with what is written below it."""
    for step in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = step.partition("\n")
        if not NOT_CALLS.match(command):
            yield command, expected


def shell(command):
    # curl shows its progress where its output is not a terminal, and only there.
    run = subprocess.run(["bash", "-c", real(command)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, f"{command}: {run}"
    return run.stdout


def run_command(command, expected):
    answer = shell(command)
    if expected:
        assert facts(answer) == facts(expected), f"{command}: {answer}"
    else:
        # The answer to a line on the Redis port: names and values in turn.
        assert re.search(r"^outcome\s+\$8\s+acquired\s", answer, re.M), f"{command}: {answer}"


def facts(answer):
    """An answer without what differs from run to run: times, and what is left of a lease."""
    moving = re.compile(r"_at$|_ms$")
    return {name: value for name, value in json.loads(answer).items() if not moving.search(name)}


main()
