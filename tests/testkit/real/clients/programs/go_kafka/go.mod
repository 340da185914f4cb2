module example.test/old

go 1.21

require github.com/segmentio/kafka-go v0.3.10

require (
	github.com/golang/snappy v0.0.1 // indirect
	github.com/klauspost/compress v1.9.8 // indirect
	github.com/pierrec/lz4 v2.0.5+incompatible // indirect
)
