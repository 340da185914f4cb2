package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const franzBatchBytes = 512 // the smallest that it takes

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// Without AlwaysRetryEOF it takes a lost connection that is young for a mistake in SASL.
func franzClient(given arguments, more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(given.Bootstrap, ",")...),
		kgo.AlwaysRetryEOF(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, more...)...)
	if err != nil {
		failed(err)
	}
	return client
}

// Every record whose promise has an error is counted. One that is given no producer id goes on without, in silence.
func franzProducer(given arguments) {
	chosen := given.Settings
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(franzCodecs[given.Compression]),
		kgo.ProducerBatchMaxBytes(franzBatchBytes),
		kgo.MaxBufferedRecords(chosen.RecordsAtOnce),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProduceRequestTimeout(time.Duration(chosen.RequestSeconds) * time.Second),
		kgo.RequestTimeoutOverhead(time.Duration(chosen.RequestSeconds) * time.Second),
		kgo.RecordDeliveryTimeout(time.Duration(chosen.DeliverySeconds) * time.Second),
	}
	if !chosen.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if chosen.InFlight > 0 {
		options = append(options, kgo.MaxProduceRequestsInflightPerBroker(chosen.InFlight))
	}
	client := franzClient(given, options...)
	told := newTold(given)
	told.eachRecord(func(partition int32, value []byte) {
		record := &kgo.Record{Topic: given.Topic, Partition: partition, Value: value}
		for _, name := range given.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte{1}})
		}
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			if err != nil {
				told.failed(err)
			} else {
				told.acknowledged(record.Value, record.Offset)
			}
		})
	})
	if err := client.Flush(context.Background()); err != nil {
		told.failed(err)
	}
	client.Close()
	told.finish()
}

// Reads as a member of a group; any error of a fetch or a commit ends it.
func franzReader(given arguments) {
	reading := newRead(given)
	client := franzClient(given,
		kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMaxAge(5*time.Second))
	commit := func() bool {
		err := client.CommitUncommittedOffsets(context.Background())
		if err != nil {
			reading.noticed(err)
		}
		return err == nil
	}
	for reading.goesOn() {
		waits, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(waits)
		stop()
		for _, one := range fetches.Errors() {
			var session *kgo.ErrGroupSession
			if errors.As(one.Err, &session) || given.LivesOn && !errors.Is(one.Err, context.DeadlineExceeded) {
				reading.noticed(one.Err) // it joins again
			} else if !errors.Is(one.Err, context.DeadlineExceeded) {
				failed(fmt.Errorf("an error of a fetch reached the user: %w", one.Err))
			}
		}
		fetches.EachRecord(func(record *kgo.Record) { reading.record(record.Partition, record.Offset, record.Value) })
		if reading.commitIsDue() {
			commit()
		}
	}
	for !commit() {
		time.Sleep(500 * time.Millisecond)
	}
	committed := franzCommitted(client, given)
	client.Close()
	reading.finish(committed)
}

func franzCommitted(client *kgo.Client, given arguments) map[string]int64 {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = given.Group
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic = given.Topic
	for partition := int32(0); partition < given.Partitions; partition++ {
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(context.Background(), client)
	if err != nil {
		failed(err)
	}
	committed := map[string]int64{}
	for _, topic := range answer.Topics {
		for _, one := range topic.Partitions {
			committed[fmt.Sprint(one.Partition)] = one.Offset
		}
	}
	return committed
}
