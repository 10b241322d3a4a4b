"""Two traces of one span each under the Python SDK and its OpenTelemetry processor: all of burn_hot
belongs to the span `checkout`, all of burn_cold to `cart`. Prints the ids of both as JSON."""
import json
import os
import time

from opentelemetry.sdk.trace import TracerProvider
import pyroscope
from pyroscope.otel import PyroscopeSpanProcessor


def burn_hot(until):
    x = 1
    while time.monotonic() < until:
        for i in range(10000):
            x = (x * 6364136223846793005 + i) & 0xffffffff
    return x


def burn_cold(until):
    x = 2
    while time.monotonic() < until:
        for i in range(10000):
            x = (x * 2862933555777941757 + i) & 0xffffffff
    return x


def within(tracer, name, burn, seconds):
    with tracer.start_as_current_span(name) as span:
        burn(time.monotonic() + seconds)
    ids = span.get_span_context()
    return {"span": format(ids.span_id, "016x"), "trace": format(ids.trace_id, "032x")}


def main():
    token = os.environ.get("BEARER")
    pyroscope.configure(
        application_name=os.environ["APP"],
        server_address=os.environ["SERVER"],
        basic_auth_username=os.environ.get("BASIC_USER", ""),
        basic_auth_password=os.environ.get("BASIC_PASSWORD", ""),
        tenant_id=os.environ.get("TENANT", ""),
        http_headers={"Authorization": "Bearer " + token} if token else {},
        upload_interval=5,
    )
    provider = TracerProvider()
    provider.add_span_processor(PyroscopeSpanProcessor())
    tracer = provider.get_tracer("shop")
    part = int(os.environ["SECONDS_TO_RUN"]) / 4
    ids = {"checkout": within(tracer, "checkout", burn_hot, 3 * part),
           "cart": within(tracer, "cart", burn_cold, part)}
    time.sleep(1)
    pyroscope.shutdown()
    print(json.dumps(ids), flush=True)


main()
