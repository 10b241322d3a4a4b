// SPDX-License-Identifier: Apache-2.0

// k8s reads manifests from standard input and decodes each one into the type of its kind, strictly: an
// unknown field, a wrong kind of value or an object nobody knows is an error. ServiceMonitors and
// PrometheusRules, which are not part of Kubernetes, are passed over. Prints how many objects there were.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	docs := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	count, failed := 0, false
	for {
		doc, err := docs.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if !strings.Contains(string(doc), "kind:") {
			continue
		}
		count++
		if s := string(doc); strings.Contains(s, "kind: ServiceMonitor") || strings.Contains(s, "kind: PrometheusRule") {
			continue
		}
		if _, _, err := strict.Decode(doc, nil, nil); err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%v\n%s\n", err, doc)
		}
	}
	fmt.Println(count)
	if failed {
		os.Exit(1)
	}
}
