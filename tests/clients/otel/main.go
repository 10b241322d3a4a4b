// Profiles with known values through the OpenTelemetry collector's own exporters: otlp_http or
// otlp (gRPC), configured from a map as the collector configures them from its file.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

type host struct{}

func (host) GetExtensions() map[component.ID]component.Component { return nil }

// profiles is one profile of CPU time: burnHot 300 ms, burnCold 100 ms, both below main.
func profiles(service string, at time.Time) pprofile.Profiles {
	p := pprofile.NewProfiles()
	d := p.Dictionary()
	text := func(s string) int32 {
		d.StringTable().Append(s)
		return int32(d.StringTable().Len() - 1)
	}
	text("")
	d.MappingTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	for _, name := range []string{"main", "burnHot", "burnCold"} {
		d.FunctionTable().AppendEmpty().SetNameStrindex(text(name))
		d.LocationTable().AppendEmpty().Lines().AppendEmpty().
			SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
	}
	job := d.AttributeTable().AppendEmpty()
	job.SetKeyStrindex(text("job"))
	job.Value().SetStr("burn")

	r := p.ResourceProfiles().AppendEmpty()
	r.Resource().Attributes().PutStr("service.name", service)
	r.Resource().Attributes().PutStr("region", "north")
	profile := r.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	profile.SetTime(pcommon.NewTimestampFromTime(at))
	profile.SetDurationNano(uint64(time.Second))
	profile.SampleType().SetTypeStrindex(text("cpu"))
	profile.SampleType().SetUnitStrindex(text("nanoseconds"))
	profile.PeriodType().SetTypeStrindex(profile.SampleType().TypeStrindex())
	profile.PeriodType().SetUnitStrindex(profile.SampleType().UnitStrindex())
	profile.SetPeriod(10_000_000)
	for leaf, value := range []int64{2: 300_000_000, 3: 100_000_000} {
		if value == 0 {
			continue
		}
		d.StackTable().AppendEmpty().LocationIndices().FromRaw([]int32{int32(leaf), 1})
		sample := profile.Samples().AppendEmpty()
		sample.SetStackIndex(int32(d.StackTable().Len() - 1))
		sample.Values().FromRaw([]int64{value})
		sample.AttributeIndices().Append(int32(d.AttributeTable().Len() - 1))
	}
	return p
}

func settings() map[string]any {
	headers := map[string]any{}
	if tenant := os.Getenv("TENANT"); tenant != "" {
		headers["X-Scope-OrgID"] = tenant
	}
	if token := os.Getenv("BEARER"); token != "" {
		headers["Authorization"] = "Bearer " + token
	}
	tls := map[string]any{"insecure": os.Getenv("CA_FILE") == ""}
	if ca := os.Getenv("CA_FILE"); ca != "" {
		tls["ca_file"] = ca
	}
	return map[string]any{"endpoint": os.Getenv("SERVER"), "headers": headers, "tls": tls}
}

func run() error {
	ctx := context.Background()
	factory := otlphttpexporter.NewFactory()
	if os.Getenv("PROTOCOL") == "grpc" {
		factory = otlpexporter.NewFactory()
	}
	config := factory.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(settings()).Unmarshal(config); err != nil {
		return err
	}
	out, err := factory.(xexporter.Factory).CreateProfiles(ctx, exporter.Settings{
		ID: component.NewID(factory.Type()),
		TelemetrySettings: component.TelemetrySettings{
			Logger:         zap.NewExample(),
			TracerProvider: nooptrace.NewTracerProvider(),
			MeterProvider:  noop.NewMeterProvider(),
			Resource:       pcommon.NewResource(),
		},
		BuildInfo: component.NewDefaultBuildInfo(),
	}, config)
	if err != nil {
		return err
	}
	if err := out.Start(ctx, host{}); err != nil {
		return err
	}
	for i := 0; i < 10; i++ { // ten profiles of a second each
		at := time.Now().Add(time.Duration(i-11) * time.Second)
		if err := out.ConsumeProfiles(ctx, profiles(os.Getenv("APP"), at)); err != nil {
			return err
		}
	}
	return out.Shutdown(ctx) // sends what is queued
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
