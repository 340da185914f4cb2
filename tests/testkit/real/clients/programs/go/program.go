package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const errorsShownMax = 20

// What a program is given; a reader and a producer use a part of it each.
type arguments struct {
	Bootstrap   string   `json:"bootstrap"`
	Topic       string   `json:"topic"`
	Partitions  int32    `json:"partitions"`
	Records     int      `json:"records"`
	Settings    settings `json:"settings"`
	Name        string   `json:"name"`
	Compression string   `json:"compression"`
	Headers     []string `json:"headers"`
	ToldFile    string   `json:"told_file"`
	Pace        pace     `json:"pace"`
	Group       string   `json:"group"`
	RecordsFile string   `json:"records_file"`
	SecondsMax  float64  `json:"seconds_max"`
	UntilFile   string   `json:"until_file"`
	CommitEvery float64  `json:"commit_every_seconds"`
	LivesOn     bool     `json:"lives_through_errors"`
}

type settings struct {
	Idempotent      bool `json:"idempotent"`
	DeliverySeconds int  `json:"delivery_seconds"`
	RequestSeconds  int  `json:"request_seconds"`
	RecordsAtOnce   int  `json:"records_at_once"`
	InFlight        int  `json:"in_flight"`
}

type pace struct {
	RecordsPerSecond float64 `json:"records_per_second"`
	UntilFile        string  `json:"until_file"`
}

// Ends the program without a last line.
func failed(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// The place and the number that a value names.
func position(value []byte) (partition int32, number int) {
	parts := strings.Split(string(value), ":")
	place, err := strconv.Atoi(parts[len(parts)-2])
	if err != nil {
		failed(err)
	}
	number, err = strconv.Atoi(parts[len(parts)-1])
	if err != nil {
		failed(err)
	}
	return int32(place), number
}

// Counts what became of numbered records, and writes down the offset of each that was acknowledged.
type told struct {
	sync.Mutex
	given          arguments
	lines          strings.Builder
	lastOffset     map[int32]int64
	sent           int
	acked          int
	failures       int
	errors         []string
	known, inOrder bool
}

func newTold(given arguments) *told {
	return &told{given: given, lastOffset: map[int32]int64{}, known: true, inOrder: true, errors: []string{}}
}

// Calls send with each record, the partitions in turn, at the pace that was asked for.
func (t *told) eachRecord(send func(partition int32, value []byte)) {
	begun := time.Now()
	for index := 0; index < t.given.Records; index++ {
		if until := t.given.Pace.UntilFile; until != "" {
			if _, err := os.Stat(until); err == nil {
				return
			}
		}
		partition, number := int32(index)%t.given.Partitions, index/int(t.given.Partitions)
		t.Lock()
		t.sent++
		t.Unlock()
		send(partition, []byte(fmt.Sprintf("%s:%d:%d", t.given.Name, partition, number)))
		if perSecond := t.given.Pace.RecordsPerSecond; perSecond > 0 {
			time.Sleep(time.Until(begun.Add(time.Duration(float64(index+1) / perSecond * float64(time.Second)))))
		}
	}
}

func (t *told) acknowledged(value []byte, offset int64) {
	partition, number := position(value)
	t.Lock()
	defer t.Unlock()
	last, before := t.lastOffset[partition]
	t.acked++
	t.known = t.known && offset >= 0
	t.inOrder = t.inOrder && (!before || offset > last)
	t.lastOffset[partition] = offset
	fmt.Fprintf(&t.lines, "%d %d %d\n", partition, number, offset)
}

func (t *told) failed(err error) {
	t.Lock()
	defer t.Unlock()
	t.failures++
	if len(t.errors) < errorsShownMax {
		t.errors = append(t.errors, err.Error())
	}
}

func (t *told) finish() {
	t.Lock()
	defer t.Unlock()
	if err := os.WriteFile(t.given.ToldFile, []byte(t.lines.String()), 0o644); err != nil {
		failed(err)
	}
	finish(map[string]any{
		"sent": t.sent, "acked": t.acked, "failed": t.failures, "errors": t.errors,
		"offsets_known": t.known, "offsets_in_order": t.inOrder,
	}, t.failures == 0 && t.acked == t.sent)
}

// Writes down what a consumer got, and says how long it goes on.
type read struct {
	given     arguments
	file      *bufio.Writer
	closed    func() error
	records   int
	values    map[string]struct{}
	end       time.Time
	committed time.Time
	notices   []string
}

func newRead(given arguments) *read {
	if given.Group == "" {
		failed(fmt.Errorf("this program reads in groups only"))
	}
	file, err := os.Create(given.RecordsFile)
	if err != nil {
		failed(err)
	}
	end := time.Now().Add(time.Duration(given.SecondsMax * float64(time.Second)))
	return &read{given: given, file: bufio.NewWriter(file), closed: file.Close, values: map[string]struct{}{}, end: end, committed: time.Now()}
}

func (r *read) record(partition int32, offset int64, value []byte) {
	r.records++
	r.values[string(value)] = struct{}{}
	fmt.Fprintf(r.file, "%d %d %s\n", partition, offset, value)
}

// With a file to wait for, the number in it is how many different values there are to read.
func (r *read) goesOn() bool {
	if time.Now().After(r.end) {
		return false
	}
	if r.given.UntilFile == "" {
		return r.records < r.given.Records
	}
	text, err := os.ReadFile(r.given.UntilFile)
	if err != nil {
		return true
	}
	wanted, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err != nil || len(r.values) < wanted
}

func (r *read) commitIsDue() bool {
	if r.given.CommitEvery <= 0 || time.Since(r.committed).Seconds() < r.given.CommitEvery {
		return false
	}
	r.committed = time.Now()
	return true
}

// Counts what the client tells its user and then goes on by itself, or by the next commit. Ends the program if the group
// has nothing to live through.
func (r *read) noticed(err error) {
	if r.given.UntilFile == "" || time.Now().After(r.end) {
		failed(fmt.Errorf("an error reached the user: %w", err))
	}
	r.notices = append(r.notices, err.Error())
}

func (r *read) finish(committed map[string]int64) {
	if err := r.file.Flush(); err != nil {
		failed(err)
	}
	if err := r.closed(); err != nil {
		failed(err)
	}
	finish(map[string]any{"records": r.records, "committed": committed, "notices": r.notices}, !r.goesOn() && time.Now().Before(r.end))
}

func finish(outcome map[string]any, ok bool) {
	outcome["final"] = true
	line, err := json.Marshal(outcome)
	if err != nil {
		failed(err)
	}
	fmt.Println(string(line))
	if !ok {
		os.Exit(1)
	}
	os.Exit(0)
}
