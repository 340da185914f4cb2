// Small programs around Go clients of Kafka: numbered records, and a reader in a group. What they print and write down
// has the form of the Python programs' beside them (program.py). Usage: clients CLIENT producer|reader JSON
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

var programs = map[string]func(arguments){
	"franz-go producer": franzProducer,
	"franz-go reader":   franzReader,
	"kafka-go producer": kafkaGoProducer,
	"sarama producer":   saramaProducer,
	"sarama reader":     saramaReader,
}

func main() {
	if len(os.Args) != 4 {
		failed(fmt.Errorf("usage: %s CLIENT producer|reader JSON", os.Args[0]))
	}
	run, known := programs[os.Args[1]+" "+os.Args[2]]
	if !known {
		failed(fmt.Errorf("there is no program %q", os.Args[1:3]))
	}
	var given arguments
	if err := json.Unmarshal([]byte(os.Args[3]), &given); err != nil {
		failed(err)
	}
	run(given)
}
