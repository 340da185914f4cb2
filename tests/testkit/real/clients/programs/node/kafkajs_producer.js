// Numbered records by kafkajs, one send at a time. It goes on without a producer id when it is given none.

import kafkajs from 'kafkajs'
import { given, Told } from './program.js'

const { CompressionTypes, Kafka, logLevel } = kafkajs
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const { settings, topic } = given
const told = new Told()
const kafka = new Kafka({
  brokers: given.bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  requestTimeout: settings.request_seconds * 1000,
  retry: { retries: 1000, initialRetryTime: 100, maxRetryTime: 500 }
})
const producer = kafka.producer({
  idempotent: settings.idempotent,
  maxInFlightRequests: 1,
  createPartitioner: () => ({ message }) => message.partition
})
await producer.connect()
const headers = Object.fromEntries(given.headers.map(name => [name, Buffer.of(1)]))
for await (const batch of told.batches(settings.records_at_once)) {
  try {
    const messages = batch.map(({ partition, value }) => ({ partition, value, headers }))
    const [answer] = await producer.send({ topic, acks: -1, compression: CODECS[given.compression], messages })
    batch.forEach((record, index) => told.acknowledged(record, Number(answer.baseOffset) + index))
  } catch (error) {
    told.failed(error, batch.length)
  }
}
await producer.disconnect()
told.finish()
