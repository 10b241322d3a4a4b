// SPDX-License-Identifier: Apache-2.0

// Asks everything querier.v1 has with the generated client that Grafana's data source uses, by
// every protocol that client speaks, and prints one JSON object: protocol -> method -> answer.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(name string) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	fatal(err)
	return n
}

// HTTP/1.1 and HTTP/2 as TLS says, or HTTP/2 alone (gRPC), without TLS by prior knowledge.
func client(h2 bool) *http.Client {
	config := &tls.Config{}
	if file := os.Getenv("CA_FILE"); file != "" {
		pem, err := os.ReadFile(file)
		fatal(err)
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(pem)
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	}
	if !h2 {
		return &http.Client{Transport: &http.Transport{}}
	}
	return &http.Client{Transport: &http2.Transport{AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}}
}

// One call; the answer as canonical JSON, or the code of the error.
func ask[Req, Res any](call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
	message *Req) any {
	request := connect.NewRequest(message)
	if tenant := os.Getenv("TENANT"); tenant != "" {
		request.Header().Set("X-Scope-OrgID", tenant)
	}
	if token := os.Getenv("BEARER"); token != "" {
		request.Header().Set("Authorization", "Bearer "+token)
	}
	reply, err := call(context.Background(), request)
	if err != nil {
		return map[string]string{"error": connect.CodeOf(err).String(), "text": err.Error()}
	}
	text, err := protojson.Marshal(any(reply.Msg).(proto.Message))
	fatal(err)
	var answer any
	fatal(json.Unmarshal(text, &answer))
	return answer
}

func all(c querierv1connect.QuerierServiceClient) map[string]any {
	start, end, kind, selector := number("START"), number("END"), os.Getenv("TYPE"), os.Getenv("SELECTOR")
	matchers := []string{selector}
	merge := func(format querierv1.ProfileFormat) *querierv1.SelectMergeStacktracesRequest {
		return &querierv1.SelectMergeStacktracesRequest{ProfileTypeID: kind, LabelSelector: selector,
			Start: start, End: end, MaxNodes: proto.Int64(1000), Format: format}
	}
	out := map[string]any{
		"ProfileTypes": ask(c.ProfileTypes, &querierv1.ProfileTypesRequest{Start: start, End: end}),
		"LabelNames": ask(c.LabelNames, &typesv1.LabelNamesRequest{Matchers: matchers, Start: start,
			End: end}),
		"LabelValues": ask(c.LabelValues, &typesv1.LabelValuesRequest{Name: "service_name",
			Matchers: matchers, Start: start, End: end}),
		"Series": ask(c.Series, &querierv1.SeriesRequest{Matchers: matchers,
			LabelNames: []string{"service_name", "env"}, Start: start, End: end}),
		"Flame": ask(c.SelectMergeStacktraces, merge(querierv1.ProfileFormat_PROFILE_FORMAT_FLAMEGRAPH)),
		"Tree":  ask(c.SelectMergeStacktraces, merge(querierv1.ProfileFormat_PROFILE_FORMAT_TREE)),
		"Dot":   ask(c.SelectMergeStacktraces, merge(querierv1.ProfileFormat_PROFILE_FORMAT_DOT)),
		"Pprof": ask(c.SelectMergeStacktraces, merge(querierv1.ProfileFormat_PROFILE_FORMAT_PPROF)),
		"Profile": ask(c.SelectMergeProfile, &querierv1.SelectMergeProfileRequest{ProfileTypeID: kind,
			LabelSelector: selector, Start: start, End: end}),
		"Spans": ask(c.SelectMergeSpanProfile, &querierv1.SelectMergeSpanProfileRequest{
			ProfileTypeID: kind, LabelSelector: selector, Start: start, End: end,
			SpanSelector: []string{"00000000000000aa"}}),
		"SelectSeries": ask(c.SelectSeries, &querierv1.SelectSeriesRequest{ProfileTypeID: kind,
			LabelSelector: selector, Start: start, End: end, Step: 15, GroupBy: []string{"env"},
			Limit: proto.Int64(5)}),
		"Heatmap": ask(c.SelectHeatmap, &querierv1.SelectHeatmapRequest{ProfileTypeID: kind,
			LabelSelector: selector, Start: start, End: end, Step: 60,
			QueryType: querierv1.HeatmapQueryType_HEATMAP_QUERY_TYPE_INDIVIDUAL}),
		"Diff":            ask(c.Diff, &querierv1.DiffRequest{Left: merge(0), Right: merge(0)}),
		"GetProfileStats": ask(c.GetProfileStats, &typesv1.GetProfileStatsRequest{}),
		"AnalyzeQuery": ask(c.AnalyzeQuery, &querierv1.AnalyzeQueryRequest{Start: start, End: end,
			Query: kind + selector}),
		"Wrong": ask(c.LabelNames, &typesv1.LabelNamesRequest{Matchers: []string{"{"}, Start: start,
			End: end}),
	}
	return out
}

func main() {
	url := os.Getenv("SERVER")
	out := map[string]any{}
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "connect-gzip": {connect.WithSendGzip()}, "connect-json": {connect.WithProtoJSON()},
		"grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
		"grpc-web-json": {connect.WithGRPCWeb(), connect.WithProtoJSON()}} {
		out[name] = all(querierv1connect.NewQuerierServiceClient(client(name == "grpc"), url, options...))
	}
	fatal(json.NewEncoder(os.Stdout).Encode(out))
}
