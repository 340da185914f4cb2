package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

var kafkaGoCodecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

const kafkaGoTriesMax = 10_000

// It has no idempotence. A record's partition is in its key until it is sent.
type byNumber struct{}

func (byNumber) Balance(message kafka.Message, _ ...int) int {
	partition, _ := position(message.Value)
	return int(partition)
}

func kafkaGoProducer(given arguments) {
	chosen := given.Settings
	told := newTold(given)
	var unanswered sync.WaitGroup
	writer := &kafka.Writer{
		Addr:            kafka.TCP(strings.Split(given.Bootstrap, ",")...),
		Topic:           given.Topic,
		Balancer:        byNumber{},
		MaxAttempts:     kafkaGoTriesMax,
		WriteBackoffMin: 100 * time.Millisecond,
		WriteBackoffMax: 500 * time.Millisecond,
		BatchSize:       chosen.RecordsAtOnce,
		BatchTimeout:    5 * time.Millisecond,
		ReadTimeout:     time.Duration(chosen.RequestSeconds) * time.Second,
		WriteTimeout:    time.Duration(chosen.RequestSeconds) * time.Second,
		RequiredAcks:    kafka.RequireAll,
		Async:           true,
		Compression:     kafkaGoCodecs[given.Compression],
		Transport:       &kafka.Transport{MetadataTTL: time.Second},
		Completion: func(messages []kafka.Message, err error) {
			for _, message := range messages {
				if err != nil {
					told.failed(err)
				} else {
					told.acknowledged(message.Value, message.Offset)
				}
				unanswered.Done()
			}
		},
	}
	told.eachRecord(func(_ int32, value []byte) {
		message := kafka.Message{Value: value}
		for _, name := range given.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: name, Value: []byte{1}})
		}
		unanswered.Add(1)
		if err := writer.WriteMessages(context.Background(), message); err != nil {
			failed(err)
		}
	})
	unanswered.Wait()
	if err := writer.Close(); err != nil {
		failed(err)
	}
	told.finish()
}
