# SPDX-License-Identifier: Apache-2.0
"""Three times as much of hot as of cold."""
import time


def spin(n):
    x = n
    for _ in range(n):
        x = x * 1103515245 + 12345 & 0xFFFFFFFF
    return x


def hot():
    return spin(30000)


def cold():
    return spin(10000)


def main():
    end = time.monotonic() + 4
    while time.monotonic() < end:
        hot()
        cold()


main()
