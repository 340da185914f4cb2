// Small programs around sarama 1.19, whose requests are those of the release in settings.version. They are built together
// with program.go of the folder go. Usage: clients producer|reader JSON
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4,
}

const recordsAtOnce = 10

// What only these programs are given.
type more struct {
	TimeMs   *int64 `json:"time_ms"`
	Settings struct {
		Version string `json:"version"`
	} `json:"settings"`
}

func main() {
	if len(os.Args) != 3 {
		failed(fmt.Errorf("usage: %s producer|reader JSON", os.Args[0]))
	}
	var given arguments
	var own more
	for _, into := range []any{&given, &own} {
		if err := json.Unmarshal([]byte(os.Args[2]), into); err != nil {
			failed(err)
		}
	}
	version, err := sarama.ParseKafkaVersion(own.Settings.Version)
	if err != nil {
		failed(err)
	}
	config := sarama.NewConfig()
	config.Version = version
	switch {
	case os.Args[1] == "producer":
		produce(given, config)
	case given.Group == "":
		readAlone(given, config, own.TimeMs)
	case version.IsAtLeast(sarama.V0_10_2_0):
		readAsMember(given, config)
	default:
		readWithOffsets(given, config)
	}
}

func produce(given arguments, config *sarama.Config) {
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[given.Compression]
	config.Producer.Flush.MaxMessages = recordsAtOnce
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Return.Successes = true
	told := newTold(given)
	producer, err := sarama.NewAsyncProducer(strings.Split(given.Bootstrap, ","), config)
	if err != nil {
		failed(err)
	}
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
		unanswered.Add(1)
		producer.Input() <- &sarama.ProducerMessage{Topic: given.Topic, Partition: partition, Value: sarama.ByteEncoder(value)}
	})
	unanswered.Wait()
	producer.AsyncClose()
	told.finish()
}

// A client, and what reads whole partitions.
func consumer(given arguments, config *sarama.Config) (sarama.Client, sarama.Consumer) {
	client, err := sarama.NewClient(strings.Split(given.Bootstrap, ","), config)
	if err != nil {
		failed(err)
	}
	made, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		failed(err)
	}
	return client, made
}

// Reads all partitions from these offsets on, until there is enough. Calls took with each message.
func readPartitions(given arguments, from sarama.Consumer, reading *read, offsets []int64, took func(*sarama.ConsumerMessage)) {
	messages := make(chan *sarama.ConsumerMessage)
	for partition, offset := range offsets {
		one, err := from.ConsumePartition(given.Topic, int32(partition), offset)
		if err != nil {
			failed(err)
		}
		go func() {
			for message := range one.Messages() {
				messages <- message
			}
		}()
	}
	for reading.goesOn() {
		select {
		case message := <-messages:
			reading.record(message.Partition, message.Offset, message.Value)
			took(message)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func readAlone(given arguments, config *sarama.Config, timeMs *int64) {
	client, from := consumer(given, config)
	given.Group = "alone"
	reading := newRead(given)
	offsets := make([]int64, given.Partitions)
	for partition := range offsets {
		offsets[partition] = sarama.OffsetOldest
	}
	readPartitions(given, from, reading, offsets, func(*sarama.ConsumerMessage) {})
	ends, times := map[string]int64{}, map[string]int64{}
	for partition := int32(0); partition < given.Partitions; partition++ {
		ends[fmt.Sprint(partition)] = offsetAt(client, given.Topic, partition, sarama.OffsetNewest)
		if timeMs != nil {
			times[fmt.Sprint(partition)] = offsetAt(client, given.Topic, partition, *timeMs)
		}
	}
	reading.finishWith(map[string]any{"ends": ends, "times": times})
}

func offsetAt(client sarama.Client, topic string, partition int32, when int64) int64 {
	found, err := client.GetOffset(topic, partition, when)
	if err != nil {
		failed(err)
	}
	return found
}

// Before 0.10.2 sarama has no members of groups, but it commits a group's offsets.
func readWithOffsets(given arguments, config *sarama.Config) {
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, from := consumer(given, config)
	reading := newRead(given)
	manager, places := managed(given, client)
	offsets := []int64{}
	for _, place := range places {
		next, _ := place.NextOffset()
		offsets = append(offsets, next)
	}
	readPartitions(given, from, reading, offsets, func(message *sarama.ConsumerMessage) {
		places[message.Partition].MarkOffset(message.Offset+1, "")
	})
	for _, place := range places {
		if err := place.Close(); err != nil {
			failed(err)
		}
	}
	if err := manager.Close(); err != nil {
		failed(err)
	}
	reading.finishWith(map[string]any{"committed": committed(given, client)})
}

func managed(given arguments, client sarama.Client) (sarama.OffsetManager, []sarama.PartitionOffsetManager) {
	manager, err := sarama.NewOffsetManagerFromClient(given.Group, client)
	if err != nil {
		failed(err)
	}
	places := []sarama.PartitionOffsetManager{}
	for partition := int32(0); partition < given.Partitions; partition++ {
		place, err := manager.ManagePartition(given.Topic, partition)
		if err != nil {
			failed(err)
		}
		places = append(places, place)
	}
	return manager, places
}

func committed(given arguments, client sarama.Client) map[string]int64 {
	_, places := managed(given, client)
	found := map[string]int64{}
	for partition, place := range places {
		found[fmt.Sprint(partition)], _ = place.NextOffset()
	}
	return found
}

// What is left of a session's claims is read by several goroutines.
type member struct {
	sync.Mutex
	reading *read
	done    context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
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
		more := m.reading.goesOn()
		m.Unlock()
		if !more {
			m.done()
			return nil
		}
	}
}

// The end of a session commits.
func readAsMember(given arguments, config *sarama.Config) {
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient(strings.Split(given.Bootstrap, ","), config)
	if err != nil {
		failed(err)
	}
	group, err := sarama.NewConsumerGroupFromClient(given.Group, client)
	if err != nil {
		failed(err)
	}
	reading := newRead(given)
	ends, done := context.WithDeadline(context.Background(), reading.end)
	for ends.Err() == nil {
		if err := group.Consume(ends, []string{given.Topic}, &member{reading: reading, done: done}); err != nil && ends.Err() == nil {
			failed(err)
		}
	}
	if err := group.Close(); err != nil {
		failed(err)
	}
	reading.finishWith(map[string]any{"committed": committed(given, client)})
}

// Ends the program with these in its last line, too.
func (r *read) finishWith(more map[string]any) {
	if err := r.file.Flush(); err != nil {
		failed(err)
	}
	if err := r.closed(); err != nil {
		failed(err)
	}
	more["records"] = r.records
	finish(more, !r.goesOn() && time.Now().Before(r.end))
}
