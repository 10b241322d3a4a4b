// A program that waits to be asked: Go's net/http/pprof, godeltaprof and fgprof on one address, with a
// known hot function, memory that is allocated and a lock that is
// fought over. It asks for the credentials that it is given, serves TLS if it is given a
// certificate, and prints at its end how many MiB it allocated.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/felixge/fgprof"
	delta "github.com/grafana/pyroscope-go/godeltaprof/http/pprof"
)

var (
	sink uint64
	kept []byte
)

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

//go:noinline
func allocate() {
	kept = make([]byte, 1<<20)
}

//go:noinline
func waitForNothing() {
	time.Sleep(time.Hour)
}

func fightForLock(mu *sync.Mutex) {
	for {
		mu.Lock()
		time.Sleep(2 * time.Millisecond)
		mu.Unlock()
	}
}

func allowed(r *http.Request) bool {
	if token := os.Getenv("BEARER"); token != "" {
		return r.Header.Get("Authorization") == "Bearer "+token
	}
	user, password, ok := r.BasicAuth()
	return ok && user == os.Getenv("BASIC_USER") && password == os.Getenv("BASIC_PASSWORD")
}

func serve(listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index) // allocs, heap, goroutine, mutex, block
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.Handle("/debug/fgprof", fgprof.Handler())
	mux.HandleFunc("/debug/pprof/delta_heap", delta.Heap)
	mux.HandleFunc("/debug/pprof/delta_mutex", delta.Mutex)
	mux.HandleFunc("/debug/pprof/delta_block", delta.Block)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	if cert := os.Getenv("CERT_FILE"); cert != "" {
		return server.ServeTLS(listener, cert, os.Getenv("KEY_FILE"))
	}
	return server.Serve(listener)
}

func main() {
	seconds, err := strconv.Atoi(os.Getenv("SECONDS_TO_RUN"))
	if err != nil {
		log.Fatal(err)
	}
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	listener, err := net.Listen("tcp", os.Getenv("LISTEN"))
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(serve(listener)) }()
	var mu sync.Mutex
	for range 4 {
		go fightForLock(&mu)
	}
	go waitForNothing()
	pieces := 0
	for until := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(until); {
		burnHot(3_000_000)
		burnCold(1_000_000)
		allocate()
		pieces++
	}
	fmt.Println(pieces)
}
