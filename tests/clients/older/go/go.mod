module embertree.test/client

go 1.25.0

require github.com/grafana/pyroscope-go v1.2.7

require (
	github.com/grafana/pyroscope-go/godeltaprof v0.1.9 // indirect
	github.com/klauspost/compress v1.17.8 // indirect
)
