// SPDX-License-Identifier: Apache-2.0

// Burns CPU through an interface, which a compiler with a profile can call directly.
package main

import (
	"fmt"
	"os"
	"runtime/pprof"
	"time"
)

type shape interface{ area(int) int }
type square struct{ side int }
type circle struct{ radius int }

func (s square) area(i int) int { return s.side*s.side + i }
func (c circle) area(i int) int { return 3*c.radius*c.radius + i }

//go:noinline
func sum(s shape, n int) int {
	t := 0
	for i := 0; i < n; i++ {
		t += s.area(i)
	}
	return t
}

func main() {
	if len(os.Args) > 1 {
		f, err := os.Create(os.Args[1])
		if err != nil {
			panic(err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			panic(err)
		}
		defer func() { pprof.StopCPUProfile(); f.Close() }()
	}
	t := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		t += sum(square{3}, 100000) + sum(circle{2}, 100)
	}
	fmt.Println(t != 0)
}
