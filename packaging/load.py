#!/usr/bin/env python3
"""Claims over both faces without a pause, for packaging/test-deb: it may be restarted, killed and upgraded meanwhile.

    load.py run FILE     until SIGTERM; writes each acknowledged claim to FILE
    load.py check FILE   every claim in FILE has to be there, with its token

A connection that is refused is a failure: there are socket units. One that ends without an answer is asked again, with the
same claim id over HTTP and a value of its own over the Redis protocol.
"""
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time

CLIENTS = 4
HTTP, REDIS = 6623, 6624
running = True
refused, asked_again, longest = [], [0], [0.0]
lock = threading.Lock()


def over_http(key):
    connection = http.client.HTTPConnection("localhost", HTTP, timeout=60)
    try:
        connection.request("POST", f"/v1/claims/default/{key}?claim_id=id-{key}&lease=1h")
        answer = connection.getresponse()
        told = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status in (503, 409) and told["outcome"] in ("unavailable", "busy"):
        raise ConnectionError(told["outcome"])
    assert told["outcome"] == "acquired", told
    return str(told["token"])


def over_redis(key):
    with socket.create_connection(("localhost", REDIS), timeout=60) as connection:
        connection.sendall(f"SET {key} mine-{key} NX GET EX 3600\r\n".encode())
        reply = b""
        while not reply.endswith(b"\r\n"):
            got = connection.recv(4096)
            if not got:
                raise ConnectionError("no reply")
            reply += got
    if reply.startswith((b"-LOADING", b"-TRYAGAIN")):
        raise ConnectionError(reply)
    # Nobody had it, or my own value comes back.
    assert reply == b"$-1\r\n" or f"mine-{key}".encode() in reply, reply
    return "-"


def client(number, file):
    turn = 0
    while running and not refused:
        turn += 1
        face, name = ((over_http, "h"), (over_redis, "r"))[turn % 2]
        key = f"{name}-{os.getpid()}-{number}-{turn}"
        begun = time.monotonic()
        while not refused:
            try:
                token = face(key)
                break
            except ConnectionRefusedError as error:
                refused.append(f"{key}: {error}")
            except (OSError, http.client.HTTPException, ValueError):
                with lock:
                    asked_again[0] += 1
            except AssertionError as error:
                refused.append(f"{key}: not what was promised: {error}")
        else:
            return
        with lock:
            longest[0] = max(longest[0], time.monotonic() - begun)
            file.write(f"{key} {token}\n")


def run(path):
    def stop(*_):
        global running
        running = False

    signal.signal(signal.SIGTERM, stop)
    with open(path, "w", encoding="utf-8") as file:
        threads = [threading.Thread(target=client, args=(n, file)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with open(path, encoding="utf-8") as file:
        claims = sum(1 for _ in file)
    print(f"{claims} claims, {asked_again[0]} asked again, longest {longest[0]:.1f} s, refused {refused}")
    return 1 if refused or claims == 0 else 0


def check(path):
    connection = http.client.HTTPConnection("localhost", HTTP, timeout=60)
    checked = 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, token = line.split()
            connection.request("GET", f"/v1/claims/default/{key}")
            answer = connection.getresponse()
            record = json.loads(answer.read())
            if answer.status != 200 or token not in ("-", str(record["token"])):
                print(f"{key} with token {token} was acknowledged, and there is: {record}")
                return 1
            checked += 1
    print(f"{checked} claims are there")
    return 0 if checked else 1


sys.exit({"run": run, "check": check}[sys.argv[1]](sys.argv[2]))
