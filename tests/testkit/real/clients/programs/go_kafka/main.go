// Small programs around kafka-go before 0.4, which has other calls than the later ones. They are built together with
// program.go of the folder go. Usage: clients producer|reader JSON
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	recordsAtOnce  = 10
	noOffset       = -1 // a writer tells none
	patient        = 30 * time.Second
	sessionTimeout = 10 * time.Second
	longestWait    = 500 * time.Millisecond
	largestFetch   = 1 << 20
)

// What only these programs are given.
type more struct {
	TimeMs *int64 `json:"time_ms"`
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
	switch {
	case os.Args[1] == "producer":
		produce(given)
	case given.Group == "":
		readAlone(given, own.TimeMs)
	default:
		readAsMember(given)
	}
}

func addresses(given arguments) []string {
	return strings.Split(given.Bootstrap, ",")
}

// The place that a value names.
func named(message kafka.Message, _ ...int) int {
	partition, _ := position(message.Value)
	return int(partition)
}

func produce(given arguments) {
	told := newTold(given)
	writer := kafka.NewWriter(kafka.WriterConfig{
		Brokers:          addresses(given),
		Topic:            given.Topic,
		Balancer:         kafka.BalancerFunc(named),
		BatchSize:        recordsAtOnce,
		BatchTimeout:     5 * time.Millisecond,
		ReadTimeout:      patient,
		WriteTimeout:     patient,
		RequiredAcks:     -1,
		CompressionCodec: codecs[given.Compression],
	})
	waiting := make([][]kafka.Message, given.Partitions)
	write := func(partition int32) {
		messages := waiting[partition]
		waiting[partition] = nil
		err := writer.WriteMessages(context.Background(), messages...)
		for _, message := range messages {
			if err != nil {
				told.failed(err)
			} else {
				told.acknowledged(message.Value, noOffset)
			}
		}
	}
	told.eachRecord(func(partition int32, value []byte) {
		waiting[partition] = append(waiting[partition], kafka.Message{Value: value})
		if len(waiting[partition]) == recordsAtOnce {
			write(partition)
		}
	})
	for partition := range waiting {
		write(int32(partition))
	}
	if err := writer.Close(); err != nil {
		failed(err)
	}
	told.finish()
}

// What both readers ask for.
func config(given arguments) kafka.ReaderConfig {
	return kafka.ReaderConfig{
		Brokers:  addresses(given),
		Topic:    given.Topic,
		MinBytes: 1,
		MaxBytes: largestFetch,
		MaxWait:  longestWait,
	}
}

// Commits where it stopped, once.
func readAsMember(given arguments) {
	reading := newRead(given)
	wanted := config(given)
	wanted.GroupID = given.Group
	wanted.SessionTimeout = sessionTimeout
	reader := kafka.NewReader(wanted)
	ends, stop := context.WithDeadline(context.Background(), reading.end)
	defer stop()
	latest := map[int]kafka.Message{}
	for reading.goesOn() {
		message, err := reader.FetchMessage(ends)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		} else if err != nil {
			failed(err)
		}
		reading.record(int32(message.Partition), message.Offset, message.Value)
		latest[message.Partition] = message
	}
	done := []kafka.Message{}
	for _, message := range latest {
		done = append(done, message)
	}
	if err := reader.CommitMessages(context.Background(), done...); err != nil {
		failed(err)
	}
	if err := reader.Close(); err != nil {
		failed(err)
	}
	end(reading, map[string]any{})
}

func readAlone(given arguments, timeMs *int64) {
	given.Group = "alone"
	reading := newRead(given)
	messages := make(chan kafka.Message)
	for partition := 0; partition < int(given.Partitions); partition++ {
		wanted := config(given)
		wanted.Partition = partition
		reader := kafka.NewReader(wanted) // from the first offset on
		go func() {
			for {
				message, err := reader.FetchMessage(context.Background())
				if err != nil {
					failed(err)
				}
				messages <- message
			}
		}()
	}
	for reading.goesOn() {
		select {
		case message := <-messages:
			reading.record(int32(message.Partition), message.Offset, message.Value)
		case <-time.After(100 * time.Millisecond):
		}
	}
	ends, times := map[string]int64{}, map[string]int64{}
	for partition := 0; partition < int(given.Partitions); partition++ {
		leader, err := kafka.DialLeader(context.Background(), "tcp", addresses(given)[0], given.Topic, partition)
		if err != nil {
			failed(err)
		}
		place := fmt.Sprint(partition)
		if ends[place], err = leader.ReadLastOffset(); err != nil {
			failed(err)
		}
		if timeMs != nil {
			if times[place], err = leader.ReadOffset(time.UnixMilli(*timeMs)); err != nil {
				failed(err)
			}
		}
		leader.Close()
	}
	end(reading, map[string]any{"ends": ends, "times": times})
}

// Ends the program with these in its last line, too.
func end(reading *read, more map[string]any) {
	if err := reading.file.Flush(); err != nil {
		failed(err)
	}
	if err := reading.closed(); err != nil {
		failed(err)
	}
	more["records"] = reading.records
	finish(more, !reading.goesOn() && time.Now().Before(reading.end))
}
