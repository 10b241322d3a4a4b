"""A workload with a known hot function under the Python SDK: three quarters of the CPU time belong
to burn_hot, one quarter to burn_cold."""
import inspect
import os
import time

import pyroscope


def burn_hot(rounds):
    x = 1
    for i in range(rounds):
        x = (x * 6364136223846793005 + i) & 0xffffffff
    return x


def burn_cold(rounds):
    x = 2
    for i in range(rounds):
        x = (x * 2862933555777941757 + i) & 0xffffffff
    return x


def main():
    token = os.environ.get("BEARER")
    often = {"upload_interval": 5}  # before 1.0 it was always 10 s
    if "upload_interval" not in inspect.signature(pyroscope.configure).parameters:
        often = {}
    pyroscope.configure(
        application_name=os.environ["APP"],
        server_address=os.environ["SERVER"],
        basic_auth_username=os.environ.get("BASIC_USER", ""),
        basic_auth_password=os.environ.get("BASIC_PASSWORD", ""),
        tenant_id=os.environ.get("TENANT", ""),
        http_headers={"Authorization": "Bearer " + token} if token else {},
        tags={"region": "north"},
        enable_logging=True,
        **often,
    )
    until = time.monotonic() + int(os.environ["SECONDS_TO_RUN"])
    with pyroscope.tag_wrapper({"job": "burn"}):
        while time.monotonic() < until:
            burn_hot(300_000)
            burn_cold(100_000)
    time.sleep(1)
    pyroscope.shutdown()


main()
