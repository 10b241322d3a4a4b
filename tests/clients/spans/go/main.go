// Two traces of one span each under the Go SDK and its OpenTelemetry wrapper: all of burnHot belongs
// to the span `checkout`, all of burnCold to `cart`. Prints the ids of both as JSON.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"time"

	otelpyroscope "github.com/grafana/otel-profiling-go"
	"github.com/grafana/pyroscope-go"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

var sink uint64

//go:noinline
func burnHot(rounds int) {
	for i := 0; i < rounds; i++ {
		sink = sink*6364136223846793005 + uint64(i)
	}
}

//go:noinline
func burnCold(rounds int) {
	for i := 0; i < rounds; i++ {
		sink = sink*2862933555777941757 + uint64(i)
	}
}

func within(tracer api.Tracer, name string, burn func(int), long time.Duration) map[string]string {
	_, span := tracer.Start(context.Background(), name)
	for until := time.Now().Add(long); time.Now().Before(until); {
		burn(1_000_000)
	}
	span.End()
	ids := span.SpanContext()
	return map[string]string{"span": ids.SpanID().String(), "trace": ids.TraceID().String()}
}

func main() {
	seconds, err := strconv.Atoi(os.Getenv("SECONDS_TO_RUN"))
	if err != nil {
		log.Fatal(err)
	}
	config := pyroscope.Config{
		ApplicationName:   os.Getenv("APP"),
		ServerAddress:     os.Getenv("SERVER"),
		BasicAuthUser:     os.Getenv("BASIC_USER"),
		BasicAuthPassword: os.Getenv("BASIC_PASSWORD"),
		TenantID:          os.Getenv("TENANT"),
		UploadRate:        5 * time.Second,
		ProfileTypes:      []pyroscope.ProfileType{pyroscope.ProfileCPU},
	}
	if token := os.Getenv("BEARER"); token != "" {
		config.HTTPHeaders = map[string]string{"Authorization": "Bearer " + token}
	}
	profiler, err := pyroscope.Start(config)
	if err != nil {
		log.Fatal(err)
	}
	tracer := otelpyroscope.NewTracerProvider(trace.NewTracerProvider()).Tracer("shop")
	part := time.Duration(seconds) * time.Second / 4
	ids := map[string]map[string]string{
		"checkout": within(tracer, "checkout", burnHot, 3*part),
		"cart":     within(tracer, "cart", burnCold, part),
	}
	if err := profiler.Stop(); err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(ids); err != nil {
		log.Fatal(err)
	}
}
