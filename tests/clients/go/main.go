// A workload with a known hot function under the Go SDK: three quarters of the CPU time belong to
// burnHot, one quarter to burnCold; some memory is kept, some lock is fought over.
package main

import (
	"context"
	"log"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/grafana/pyroscope-go"
)

var (
	sink uint64
	kept [][]byte
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
func keepMemory() {
	kept = append(kept, make([]byte, 1<<20))
}

//go:noinline
func fightForLock(until time.Time) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := 0; n < 4; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(until) {
				mu.Lock()
				time.Sleep(2 * time.Millisecond)
				mu.Unlock()
			}
		}()
	}
	all.Wait()
}

func main() {
	seconds, err := strconv.Atoi(os.Getenv("SECONDS_TO_RUN"))
	if err != nil {
		log.Fatal(err)
	}
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName:   os.Getenv("APP"),
		ServerAddress:     os.Getenv("SERVER"),
		BasicAuthUser:     os.Getenv("BASIC_USER"),
		BasicAuthPassword: os.Getenv("BASIC_PASSWORD"),
		TenantID:          os.Getenv("TENANT"),
		HTTPHeaders:       bearer(),
		Tags:              map[string]string{"region": "north"},
		UploadRate:        5 * time.Second,
		Logger:            pyroscope.StandardLogger,
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU, pyroscope.ProfileAllocObjects, pyroscope.ProfileAllocSpace,
			pyroscope.ProfileInuseObjects, pyroscope.ProfileInuseSpace, pyroscope.ProfileGoroutines,
			pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration,
			pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	go fightForLock(until)
	pyroscope.TagWrapper(context.Background(), pyroscope.Labels("job", "burn"),
		func(context.Context) {
			for time.Now().Before(until) {
				burnHot(3_000_000)
				burnCold(1_000_000)
				if len(kept) < 64 {
					keepMemory()
				}
			}
		})
	if err := profiler.Stop(); err != nil {
		log.Fatal(err)
	}
}

func bearer() map[string]string {
	if token := os.Getenv("BEARER"); token != "" {
		return map[string]string{"Authorization": "Bearer " + token}
	}
	return nil
}
