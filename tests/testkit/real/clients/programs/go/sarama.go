package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

const saramaRetriesMax = 10_000 // it makes room for each of them

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Metadata.Retry.Max = 100
	config.Metadata.Retry.Backoff = 100 * time.Millisecond
	config.Metadata.RefreshFrequency = 5 * time.Second
	return config
}

// Every record that comes back as an error is counted. Idempotent, it takes one request in flight only.
func saramaProducer(given arguments) {
	chosen := given.Settings
	config := saramaConfig()
	config.Net.MaxOpenRequests = 1
	config.Net.ReadTimeout = time.Duration(2*chosen.RequestSeconds) * time.Second
	config.Producer.Idempotent = chosen.Idempotent
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Timeout = time.Duration(chosen.RequestSeconds) * time.Second
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = saramaCodecs[given.Compression]
	config.Producer.Retry.Max = saramaRetriesMax
	config.Producer.Retry.Backoff = 100 * time.Millisecond
	config.Producer.Flush.MaxMessages = chosen.RecordsAtOnce
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Return.Successes = true
	config.ChannelBufferSize = chosen.RecordsAtOnce
	told := newTold(given)
	producer, err := sarama.NewAsyncProducer(strings.Split(given.Bootstrap, ","), config)
	if err != nil {
		failed(err)
	}
	// One that is closed gives up what it would send again, so all answers are waited for first.
	var unanswered sync.WaitGroup
	go func() {
		for message := range producer.Successes() {
			told.acknowledged(message.Value.(sarama.ByteEncoder), message.Offset)
			unanswered.Done()
		}
	}()
	go func() {
		for err := range producer.Errors() {
			told.failed(err.Err)
			unanswered.Done()
		}
	}()
	told.eachRecord(func(partition int32, value []byte) {
		message := &sarama.ProducerMessage{Topic: given.Topic, Partition: partition, Value: sarama.ByteEncoder(value)}
		for _, name := range given.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(name), Value: []byte{1}})
		}
		unanswered.Add(1)
		producer.Input() <- message
	})
	unanswered.Wait()
	producer.AsyncClose()
	told.finish()
}

// What is left of a session's claims is read by several goroutines.
type saramaMember struct {
	sync.Mutex
	reading *read
	done    context.CancelFunc
}

func (m *saramaMember) Setup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.Lock()
			m.reading.record(message.Partition, message.Offset, message.Value)
			m.Unlock()
			session.MarkMessage(message, "")
		case <-look.C:
		case <-session.Context().Done():
			return nil
		}
		m.Lock()
		due, more := m.reading.commitIsDue(), m.reading.goesOn()
		m.Unlock()
		if due {
			session.Commit()
		}
		if !more {
			m.done()
			return nil
		}
	}
}

// Reads as a member of a group; any error that reaches the user ends it.
func saramaReader(given arguments) {
	config := saramaConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Retry.Max = 100
	config.Consumer.Group.Rebalance.Retry.Max = 100
	config.Consumer.Return.Errors = true
	addresses := strings.Split(given.Bootstrap, ",")
	group, err := sarama.NewConsumerGroup(addresses, given.Group, config)
	if err != nil {
		failed(err)
	}
	reading := newRead(given)
	ends, done := context.WithDeadline(context.Background(), reading.end)
	member := &saramaMember{reading: reading, done: done}
	go func() {
		for err := range group.Errors() { // it goes on
			member.Lock()
			reading.noticed(err)
			member.Unlock()
		}
	}()
	for ends.Err() == nil {
		if err := group.Consume(ends, []string{given.Topic}, member); err != nil && !errors.Is(err, context.Canceled) {
			member.Lock()
			reading.noticed(err) // its session ended: the next call begins another
			member.Unlock()
		}
	}
	admin, err := sarama.NewClusterAdmin(addresses, config)
	if err != nil {
		failed(err)
	}
	places := []int32{}
	for partition := int32(0); partition < given.Partitions; partition++ {
		places = append(places, partition)
	}
	answer, err := admin.ListConsumerGroupOffsets(given.Group, map[string][]int32{given.Topic: places})
	if err != nil {
		failed(err)
	}
	committed := map[string]int64{}
	for partition, block := range answer.Blocks[given.Topic] {
		committed[fmt.Sprint(partition)] = block.Offset
	}
	reading.finish(committed)
}
