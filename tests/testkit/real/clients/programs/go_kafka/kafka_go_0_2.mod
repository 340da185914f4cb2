module example.test/old

go 1.21

require github.com/segmentio/kafka-go v0.2.0
