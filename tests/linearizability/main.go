// Reads a history of a key-value store (a JSON object a line) and says whether it is linearizable. The checker is
// porcupine; only the model of a key is made here: put, get, and cas, which puts if the value is the expected one.
// Exit code 0: it is linearizable; 1: it is not; 2: nobody can tell in time, or the history cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is one call of a client. Unknown: its outcome was never told, so it may take effect at any time, or never.
type operation struct {
	Client   int     `json:"client"`
	Op       string  `json:"op"`
	Key      string  `json:"key"`
	Value    string  `json:"value"`
	Expected *string `json:"expected"`
	Result   *string `json:"result"`
	Done     bool    `json:"done"`
	Unknown  bool    `json:"unknown"`
	Call     int64   `json:"call_ns"`
	Return   int64   `json:"return_ns"`
}

func text(value *string) string {
	if value == nil {
		return "\x00none"
	}
	return *value
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string][]porcupine.Operation{}
		for _, one := range history {
			key := one.Input.(operation).Key
			keys[key] = append(keys[key], one)
		}
		var parts [][]porcupine.Operation
		for _, part := range keys {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return text(nil) },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		now, asked, told := state.(string), input.(operation), output.(operation)
		switch asked.Op {
		case "get":
			return told.Unknown || text(told.Result) == now, now
		case "put":
			return true, asked.Value
		default:
			holds := text(asked.Expected) == now
			if !told.Unknown && told.Done != holds {
				return false, now
			}
			if holds {
				return true, asked.Value
			}
			return true, now
		}
	},
	DescribeOperation: func(input, output interface{}) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: linearizability HISTORY SECONDS")
		os.Exit(2)
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer file.Close()
	seconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var history []porcupine.Operation
	unknown := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for lines.Scan() {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if one.Unknown {
			if one.Op == "get" {
				continue // it changes nothing, and says nothing
			}
			unknown++
			one.Return = 1<<63 - 1
		}
		history = append(history, porcupine.Operation{
			ClientId: one.Client, Input: one, Call: one.Call, Output: one, Return: one.Return,
		})
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	result, info := porcupine.CheckOperationsVerbose(model, history, time.Duration(seconds)*time.Second)
	fmt.Printf("%d operations, %d of unknown outcome: %s\n", len(history), unknown, result)
	if result == porcupine.Illegal && len(os.Args) > 3 {
		if err := porcupine.VisualizePath(model, info, os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	switch result {
	case porcupine.Ok:
		os.Exit(0)
	case porcupine.Illegal:
		os.Exit(1)
	default:
		os.Exit(2)
	}
}
