// SPDX-License-Identifier: Apache-2.0

// Three times as much of hot as of cold, and memory that is kept.
package main

import (
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

var sink uint64
var kept [][]byte

//go:noinline
func spin(n uint64) uint64 {
	x := n
	for i := uint64(0); i < n; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

//go:noinline
func hot() { sink += spin(3e6) }

//go:noinline
func cold() { sink += spin(1e6) }

//go:noinline
func keep() { kept = append(kept, make([]byte, 1<<20)) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	cpu, err := os.Create(os.Args[1])
	must(err)
	must(pprof.StartCPUProfile(cpu))
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		hot()
		cold()
		if len(kept) < 16 {
			keep()
		}
	}
	pprof.StopCPUProfile()
	runtime.GC()
	heap, err := os.Create(os.Args[2])
	must(err)
	must(pprof.WriteHeapProfile(heap))
}
