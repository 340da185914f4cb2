// Reads a topic by @confluentinc/kafka-javascript (librdkafka) as a member of a group that commits.

import confluent from '@confluentinc/kafka-javascript'
import { given, Read } from './program.js'

const { group, topic } = given
const read = new Read()
const consumer = new confluent.KafkaJS.Kafka({}).consumer({
  'bootstrap.servers': given.bootstrap,
  'group.id': group,
  'auto.offset.reset': 'earliest',
  'enable.auto.commit': false,
  'topic.metadata.refresh.interval.ms': 5000,
  log_level: 0
})
const positions = new Map()
const commit = () =>
  consumer.commitOffsets([...positions].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
await consumer.connect()
await consumer.subscribe({ topic })
await consumer.run({
  eachMessage: async ({ partition, message: { offset, value } }) => {
    read.record(partition, Number(offset), value)
    positions.set(partition, Number(offset) + 1)
    if (read.commitIsDue) await read.commit(commit)
  }
})
await read.ended()
await read.commit(commit, { isLast: true })
const places = Array.from({ length: given.partitions }, (_, partition) => ({ topic, partition }))
const committed = Object.fromEntries(
  (await consumer.committed(places, 10_000)).map(({ partition, offset }) => [partition, Number(offset)])
)
await consumer.disconnect()
read.finish(committed)
