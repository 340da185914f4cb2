//go:build !kafka_go_0_2

package main

import (
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/gzip"
	"github.com/segmentio/kafka-go/lz4"
	"github.com/segmentio/kafka-go/snappy"
	"github.com/segmentio/kafka-go/zstd"
)

var codecs = map[string]kafka.CompressionCodec{
	"gzip": gzip.NewCompressionCodec(), "snappy": snappy.NewCompressionCodec(), "lz4": lz4.NewCompressionCodec(),
	"zstd": zstd.NewCompressionCodec(),
}
