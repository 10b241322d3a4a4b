import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Scope;

/** Two traces of one span each under OpenTelemetry's Java agent with the profiler as its extension:
 *  all of burnHot belongs to the span `checkout`, all of burnCold to `cart`. Prints the ids of both as
 *  JSON. */
public final class Spans {
    static volatile long sink;

    static void burnHot(long until) {
        while (System.nanoTime() < until) {
            long x = sink;
            for (int i = 0; i < 1_000_000; i++)
                x = x * 6364136223846793005L + (x >>> 7) + i;
            sink = x;
        }
    }

    static void burnCold(long until) {
        while (System.nanoTime() < until) {
            long x = sink;
            for (int i = 0; i < 1_000_000; i++)
                x = x * 2862933555777941757L + (x >>> 7) + i;
            sink = x;
        }
    }

    interface Burner {
        void burn(long until);
    }

    static String within(String name, Burner burner, long nanoseconds) {
        Span span = GlobalOpenTelemetry.getTracer("shop").spanBuilder(name).startSpan();
        try (Scope scope = span.makeCurrent()) {
            burner.burn(System.nanoTime() + nanoseconds);
        } finally {
            span.end();
        }
        SpanContext ids = span.getSpanContext();
        return String.format("\"%s\": {\"span\": \"%s\", \"trace\": \"%s\"}", name, ids.getSpanId(),
                             ids.getTraceId());
    }

    public static void main(String[] args) throws Exception {
        long part = Integer.parseInt(System.getenv("SECONDS_TO_RUN")) * 1_000_000_000L / 4;
        String checkout = within("checkout", Spans::burnHot, 3 * part);
        String cart = within("cart", Spans::burnCold, part);
        Thread.sleep(7000); // the profiler uploads every five seconds
        System.out.println("{" + checkout + ", " + cart + "}");
    }
}
