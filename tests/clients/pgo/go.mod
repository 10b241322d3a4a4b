module example.test/pgo

go 1.21
