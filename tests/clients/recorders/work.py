"""A workload with a known hot function for py-spy: three quarters of the time belong to burn_hot, one
quarter to burn_cold."""
import os
import time


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


until = time.monotonic() + int(os.environ["SECONDS_TO_RUN"])
while time.monotonic() < until:
    burn_hot(300_000)
    burn_cold(100_000)
