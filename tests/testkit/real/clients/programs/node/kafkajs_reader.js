// Reads a topic by kafkajs as a member of a group that commits. It stops by itself only for errors that it gives up on.

import kafkajs from 'kafkajs'
import { given, Read, reachedTheUser } from './program.js'

const { Kafka, logLevel } = kafkajs
const { group: groupId, topic } = given
const read = new Read()
const kafka = new Kafka({
  brokers: given.bootstrap.split(','),
  logLevel: logLevel.ERROR,
  retry: { retries: 1000, initialRetryTime: 100, maxRetryTime: 500 }
})
const consumer = kafka.consumer({ groupId, metadataMaxAge: 5000 })
consumer.on(consumer.events.CRASH, ({ payload }) => { if (!payload.restart) reachedTheUser(payload.error) })
const positions = new Map()
const commit = () =>
  consumer.commitOffsets([...positions].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await consumer.run({
  autoCommit: false,
  eachBatchAutoResolve: true,
  eachBatch: async ({ batch, heartbeat }) => {
    for (const { offset, value } of batch.messages) {
      read.record(batch.partition, Number(offset), value)
      positions.set(batch.partition, Number(offset) + 1)
    }
    await heartbeat()
    if (read.commitIsDue) await read.commit(commit)
  }
})
await read.ended()
await read.commit(commit, { isLast: true })
const admin = kafka.admin()
await admin.connect()
const [answer] = await admin.fetchOffsets({ groupId, topics: [topic] })
const committed = Object.fromEntries(answer.partitions.map(one => [one.partition, Number(one.offset)]))
await admin.disconnect()
await consumer.disconnect()
read.finish(committed)
