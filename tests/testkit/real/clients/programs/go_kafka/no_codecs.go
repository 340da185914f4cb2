//go:build kafka_go_0_2

package main

import "github.com/segmentio/kafka-go"

// It compresses the value of each message in place of the set of them, and reads so. Brokers take no such message.
var codecs = map[string]kafka.CompressionCodec{}
