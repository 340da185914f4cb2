// Numbered records by @confluentinc/kafka-javascript (librdkafka), a send for each. A fatal error fails them all.

import confluent from '@confluentinc/kafka-javascript'
import { given, Told } from './program.js'

const { settings, topic } = given
const told = new Told()
const producer = new confluent.KafkaJS.Kafka({}).producer({
  'bootstrap.servers': given.bootstrap,
  'enable.idempotence': settings.idempotent,
  'compression.codec': given.compression,
  'request.timeout.ms': settings.request_seconds * 1000,
  'message.timeout.ms': settings.delivery_seconds * 1000,
  'message.send.max.retries': 10_000_000,
  'reconnect.backoff.ms': 20,
  'reconnect.backoff.max.ms': 200,
  'retry.backoff.ms': 20,
  'linger.ms': 1,
  'batch.num.messages': settings.records_at_once,
  'max.in.flight.requests.per.connection': settings.in_flight ?? 5,
  acks: -1,
  log_level: 0
})
await producer.connect()
const headers = Object.fromEntries(given.headers.map(name => [name, Buffer.of(1)]))
const answers = []
for await (const [record] of told.batches(1)) {
  const { partition, value } = record
  answers.push(
    producer.send({ topic, messages: [{ partition, value, headers }] }).then(
      ([answer]) => told.acknowledged(record, Number(answer.baseOffset)),
      error => told.failed(error)
    )
  )
}
await Promise.all(answers)
await producer.disconnect()
told.finish()
